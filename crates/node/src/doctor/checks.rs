use std::collections::HashSet;

use kukuri_core::{FeedBounds, FeedRow, Record, TopicId, Usage, VersionKey};
use kukuri_event::EventId;
use kukuri_store::Entry;

use super::bodies::{self, Sample};
use super::feed::Fold;
use super::finding::{Finding, Findings, Subject};
use super::found::{self, Question};
use super::records::Effective;
use super::usage::Recount;
use super::versions::Versions;

/// All checks. Takes whole tables in this order: the feed up to the head of `bounds`, records,
/// dedupe, versions, tombstones, topics, the node; each in key order, as `Store::page` gives them.
#[derive(Debug)]
pub struct Checks {
    fold: Fold,
    effective: Effective,
    versions: Versions,
    recount: Recount,
    sample: Sample,
    pub records: u64,
    pub rows: u64,
    pub verified: u64,
    /// What the store is to be asked, of those whose signatures were verified.
    pub questions: Vec<Question>,
    pub findings: Findings,
}

/// What changed while the tables were read: it was seen partly before and partly after.
#[derive(Debug, Default)]
pub struct Moved {
    events: HashSet<EventId>,
    keys: HashSet<VersionKey>,
    topics: HashSet<TopicId>,
}

impl Checks {
    /// `total` is about how many events there are.
    pub fn new(bounds: FeedBounds, wanted: u64, total: u64, offset: u64) -> Self {
        Self {
            fold: Fold::new(bounds),
            effective: Effective::default(),
            versions: Versions::default(),
            recount: Recount::default(),
            sample: Sample::new(wanted, total, offset),
            records: 0,
            rows: 0,
            verified: 0,
            questions: Vec::new(),
            findings: Findings::default(),
        }
    }

    pub fn entry(&mut self, entry: &Entry) {
        let findings = &mut self.findings;
        match entry {
            Entry::Row(row) => {
                self.rows += 1;
                self.fold.row(row, findings);
            }
            Entry::Record(record) => self.record(record),
            Entry::Dedupe(id, dedupe) => self.effective.dedupe(*id, dedupe, findings),
            Entry::Version(key, version) => self.versions.version(key, version, findings),
            Entry::Tombstone(key, _) => self.effective.tombstone(key, findings),
            Entry::Topic(topic, usage) => self.recount.topic(&topic.topic_id, *usage, findings),
            Entry::Node(node) => self.recount.node(node.usage),
        }
    }

    fn record(&mut self, record: &Record) {
        let findings = &mut self.findings;
        bodies::check_text(record, findings);
        if self.sample.picks(self.records) {
            self.verified += 1;
            bodies::check_signature(record, findings);
            self.questions.extend(found::questions(record));
        }
        self.records += 1;
        let id = record.event().id();
        for link in &record.links {
            self.fold.link(id, link, record.is_effective(), findings);
        }
        self.effective.record(record, findings);
        self.versions.record(record, findings);
        self.recount.record(record);
    }

    pub fn rows_end(&mut self) {
        self.fold.rows_end(&mut self.findings);
    }

    pub fn records_end(&mut self) {
        self.fold.links_end(&mut self.findings);
    }

    pub fn dedupe_end(&mut self) {
        self.effective.dedupe_end(&mut self.findings);
    }

    pub fn versions_end(&mut self) {
        self.versions.versions_end(&mut self.findings);
    }

    pub fn topics_end(&mut self) {
        self.recount.topics_end(&mut self.findings);
    }

    pub fn node_end(&mut self) {
        self.recount.node_end(&mut self.findings);
    }
}

impl Moved {
    /// A row that was written after the walk began.
    pub fn row(&mut self, row: &FeedRow) {
        self.events.insert(row.event_id);
        self.topics.insert(row.topic_id.clone());
        self.keys.extend(row.effective_key.clone());
    }

    /// A counter before and after the walk: hidden events leave without a row.
    pub fn usage(&mut self, topic: &TopicId, before: Option<Usage>, after: Option<Usage>) {
        if before != after {
            self.topics.insert(topic.clone());
        }
    }

    pub fn len(&self) -> usize {
        self.events.len() + self.topics.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a finding is about something that stood still.
    pub fn spares(&self, finding: &Finding) -> bool {
        match &finding.subject {
            Subject::Event(id) => !self.events.contains(id),
            Subject::Key(key) => !self.keys.contains(key),
            Subject::Topic(topic) => !self.topics.contains(topic),
            // Its counter moves with every event.
            Subject::Node => self.is_empty(),
            Subject::Row(_) | Subject::Table(_) => true,
        }
    }
}
