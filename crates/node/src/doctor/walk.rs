//! Bringing the checks what a store holds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use kukuri_core::{FeedBounds, Seq, TopicId, Usage};
use kukuri_store::{Entry, Place, Store, StoreError};

use super::checks::{Checks, Moved};
use super::finding::{Finding, RESTORE, Subject};
use super::found;
use crate::progress;

const PAGE_ENTRIES_MAX: usize = 500;

/// What a walk came to.
pub struct Examined {
    pub findings: Vec<Finding>,
    /// Findings that were more than could be kept.
    pub dropped: u64,
    pub rows: u64,
    pub records: u64,
    pub verified: u64,
    /// Events and topics that were not judged.
    pub moved: usize,
}

pub struct Walk<'a> {
    store: &'a dyn Store,
    sample: u64,
    offset: u64,
}

type UsageByTopic = BTreeMap<TopicId, Usage>;
/// A table's name, its beginning, about how many entries it has, and what to check after the last.
type Table = (&'static str, Place, u64, fn(&mut Checks));

impl<'a> Walk<'a> {
    /// `sample` signatures are verified, and their events looked for by all that they are found by; `offset` says which.
    pub fn new(store: &'a dyn Store, sample: u64, offset: u64) -> Self {
        Self { store, sample, offset }
    }

    pub async fn run(&self) -> anyhow::Result<Examined> {
        let bounds = self.bounds().await?;
        let before = self.usage().await?;
        let total = before.values().map(|usage| usage.events).sum();
        let mut checks = Checks::new(bounds, self.sample, total, self.offset);
        let rows = (bounds.head.0 - bounds.floor.0).unsigned_abs();
        let tables: [Table; 7] = [
            ("feed rows", Place::Feed(None), rows, Checks::rows_end),
            ("events", Place::Records(None), total, Checks::records_end),
            ("dedupe rows", Place::Dedupe(None), total, Checks::dedupe_end),
            ("versions", Place::Versions(None), 0, Checks::versions_end),
            ("tombstones", Place::Tombstones(None), 0, |_| ()),
            ("topics", Place::Topics(None), before.len() as u64, Checks::topics_end),
            ("the node", Place::Node(None), 1, Checks::node_end),
        ];
        for (name, place, entries, end) in tables {
            let bar = if entries > 0 { progress::count(entries) } else { progress::spinner() };
            bar.set_message(name);
            let walked = self.table(place, bounds.head, &mut checks, &bar).await;
            bar.finish_and_clear();
            match walked {
                Ok(()) => end(&mut checks),
                // What cannot be read is a finding, too; comparing the rest with it would only give
                // false ones.
                Err(StoreError::Corrupt(text)) => {
                    checks.findings.add("storage", Subject::Table(name), text, RESTORE);
                    break;
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
            }
        }
        let moved = self.moved(bounds, &before).await?;
        let Checks { rows, records, verified, findings, .. } = checks;
        let (mut findings, dropped) = findings.into_parts();
        findings.retain(|finding| moved.spares(finding));
        Ok(Examined { findings, dropped, rows, records, verified, moved: moved.len() })
    }

    async fn table(
        &self,
        mut place: Place,
        head: Seq,
        checks: &mut Checks,
        bar: &ProgressBar,
    ) -> Result<(), StoreError> {
        loop {
            let page = self.store.page(place, PAGE_ENTRIES_MAX).await?;
            // Rows after the head are for the end of the walk.
            let later = |entry: &Entry| matches!(entry, Entry::Row(row) if row.seq > head);
            let seen = page.iter().take_while(|entry| !later(entry));
            let count = seen.clone().count();
            // Checking is work for a core, and nothing else waits on this task.
            seen.for_each(|entry| checks.entry(entry));
            for question in checks.questions.drain(..) {
                found::ask(self.store, question, &mut checks.findings).await?;
            }
            bar.inc(count as u64);
            match page.last() {
                Some(last) if count == page.len() => place = last.place(),
                _ => return Ok(()),
            }
        }
    }

    /// What changed since `bounds` were read.
    async fn moved(&self, bounds: FeedBounds, before: &UsageByTopic) -> anyhow::Result<Moved> {
        let mut moved = Moved::default();
        let mut place = Place::Feed(Some(bounds.head));
        loop {
            let page = self.store.page(place, PAGE_ENTRIES_MAX).await?;
            let Some(last) = page.last() else { break };
            place = last.place();
            for entry in &page {
                if let Entry::Row(row) = entry {
                    moved.row(row);
                }
            }
        }
        let after = self.usage().await?;
        let topics: BTreeSet<&TopicId> = before.keys().chain(after.keys()).collect();
        for topic in topics {
            moved.usage(topic, before.get(topic).copied(), after.get(topic).copied());
        }
        let now = self.bounds().await?;
        if now.epoch != bounds.epoch || now.floor != bounds.floor {
            bail!("the feed was cut or replaced while it was checked: run doctor again");
        }
        Ok(moved)
    }

    async fn bounds(&self) -> anyhow::Result<FeedBounds> {
        self.store.bounds().await.context("cannot read the feed's bounds")
    }

    async fn usage(&self) -> anyhow::Result<UsageByTopic> {
        let topics = self.store.topics().await.context("cannot read the topics")?;
        Ok(topics.into_iter().map(|(topic, usage)| (topic.topic_id, usage)).collect())
    }
}
