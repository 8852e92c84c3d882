//! What a subscription is given that comes late. A row says what was so when it was written; the
//! event may have left topics since. So a row is given late only if the event is still there and
//! matches with the topics it has now, whether the row comes from the ring or from the feed.

use std::sync::Arc;

use kukuri_core::{Cursor, FeedRow, Op, Record, Seq, TopicId};
use kukuri_event::UnixSeconds;
use kukuri_feed::FeedError;

use crate::fanout::Shared;
use crate::offer::{Offered, offer};
use crate::pump;
use crate::ring::Entry;
use crate::{Full, Mailbox, Subscription};

/// How many rows a subscription that has missed some is given at a time: no more than fit into what
/// may wait for a connection, mostly, since what does not is read again.
pub(crate) const LATE_ROWS_MAX: usize = 256;

/// A subscription that is given what it has missed.
pub(crate) struct Late<'a> {
    subscription: &'a Subscription,
    mailbox: &'a Arc<dyn Mailbox>,
    /// Everything up to here was offered.
    cursor: Cursor,
    now: UnixSeconds,
    taken: u64,
}

/// A row that was missed.
pub(crate) struct LateRow {
    pub entry: Arc<Entry>,
    /// None if the event has left no topic since the row.
    pub standing: Option<Standing>,
}

/// What has become of an event.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// Rows before this one are of an earlier life: the event was purged, and published again.
    pub first_row: Seq,
    /// The topics in which it is visible now. None are left of an event that is gone.
    pub links: Arc<[TopicId]>,
}

/// However it ends, what was delivered is sent.
impl Drop for Late<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.mailbox.send();
        }
    }
}

impl<'a> Late<'a> {
    pub fn new(
        subscription: &'a Subscription,
        mailbox: &'a Arc<dyn Mailbox>,
        cursor: Cursor,
        now: UnixSeconds,
    ) -> Self {
        Self { subscription, mailbox, cursor, now, taken: 0 }
    }

    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// How many rows were delivered.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn is_open(&self) -> bool {
        self.mailbox.is_open(self.subscription.key)
    }

    pub fn send(&self) {
        self.mailbox.send();
    }

    /// What is kept of it when it is live.
    pub fn parties(&self) -> (Subscription, Arc<dyn Mailbox>) {
        (self.subscription.clone(), Arc::clone(self.mailbox))
    }

    /// The next rows of the feed. Events are read only of rows that can be for this subscription, and
    /// as they are now, whatever was seen lately.
    pub async fn read(&self, shared: &Shared) -> Result<Vec<LateRow>, FeedError> {
        let rows = shared.store.feed(self.cursor, LATE_ROWS_MAX).await?;
        let wanted = rows.iter().filter(|row| self.subscription.may_take(row));
        let records = pump::effective(shared, wanted.map(|row| row.event_id).collect()).await?;
        let late = |row: FeedRow| {
            let record = records.get(&row.event_id).filter(|_| row.op == Op::Upsert);
            let standing = record.map(Standing::of);
            let body = record.map(|record| Arc::clone(&record.body));
            LateRow { entry: Arc::new(Entry { row, body }), standing }
        };
        Ok(rows.into_iter().map(late).collect())
    }

    /// Offers rows in order, up to the first one that there is no room for.
    pub fn offer(&mut self, rows: &[LateRow]) -> Result<(), Full> {
        for LateRow { entry, standing } in rows {
            if standing.as_ref().is_none_or(|standing| self.still_takes(entry, standing)) {
                let offered = offer(self.subscription, self.mailbox, entry, self.now)?;
                self.taken += u64::from(matches!(offered, Offered::Taken(_)));
            }
            self.cursor.seq = entry.row.seq;
        }
        Ok(())
    }

    /// Whether a row that made its event new to the subscription is still worth telling. The topic of
    /// the row need not be among those that are left: the rows of the others are not taken by who
    /// took this one.
    fn still_takes(&self, entry: &Entry, standing: &Standing) -> bool {
        entry.row.seq >= standing.first_row
            && !standing.links.is_empty()
            && entry
                .body
                .as_ref()
                .is_some_and(|body| self.subscription.wants(body.event(), &standing.links))
    }
}

impl Standing {
    fn of(record: &Record) -> Self {
        Self { first_row: record.seq, links: record.topics().cloned().collect() }
    }
}
