//! The tail: new events whose index rows are not in the tables yet. Every commit would dirty a page
//! of each index per event; sorted runs of thousands of events dirty a fraction of that. Until its
//! run, a new event is found through this index in memory, which any process can build from the
//! `events` rows themselves. It only says where to look: whether an event is visible is always read
//! from its row.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kukuri_core::{Record, Seq, UnixMillis, tag_key};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use rusqlite::Connection;

use crate::desk::TopicNumbers;
use crate::error::OrStore;
use crate::page::collect;
use crate::rows;

/// A place in an index of the tail: newest first, then by number.
pub(crate) type Newest = (Reverse<i64>, i64);
/// A place in the order of answers: newest first, then by id. Nothing has to be sorted to go on in the middle of
/// a second, however many events it has.
pub(crate) type InOrder = (Reverse<i64>, EventId, i64);

/// The tail of this process, shared by its threads.
pub(crate) struct Tail {
    current: Mutex<Arc<Segment>>,
}

/// The events after one run and before the next. Readers keep theirs while a run replaces it.
pub(crate) struct Segment {
    /// Events up to here are in the tables.
    pub base: Seq,
    events: RwLock<TailEvents>,
}

#[derive(Default)]
pub(crate) struct TailEvents {
    /// Events up to here are in this index.
    head: Seq,
    pub by_seq: BTreeMap<i64, TailEvent>,
    pub ids: HashMap<EventId, i64>,
    /// By topic number, by tag and by author, in the order of the tables.
    pub topics: BTreeSet<(i64, InOrder)>,
    pub tags: BTreeSet<(i64, Newest)>,
    pub authors: BTreeSet<(i64, Newest)>,
}

/// What the index rows of an event are made of.
pub(crate) struct TailEvent {
    pub id: EventId,
    pub kind: u16,
    pub author: i64,
    pub expires_at: Option<i64>,
    pub ingested_at: UnixMillis,
    /// Topic number and the row that made the link.
    pub links: Vec<(i64, i64)>,
}

impl Tail {
    pub(crate) fn new() -> Self {
        Self { current: Mutex::new(Arc::new(Segment::after(Seq::ZERO))) }
    }

    /// The segment that fits the transaction's view of the tables, filled up to its head. `None` when
    /// the transaction is older than the last run: it must begin again.
    pub(crate) fn at(
        &self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        head: Seq,
    ) -> Result<Option<Arc<Segment>>, StoreError> {
        let base = indexed(conn)?;
        let segment = {
            let mut current = self.current.lock().expect("no holder of the lock panics");
            if current.base < base {
                *current = Arc::new(Segment::after(base));
            }
            Arc::clone(&current)
        };
        if segment.base > base {
            return Ok(None);
        }
        segment.catch_up(conn, numbers, head)?;
        Ok(Some(segment))
    }

    /// After a run was committed.
    pub(crate) fn start_after(&self, base: Seq) {
        let mut current = self.current.lock().expect("no holder of the lock panics");
        if current.base < base {
            *current = Arc::new(Segment::after(base));
        }
    }

    pub(crate) fn current(&self) -> Arc<Segment> {
        Arc::clone(&self.current.lock().expect("no holder of the lock panics"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current().events().by_seq.is_empty()
    }
}

fn indexed(conn: &Connection) -> Result<Seq, StoreError> {
    let mut select = conn.prepare_cached("SELECT up_to_seq FROM indexed").or_store()?;
    select.query_row([], |row| row.get(0).map(Seq)).or_store()
}

impl Segment {
    pub(crate) fn after(base: Seq) -> Self {
        let events = TailEvents { head: base, ..TailEvents::default() };
        Self { base, events: RwLock::new(events) }
    }

    pub(crate) fn events(&self) -> RwLockReadGuard<'_, TailEvents> {
        self.events.read().expect("no writer of the tail panics")
    }

    fn events_mut(&self) -> RwLockWriteGuard<'_, TailEvents> {
        self.events.write().expect("no writer of the tail panics")
    }

    pub(crate) fn contains(&self, record: &Record) -> bool {
        record.seq > self.base
    }

