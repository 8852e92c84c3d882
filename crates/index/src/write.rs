//! Writes effects, in bulk: what is replaced or gone leaves, what is new comes, and then who is
//! endorsed is counted again where something has changed.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_event::EventId;
use kukuri_feed::{Column, Desk, DeskError, Dialect, Given};

use crate::document::{Document, NUMBERS_PER_DOCUMENT, Number};
use crate::effects::{DocumentEffect, Effects};
use crate::endorsement::Endorsement;
use crate::rank::POPULARITY_MAX;
use crate::search::TopicKey;
use crate::tables::{Tables, keys, list, postings};

/// A document and the number it is written under.
struct Placed<'a> {
    number: Number,
    topic: TopicKey,
    document: &'a Document,
}

impl Tables {
    pub(crate) async fn apply(&self, desk: &mut Desk, effects: Effects) -> Result<(), DeskError> {
        self.remove_documents(desk, &effects).await?;
        let documents = effects.documents.values().filter_map(|effect| match effect {
            DocumentEffect::Put(document) => Some(document),
            DocumentEffect::Remove { .. } => None,
        });
        let documents: Vec<&Document> = documents.collect();
        self.put_documents(desk, &documents).await?;
        let changed = self.replace_endorsements(desk, &effects).await?;
        let new = documents.iter().map(|one| one.target.prefix()).collect();
        self.count(desk, new, changed).await
    }

    /// Whatever a batch speaks of leaves first: a row that comes again is written again.
    async fn remove_documents(&self, desk: &mut Desk, effects: &Effects) -> Result<(), DeskError> {
        let Self { documents, postings, .. } = self;
        let targets = effects.documents.values().map(|effect| effect.target().prefix());
        if self.among(desk, documents, "target", targets).await?.is_empty() {
            return Ok(());
        }
        let found = format!(
            "SELECT old.number FROM given CROSS JOIN {documents} AS old WHERE old.target = given.target
                 AND old.event_id = given.event_id AND old.topic = given.topic"
        );
        let given = || {
            Given::new([
                (
                    "target",
                    effects.documents.values().map(|effect| effect.target().prefix()).collect(),
                ),
                ("event_id", event_ids(effects.documents.keys().map(|key| key.event_id))),
                (
                    "topic",
                    effects.documents.keys().map(|key| TopicKey::of(&key.topic_id).0).collect(),
                ),
            ])
        };
        if desk.dialect() == Dialect::Sqlite {
            let sql = format!("DELETE FROM {postings} WHERE rowid IN ({found})");
            desk.bulk(&sql, given()).await?;
        }
        let sql = format!("DELETE FROM {documents} WHERE number IN ({found})");
        desk.bulk(&sql, given()).await?;
        Ok(())
    }

    async fn put_documents(
        &self,
        desk: &mut Desk,
        documents: &[&Document],
    ) -> Result<(), DeskError> {
        let placed = self.place(desk, documents).await?;
        self.insert(desk, &placed).await?;
        if desk.dialect() == Dialect::Postgres {
            return Ok(());
        }
        let terms = |one: &Placed<'_>| postings(one.topic, &one.document.text.terms);
        let given = Given::new([
            ("number", placed.iter().map(|one| one.number.0).collect()),
            ("terms", placed.iter().map(terms).collect::<Column>()),
        ]);
        let table = &self.postings;
        let sql = format!("INSERT INTO {table} (rowid, terms) SELECT number, terms FROM given");
        desk.bulk(&sql, given).await?;
        Ok(())
    }

