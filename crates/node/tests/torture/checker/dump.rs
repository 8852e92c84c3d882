//! Everything a store holds.

use std::collections::BTreeSet;

use kukuri_core::{FeedBounds, FeedRow, Record, Seq};
use kukuri_event::EventId;
use kukuri_store::{Entry, FeedError, Place, Store, StoreError};
use kukuri_testkit::audit::{self, Links};

use super::Finding;

const PAGE: usize = 2_000;

pub struct Dump {
    pub entries: Vec<Entry>,
    pub bounds: FeedBounds,
    /// What a reader of the feed is given.
    read: Vec<FeedRow>,
}

impl Dump {
    /// Nobody writes meanwhile.
    pub async fn read(store: &dyn Store) -> Result<Dump, Finding> {
        let unreadable = |error: StoreError| Finding::Unreadable(error.to_string());
        let bounds = store.bounds().await.map_err(unreadable)?;
        let mut entries = Vec::new();
        for beginning in Place::ALL {
            let mut place = beginning;
            loop {
                let page = store.page(place, PAGE).await.map_err(unreadable)?;
                let Some(last) = page.last() else { break };
                place = last.place();
                entries.extend(page);
            }
        }
        let read = match feed(store, bounds).await {
            Ok(rows) => rows,
            Err(FeedError::Store(error)) => return Err(unreadable(error)),
            Err(error) => return Err(Finding::Feed(error.to_string())),
        };
        Ok(Dump { entries, bounds, read })
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Record(record) => Some(record),
            _ => None,
        })
    }

    pub fn dedupe(&self) -> impl Iterator<Item = EventId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Dedupe(id, _) => Some(*id),
            _ => None,
        })
    }

    /// The events that won their keys.
    pub fn marks(&self) -> impl Iterator<Item = EventId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Version(_, version) => version.mark.map(|mark| mark.event_id),
            _ => None,
        })
    }

    pub fn effective(&self) -> Links {
        audit::effective(&self.entries)
    }

    pub fn rows(&self) -> impl Iterator<Item = &FeedRow> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Row(row) => Some(row),
            _ => None,
        })
    }

    /// What the audit of the tables does not look at: nothing is purged in these tests, so the feed
    /// begins at its beginning, and every event that it ever named is still stored.
    pub fn faults(&self) -> Vec<Finding> {
        let mut faults = Vec::new();
        let last = self.rows().last().map_or(Seq::ZERO, |row| row.seq);
        if self.bounds.floor != Seq::ZERO || self.bounds.head != last {
            let bounds = self.bounds;
            faults.push(Finding::Feed(format!("it ends at {last} and says {bounds:?}")));
        }
        if !self.rows().eq(&self.read) {
            faults.push(Finding::Feed("readers are given other rows than are stored".to_owned()));
        }
        let stored: BTreeSet<EventId> = self.records().map(|record| record.event().id()).collect();
        let gone = self.rows().filter(|row| !stored.contains(&row.event_id));
        faults.extend(gone.map(|row| {
            Finding::Feed(format!("row {} is of {}, which is not stored", row.seq, row.event_id))
        }));
        faults
    }
}

async fn feed(store: &dyn Store, bounds: FeedBounds) -> Result<Vec<FeedRow>, FeedError> {
    let mut rows = Vec::new();
    let mut cursor = bounds.start();
    loop {
        let page = store.feed(cursor, PAGE).await?;
        let Some(last) = page.last() else { return Ok(rows) };
        cursor.seq = last.seq;
        rows.extend(page);
    }
}
