//! Writes effects, in bulk: what is replaced or gone leaves, what is new comes, and then who is
//! endorsed is counted again where something has changed.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::Seq;
use kukuri_event::EventId;
use kukuri_feed::{Column, Desk, DeskError, Given};

use crate::block::{Posting, PostingKey};
use crate::document::{Document, NUMBERS_PER_DOCUMENT, Number};
use crate::effects::{DocumentEffect, Effects};
use crate::search::TopicKey;
use crate::tables::{Tables, list};
use crate::text::Term;

/// A document and the number it is written under.
struct Placed<'a> {
    number: Number,
    topic: TopicKey,
    document: &'a Document,
}

/// What a batch does to the documents that are there.
#[derive(Default)]
struct Changes<'a> {
    new: Vec<&'a Document>,
    /// They are there already: the same event says the same.
    again: Vec<(Number, Seq)>,
    removed: Vec<Number>,
}

impl Tables {
    pub(crate) async fn apply(&self, desk: &mut Desk, effects: Effects) -> Result<(), DeskError> {
        let changes = self.compare(desk, &effects).await?;
        self.remove(desk, &changes.removed).await?;
        self.put_again(desk, &changes.again).await?;
        let placed = self.place(desk, &changes.new).await?;
        self.insert(desk, &placed).await?;
        let mut postings = Vec::new();
        for Placed { number, topic, document } in &placed {
            let key = |term: &Term| PostingKey::new(*topic, *term);
            let posting = |term| Posting { key: key(term), number: *number };
            postings.extend(document.text.terms.iter().map(posting));
            postings.push(Posting { key: PostingKey::presence(*number), number: *number });
        }
        if !postings.is_empty() || !changes.removed.is_empty() {
            self.post(desk, postings).await?;
        }
        let touched = self.replace_endorsements(desk, &effects).await?;
        let new = changes.new.iter().map(|one| one.target.prefix()).collect();
        self.count(desk, new, touched).await
    }

    /// Looks which documents of a batch are there.
    async fn compare<'a>(
        &self,
        desk: &mut Desk,
        effects: &'a Effects,
    ) -> Result<Changes<'a>, DeskError> {
        let targets = effects.documents.values().map(|effect| effect.target().prefix());
        let (table, value) = list(desk.dialect(), 1, &targets.collect::<Vec<_>>());
        let sql = format!(
            "SELECT event_id, topic, number FROM {} WHERE target IN {table}",
            self.documents
        );
        let mut here = BTreeMap::new();
        if !effects.documents.is_empty() {
            for row in desk.rows(&sql, vec![value.into()]).await? {
                here.insert((row.blob(0)?, row.int(1)?), Number(row.int(2)?));
            }
        }
        let mut changes = Changes::default();
        for (key, effect) in &effects.documents {
            let place = (key.event_id.as_bytes().to_vec(), TopicKey::of(&key.topic_id).0);
            match (effect, here.get(&place)) {
                (DocumentEffect::Put(document), None) => changes.new.push(document),
                (DocumentEffect::Put(document), Some(number)) => {
                    changes.again.push((*number, document.seq));
                }
                (DocumentEffect::Remove { .. }, Some(number)) => changes.removed.push(*number),
                (DocumentEffect::Remove { .. }, None) => {}
            }
        }
        Ok(changes)
    }

    async fn put_again(&self, desk: &mut Desk, again: &[(Number, Seq)]) -> Result<(), DeskError> {
        let documents = &self.documents;
        let sql = format!(
            "UPDATE {documents} SET seq = given.seq FROM given
                 WHERE {documents}.number = given.number"
        );
        let given = Given::new([
            ("number", again.iter().map(|(number, _)| number.0).collect()),
            ("seq", again.iter().map(|(_, seq)| seq.0).collect::<Column>()),
        ]);
        desk.bulk(&sql, given).await?;
        Ok(())
    }

    /// Gives each document the first of its numbers that no other has or has left behind, in the order of
    /// numbers, in which they are written best.
    async fn place<'a>(
        &self,
        desk: &mut Desk,
        documents: &[&'a Document],
    ) -> Result<Vec<Placed<'a>>, DeskError> {
        let mut placed = BTreeMap::new();
        let mut open = documents.to_vec();
        for choice in 0..usize::from(NUMBERS_PER_DOCUMENT) {
            let number = |one: &Document| Number::choices(one.created_at, &one.key)[choice];
            let numbers: Vec<Number> = open.iter().map(|one| number(one)).collect();
            let wanted: Vec<i64> = numbers.iter().map(|number| number.0).collect();
            let owners = self.owners(desk, &wanted).await?;
            open = std::iter::zip(open, numbers)
                .filter(|(document, number)| {
                    let taken = owners.get(number).is_some_and(|owner| !owner.is(&document.key));
                    let free = !taken && !placed.contains_key(number);
                    if free {
                        placed.insert(*number, *document);
                    }
                    !free
                })
                .map(|(document, _)| document)
                .collect();
        }
        if let Some(document) = open.first() {
            let id = document.key.event_id;
            return Err(DeskError::Refused(format!("all numbers of event {id} are taken")));
        }
        let place = |(number, document): (Number, &'a Document)| Placed {
            number,
            document,
            topic: TopicKey::of(&document.key.topic_id),
        };
        Ok(placed.into_iter().map(place).collect())
    }

    /// Which of some numbers documents have.
    pub(crate) async fn taken(
        &self,
        desk: &mut Desk,
        numbers: &[i64],
    ) -> Result<BTreeSet<Number>, DeskError> {
        if numbers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (rows, value) = list(desk.dialect(), 1, numbers);
        let sql = format!("SELECT number FROM {} WHERE number IN {rows}", self.documents);
        let found = desk.rows(&sql, vec![value.into()]).await?;
        found.iter().map(|row| Ok(Number(row.int(0)?))).collect()
    }

    async fn insert(&self, desk: &mut Desk, placed: &[Placed<'_>]) -> Result<(), DeskError> {
        let trail = |one: &Placed<'_>| one.document.text.trail.as_bytes().to_vec();
        let given = Given::new([
            ("number", placed.iter().map(|one| one.number.0).collect()),
            ("event_id", event_ids(placed.iter().map(|one| one.document.key.event_id))),
            ("topic", placed.iter().map(|one| one.topic.0).collect()),
            ("created_at", placed.iter().map(|one| one.document.created_at.0).collect()),
            ("seq", placed.iter().map(|one| one.document.seq.0).collect()),
            ("target", placed.iter().map(|one| one.document.target.prefix()).collect()),
            ("trail", placed.iter().map(trail).collect::<Column>()),
        ]);
        let sql = format!(
            "INSERT INTO {} (number, event_id, topic, created_at, seq, target, popularity, trail)
                 SELECT number, event_id, topic, created_at, seq, target, 0, trail FROM given",
            self.documents
        );
        desk.bulk(&sql, given).await?;
        Ok(())
    }
}

fn event_ids(ids: impl Iterator<Item = EventId>) -> Column {
    ids.map(|id| id.as_bytes().to_vec()).collect()
}