    /// Gives each document the first of its numbers that no other has, in the order of numbers, as FTS5
    /// writes them best.
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
            let taken = self.taken(desk, &numbers).await?;
            open = std::iter::zip(open, numbers)
                .filter(|(document, number)| {
                    let free = !taken.contains(number) && !placed.contains_key(number);
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

    async fn taken(
        &self,
        desk: &mut Desk,
        numbers: &[Number],
    ) -> Result<BTreeSet<Number>, DeskError> {
        let numbers = numbers.iter().map(|number| number.0);
        let found = self.among(desk, &self.documents, "number", numbers).await?;
        Ok(found.into_iter().map(Number).collect())
    }

    /// Which of some values a column has.
    async fn among(
        &self,
        desk: &mut Desk,
        table: &str,
        column: &str,
        values: impl Iterator<Item = i64>,
    ) -> Result<BTreeSet<i64>, DeskError> {
        let values: Vec<i64> = values.collect();
        if values.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (rows, value) = list(desk.dialect(), &values);
        let sql = format!("SELECT DISTINCT {column} FROM {table} WHERE {column} IN ({rows})");
        let found = desk.rows(&sql, vec![value.into()]).await?;
        found.iter().map(|row| row.int(0)).collect()
    }

    async fn insert(&self, desk: &mut Desk, placed: &[Placed<'_>]) -> Result<(), DeskError> {
        let trail = |one: &Placed<'_>| one.document.text.trail.as_bytes().to_vec();
        let mut columns: Vec<(&str, Column)> = vec![
            ("number", placed.iter().map(|one| one.number.0).collect()),
            ("event_id", event_ids(placed.iter().map(|one| one.document.key.event_id))),
            ("topic", placed.iter().map(|one| one.topic.0).collect()),
            ("created_at", placed.iter().map(|one| one.document.created_at.0).collect()),
            ("seq", placed.iter().map(|one| one.document.seq.0).collect()),
            ("target", placed.iter().map(|one| one.document.target.prefix()).collect()),
            ("trail", placed.iter().map(trail).collect()),
        ];
        let (mut names, mut values) = (String::new(), String::new());
        if desk.dialect() == Dialect::Postgres {
            let texts = placed.iter().map(|one| keys(one.topic, &one.document.text.terms));
            columns.push(("keys", texts.collect()));
            (names, values) = (", keys".to_owned(), ", CAST(keys AS INTEGER[])".to_owned());
        }
        let sql = format!(
            "INSERT INTO {} (number, event_id, topic, created_at, seq, target, popularity, trail{names})
                 SELECT number, event_id, topic, created_at, seq, target, 0, trail{values} FROM given",
            self.documents
        );
        desk.bulk(&sql, Given::new(columns)).await?;
        Ok(())
    }

    /// Returns what was or is endorsed by events of the batch.
    async fn replace_endorsements(
        &self,
        desk: &mut Desk,
        effects: &Effects,
    ) -> Result<BTreeSet<i64>, DeskError> {
        let table = &self.endorsements;
        let (rows, value) = {
            let events: Vec<i64> = effects.endorsements.keys().map(EventId::prefix).collect();
            if events.is_empty() {
                return Ok(BTreeSet::new());
            }
            list(desk.dialect(), &events)
        };
        let sql = format!("SELECT DISTINCT target FROM {table} WHERE event IN ({rows})");
        let before = desk.rows(&sql, vec![value.clone().into()]).await?;
        let mut touched: BTreeSet<i64> =
            before.iter().map(|row| row.int(0)).collect::<Result<_, _>>()?;
        let sql = format!("DELETE FROM {table} WHERE event IN ({rows})");
        desk.execute(&sql, vec![value.into()]).await?;

        let new: Vec<&Endorsement> = effects.endorsements.values().flatten().collect();
        touched.extend(new.iter().map(|one| one.target.prefix()));
        let given = Given::new([
            ("event", new.iter().map(|one| one.event_id.prefix()).collect()),
            ("target", new.iter().map(|one| one.target.prefix()).collect()),
            ("author", new.iter().map(|one| one.author.prefix()).collect()),
            ("sort", new.iter().map(|one| i64::from(one.sort.code())).collect::<Column>()),
        ]);
        let sql = format!(
            "INSERT INTO {table} (event, target, author, sort)
                 SELECT event, target, author, sort FROM given"
        );
        desk.bulk(&sql, given).await?;
        Ok(touched)
    }

    /// Counts again how popular documents are, those of new documents that have been endorsed already
    /// and those whose endorsements have changed.
    async fn count(
        &self,
        desk: &mut Desk,
        new: BTreeSet<i64>,
        changed: BTreeSet<i64>,
    ) -> Result<(), DeskError> {
        let Self { documents, endorsements, .. } = self;
        let mut targets = self.among(desk, endorsements, "target", new.into_iter()).await?;
        targets.extend(changed);
        if targets.is_empty() {
            return Ok(());
        }
        let targets: Vec<i64> = targets.into_iter().collect();
        let (rows, value) = list(desk.dialect(), &targets);
        let sql = format!(
            "UPDATE {documents} SET popularity = (SELECT COUNT(*) FROM
                 (SELECT DISTINCT author, sort FROM {endorsements}
                      WHERE {endorsements}.target = {documents}.target
                      LIMIT {POPULARITY_MAX}) AS voices)
                 WHERE target IN ({rows})"
        );
        desk.execute(&sql, vec![value.into()]).await?;
        Ok(())
    }
}

fn event_ids(ids: impl Iterator<Item = EventId>) -> Column {
    ids.map(|id| id.as_bytes().to_vec()).collect()
}
