//! Whether a state can be what the rules left: the feed folded again, and every table held against the
//! others. It judges what is stored, whoever stored it.

mod tables;

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::{FeedRow, Op, Seq, TopicId};
use kukuri_event::EventId;
use kukuri_store::Entry;

use tables::Tables;

/// Which events are visible in which topics.
pub type Links = BTreeMap<EventId, BTreeSet<TopicId>>;

/// What a reader of the feed knows after some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    pub head: Seq,
    pub links: Links,
}

impl Fold {
    /// Takes the next row.
    ///
    /// # Errors
    /// What is wrong with a row that cannot follow those before it.
    pub fn take(&mut self, row: &FeedRow) -> Result<(), String> {
        let FeedRow { seq, op, event_id, topic_id, prior, .. } = row;
        if *seq != self.head.next() {
            return Err(format!("row {seq} follows row {}", self.head));
        }
        self.head = *seq;
        let topics = self.links.entry(*event_id).or_default();
        let moved = match op {
            Op::Upsert => topics.insert(topic_id.clone()),
            Op::Delete => topics.remove(topic_id),
        };
        if !moved {
            return Err(format!("row {seq}: {} of {event_id} changes nothing", op.as_str()));
        }
        if row.reason.is_some() != (*op == Op::Delete) {
            return Err(format!("row {seq}: deletes have a reason, and nothing else has"));
        }
        let others: Vec<&TopicId> = topics.iter().filter(|topic| *topic != topic_id).collect();
        if others != prior.iter().collect::<Vec<_>>() {
            return Err(format!("row {seq}: prior is {prior:?}, the other topics are {others:?}"));
        }
        if topics.is_empty() {
            self.links.remove(event_id);
        }
        Ok(())
    }

    /// Folds a whole feed.
    ///
    /// # Errors
    /// As [`Fold::take`].
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a FeedRow>) -> Result<Fold, String> {
        let mut fold = Fold::default();
        rows.into_iter().try_for_each(|row| fold.take(row))?;
        Ok(fold)
    }
}

/// The links of the stored events that are visible.
pub fn effective(entries: &[Entry]) -> Links {
    let records = entries.iter().filter_map(|entry| match entry {
        Entry::Record(record) if record.is_effective() => Some(record),
        _ => None,
    });
    let links = records.map(|record| (record.event().id(), record.topics().cloned().collect()));
    links.collect()
}

/// Holds a whole dump against itself. The feed has to be there from after `floor` on; from its first
/// row it tells all that is visible.
///
/// # Errors
/// Everything that cannot be.
pub fn audit(entries: &[Entry], floor: Seq) -> Result<(), String> {
    let tables = Tables::new(entries);
    let mut faults = Vec::new();
    let rows = || tables.rows.iter().copied();
    if floor == Seq::ZERO {
        match Fold::of(rows()) {
            Err(fault) => faults.push(fault),
            Ok(fold) => faults.extend(differences(&fold.links, &effective(entries))),
        }
    } else {
        faults.extend(last_words(rows(), floor, &effective(entries)));
    }
    tables.check(&mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Where the feed was cut, the last row of an event in a topic still says whether it is visible there.
fn last_words<'a>(
    rows: impl Iterator<Item = &'a FeedRow>,
    floor: Seq,
    stored: &Links,
) -> Vec<String> {
    let (mut last, mut said, mut faults) = (floor, BTreeMap::new(), Vec::new());
    for row in rows {
        if row.seq != last.next() {
            faults.push(format!("row {} follows row {last}", row.seq));
        }
        last = row.seq;
        said.insert((row.event_id, &row.topic_id), row.op);
    }
    for ((id, topic), op) in said {
        let visible = stored.get(&id).is_some_and(|topics| topics.contains(topic));
        if visible != (op == Op::Upsert) {
            faults.push(format!("event {id}: its last row in {topic} is {}", op.as_str()));
        }
    }
    faults
}

fn differences(fold: &Links, stored: &Links) -> Vec<String> {
    let ids: BTreeSet<&EventId> = fold.keys().chain(stored.keys()).collect();
    let differ = ids.into_iter().filter(|id| fold.get(id) != stored.get(id));
    differ
        .map(|id| {
            let (fold, stored) = (fold.get(id), stored.get(id));
            format!("event {id}: visible in {fold:?} by the feed, in {stored:?} by its record")
        })
        .collect()
}
