use std::fmt;

use kukuri_core::{Seq, TopicId, VersionKey};
use kukuri_event::EventId;

/// Something that cannot be, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The short name of the check.
    pub check: &'static str,
    pub subject: Subject,
    pub problem: String,
    pub advice: &'static str,
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Row(Seq),
    Event(EventId),
    Key(VersionKey),
    Topic(TopicId),
    Node,
    Table(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(seq) => write!(f, "feed row {seq}"),
            Self::Event(id) => write!(f, "event {id}"),
            // The `d` of a key is the author's text.
            Self::Key(key) => write!(f, "key {:?}", key.to_text()),
            Self::Topic(topic) => write!(f, "topic {topic}"),
            Self::Node => f.write_str("the node"),
            Self::Table(name) => write!(f, "table {name}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, subject, problem, advice } = self;
        write!(f, "{check}: {subject}: {problem}; {advice}")
    }
}

/// The events are whole, and what was derived from them is not: deriving it anew is enough.
pub const REBUILD: &str = "make a new store: kukuri-node --data NEW topic add every topic that kukuri-node topic list names, then kukuri-node export | kukuri-node --data NEW import --any-age -, and keep the old store until the counts agree";

/// Something outside the node has changed the data.
pub const RESTORE: &str = "stop the node, keep a copy of the data, and restore the last backup";

/// Findings, up to a number that fits into memory.
#[derive(Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    dropped: u64,
}

const KEPT_MAX: usize = 100_000;

impl Findings {
    pub fn add(
        &mut self,
        check: &'static str,
        subject: Subject,
        problem: impl Into<String>,
        advice: &'static str,
    ) {
        if self.kept.len() >= KEPT_MAX {
            self.dropped += 1;
            return;
        }
        self.kept.push(Finding { check, subject, problem: problem.into(), advice });
    }

    /// The findings, and how many more there were.
    pub fn into_parts(self) -> (Vec<Finding>, u64) {
        (self.kept, self.dropped)
    }
}