    /// Adds what other processes, or a batch of ours that is not added yet, have committed.
    fn catch_up(
        &self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        head: Seq,
    ) -> Result<(), StoreError> {
        let from = self.events().head;
        if from >= head {
            return Ok(());
        }
        let sql = format!(
            "SELECT {} FROM events WHERE seq > ?1 AND seq <= ?2 ORDER BY seq",
            rows::RECORD_COLUMNS
        );
        let missing =
            collect(conn, &sql, [from.0, head.0], |row| rows::record(conn, numbers, row))?;
        // The rows were read without the lock; another thread may have added some of them since.
        let mut events = self.events_mut();
        let from = events.head;
        for record in missing.iter().filter(|record| record.seq > from) {
            events.add(conn, numbers, record)?;
        }
        events.head = from.max(head);
        Ok(())
    }

    /// Adds the new events of a batch of ours, which was decided at head `base`.
    pub(crate) fn extend<'a>(
        &self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        records: impl Iterator<Item = &'a Record>,
        base: Seq,
        head: Seq,
    ) -> Result<(), StoreError> {
        let mut events = self.events_mut();
        let from = events.head;
        if from < base {
            // Others' events are missing before ours: whoever reads next catches up with all.
            return Ok(());
        }
        for record in records.filter(|record| record.seq > from) {
            events.add(conn, numbers, record)?;
        }
        events.head = from.max(head);
        Ok(())
    }
}

impl TailEvents {
    pub(crate) fn len(&self) -> usize {
        self.by_seq.len()
    }

    fn add(
        &mut self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        record: &Record,
    ) -> Result<(), StoreError> {
        let event = record.event();
        let place = (Reverse(event.created_at().0), record.seq.0);
        let mut links = Vec::with_capacity(record.links.len());
        for link in &record.links {
            let topic_no = numbers.assign(conn, &link.topic)?;
            self.topics.insert((topic_no, (place.0, event.id(), place.1)));
            links.push((topic_no, link.seq.0));
        }
        for (letter, value) in record.indexed_tags() {
            self.tags.insert((tag_key(letter, value), place));
        }
        self.authors.insert((event.pubkey().prefix(), place));
        self.ids.insert(event.id(), record.seq.0);
        let entry = TailEvent {
            id: event.id(),
            kind: event.kind().0,
            author: event.pubkey().prefix(),
            expires_at: record.expires_at().map(|end| end.0),
            ingested_at: record.ingested_at,
            links,
        };
        self.by_seq.insert(record.seq.0, entry);
        Ok(())
    }
}

/// The tail as of one head. It grows while a transaction reads, and what came after the
/// transaction began is not part of its moment.
#[derive(Clone, Copy)]
pub(crate) struct TailAt<'a> {
    pub segment: &'a Segment,
    pub head: Seq,
}

impl TailAt<'_> {
    /// The number of the event with this id.
    pub(crate) fn seq_of(&self, id: &EventId) -> Option<i64> {
        self.segment.events().ids.get(id).copied().filter(|seq| *seq <= self.head.0)
    }

    /// Numbers of the events of a topic, the last ones of an answer first.
    pub(crate) fn oldest_in(&self, topic_no: i64) -> Vec<i64> {
        let events = self.segment.events();
        let (least, greatest) =
            (EventId::from_bytes([u8::MIN; 32]), EventId::from_bytes([u8::MAX; 32]));
        let from = (topic_no, (Reverse(i64::MAX), least, i64::MIN));
        let to = (topic_no, (Reverse(i64::MIN), greatest, i64::MAX));
        let seqs = events.topics.range(from..=to).rev().map(|(_, (.., seq))| *seq);
        seqs.filter(|seq| *seq <= self.head.0).collect()
    }

    /// What is collected from each event of the tail.
    pub(crate) fn collect<T>(&self, of: impl Fn(Seq, &TailEvent) -> Vec<T>) -> Vec<T> {
        let events = self.segment.events();
        let held = events.by_seq.range(..=self.head.0);
        held.flat_map(|(seq, event)| of(Seq(*seq), event)).collect()
    }
}
