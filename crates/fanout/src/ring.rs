//! The last rows of the feed with their bodies, for subscriptions that come a moment late.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kukuri_core::{FeedRow, Op, Seq};
use kukuri_event::{Body, EventId};

use crate::late::{LateRow, Standing};

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
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// The last row that was put in, or the one before the first.
    position: Seq,
    /// The events that have left a topic. The others have lost nothing since their first row here.
    left: HashMap<EventId, Left>,
    rows_max: usize,
    bytes_max: usize,
}

/// An event that has left a topic, as its last row shows it. Kept for as long as that row is here, so
/// there are never more of them than rows.
struct Left {
    last_row: Seq,
    standing: Standing,
}

impl Ring {
    pub fn new(position: Seq, rows_max: usize, bytes_max: usize) -> Self {
        let (entries, left) = (VecDeque::new(), HashMap::new());
        Self { entries, bytes: 0, position, left, rows_max, bytes_max }
    }

    pub fn position(&self) -> Seq {
        self.position
    }

    pub fn push(&mut self, entry: Entry) {
        self.position = entry.row.seq;
        self.bytes += entry.bytes();
        self.follow(&entry.row);
        self.entries.push_back(Arc::new(entry));
        while self.entries.len() > self.rows_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.forget(&oldest.row);
        }
    }

    /// The next rows after a seq, if all that come after it are here.
    pub fn after(&self, seq: Seq, rows_max: usize) -> Option<Vec<LateRow>> {
        let missing = usize::try_from(self.position.0 - seq.0).unwrap_or(0);
        let skip = self.entries.len().checked_sub(missing)?;
        let late = |entry: &Arc<Entry>| {
            let left = self.left.get(&entry.row.event_id);
            let standing = left.map(|left| left.standing.clone());
            LateRow { entry: Arc::clone(entry), standing }
        };
        Some(self.entries.range(skip..).take(rows_max).map(late).collect())
    }

    /// Only a delete takes a topic away, so an event is followed from its first one on.
    fn follow(&mut self, row: &FeedRow) {
        let before = self.left.get(&row.event_id).map(|left| left.standing.first_row);
        let (first_row, own) = match (row.op, before) {
            (Op::Upsert, None) => return,
            // Without topics it was gone, and this is another life.
            (Op::Upsert, Some(_)) if row.prior.is_empty() => (row.seq, Some(&row.topic_id)),
            (Op::Upsert, Some(before)) => (before, Some(&row.topic_id)),
            // All rows that are here from before its first delete are of one life.
            (Op::Delete, before) => (before.unwrap_or(Seq::ZERO), None),
        };
        let links = row.prior.iter().chain(own).cloned().collect();
        let standing = Standing { first_row, links };
        self.left.insert(row.event_id, Left { last_row: row.seq, standing });
    }

    /// With an event's last row all of them are gone.
    fn forget(&mut self, row: &FeedRow) {
        if self.left.get(&row.event_id).is_some_and(|left| left.last_row == row.seq) {
            self.left.remove(&row.event_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use kukuri_core::{Reason, Source, TopicId, UnixMillis};
    use kukuri_event::{Kind, Pubkey, UnixSeconds};

    use super::*;

    const ROWS_MAX: usize = 4;

    /// What is remembered of an event goes with its last row, and not before.
    #[test]
    fn what_left_is_forgotten_with_its_last_row() {
        let mut ring = Ring::new(Seq::ZERO, ROWS_MAX, usize::MAX);
        for (seq, op) in [(1, Op::Upsert), (2, Op::Delete), (3, Op::Upsert)] {
            ring.push(entry(seq, 1, op));
        }
        let others = 4..=6;
        others.for_each(|seq| ring.push(entry(seq, 2, Op::Upsert)));
        assert_eq!(ring.left.len(), 1, "row 3 is the oldest");
        ring.push(entry(7, 2, Op::Upsert));
        assert_eq!(ring.left.len(), 0, "row 3 has left");
    }

    /// However many events leave topics, no more are remembered than there are rows.
    #[test]
    fn no_more_is_remembered_than_rows() {
        let mut ring = Ring::new(Seq::ZERO, ROWS_MAX, usize::MAX);
        for seq in 1..=100 {
            ring.push(entry(seq, u8::try_from(seq).unwrap(), Op::Delete));
            assert_eq!(ring.left.len(), ring.entries.len());
        }
        assert_eq!(ring.entries.len(), ROWS_MAX);
    }

    fn entry(seq: i64, event: u8, op: Op) -> Entry {
        let row = FeedRow {
            seq: Seq(seq),
            op,
            event_id: EventId::from_bytes([event; 32]),
            topic_id: TopicId::global(),
            prior: Vec::new(),
            kind: Kind(1),
            pubkey: Pubkey::from_bytes([0; 32]),
            created_at: UnixSeconds(0),
            ingested_at: UnixMillis(0),
            effective_key: None,
            reason: (op == Op::Delete).then_some(Reason::Capacity),
            source: Source::Node,
            via: None,
        };
        Entry { row, body: None }
    }
}
