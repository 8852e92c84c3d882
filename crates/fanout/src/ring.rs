//! The last rows of the feed with their bodies, for subscriptions that come a moment late.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kukuri_core::{FeedRow, Op, Seq, TopicId};
use kukuri_event::{Body, EventId};

/// A row, and the event of an upsert as long as it can be had.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub row: FeedRow,
    pub body: Option<Arc<Body>>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.json().len())
    }
}

pub(crate) struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The last row that was put in, or the one before the first.
    position: Seq,
    rows_max: usize,
    bytes_max: usize,
}

impl Ring {
    pub fn new(position: Seq, rows_max: usize, bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, position, rows_max, bytes_max }
    }

    pub fn position(&self) -> Seq {
        self.position
    }

    pub fn push(&mut self, entry: Entry) {
        self.position = entry.row.seq;
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.entries.len() > self.rows_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// What left a topic after a seq, and with which row.
    pub fn gone_after(&self, seq: Seq) -> HashMap<(EventId, &TopicId), Seq> {
        let later = self.entries.iter().rev().take_while(|entry| entry.row.seq > seq);
        let deletes = later.filter(|entry| entry.row.op == Op::Delete).map(|entry| &entry.row);
        // The last row of an event in a topic is met first, and stays.
        deletes.fold(HashMap::new(), |mut gone, row| {
            gone.entry((row.event_id, &row.topic_id)).or_insert(row.seq);
            gone
        })
    }

    /// The rows after a seq, if all of them are here.
    pub fn after(&self, seq: Seq) -> Option<impl Iterator<Item = &Entry>> {
        let missing = usize::try_from(self.position.0 - seq.0).unwrap_or(0);
        let skip = self.entries.len().checked_sub(missing)?;
        Some(self.entries.range(skip..))
    }
}
