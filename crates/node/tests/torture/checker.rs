//! The one checker: what the outside world knows of a run, held against what is stored.

mod controls;
mod dump;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kukuri_core::{FeedRow, Seq, TopicId};
use kukuri_event::{Class, Event, EventId};
use kukuri_store::Store;
use kukuri_testkit::audit::{Links, audit};
use kukuri_testkit::spec::{Effective, Spec};
use serde::Deserialize;

use crate::load::{Line, Load, NOW};
pub use dump::Dump;

/// A line of `import --report`.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    pub line: usize,
    pub id: Option<String>,
    pub ok: bool,
    pub message: String,
}

impl Answer {
    /// An error says nothing about what became of the event; it may be there or not.
    fn is_error(&self) -> bool {
        self.message.starts_with("error:")
    }
}

/// What is wrong. A run with a finding has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The store cannot be opened or read.
    Unreadable(String),
    /// Acknowledged, and not there.
    Lost(EventId),
    /// There, and never sent.
    Phantom(EventId),
    /// Stored with another text than was sent.
    Altered(EventId),
    /// Refused, though no rule says so.
    Refused(String),
    /// The feed has a hole, or reads say something else than the table.
    Feed(String),
    /// What is visible is not what the rules make of what arrived.
    View(EventId),
    /// The tables contradict each other.
    Audit(String),
    /// `doctor` is not content, or the program ended in a way it must not end.
    Program(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Everything that was sent to a store so far, by whatever program, and what it answered.
pub struct History<'a> {
    load: &'a Load,
    offered: BTreeSet<EventId>,
    /// With `ok: true`.
    accepted: BTreeSet<EventId>,
    /// With either, but not with an error.
    answered: BTreeSet<EventId>,
    /// Rows that a reader of the feed was given, from the first on.
    shown: Vec<FeedRow>,
    findings: Vec<Finding>,
}

impl<'a> History<'a> {
    pub fn new(load: &'a Load) -> Self {
        Self {
            load,
            offered: BTreeSet::new(),
            accepted: BTreeSet::new(),
            answered: BTreeSet::new(),
            shown: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// These lines may have reached the program.
    pub fn offer(&mut self, lines: &[Line]) {
        self.offered.extend(lines.iter().map(|line| line.id));
    }

    /// What the program said to these lines, of which the first is its line 1.
    pub fn answer(&mut self, lines: &[Line], answers: &[Answer]) {
        for answer in answers {
            let line = &lines[answer.line - 1];
            if answer.id.as_deref() != Some(line.id.to_hex().as_str()) {
                let what = format!("an answer to another event: {answer:?}");
                self.findings.push(Finding::Program(what));
            }
            if answer.is_error() {
                continue;
            }
            self.answered.insert(line.id);
            if answer.ok {
                self.accepted.insert(line.id);
            } else if answer.message != "blocked: deleted by its author" {
                self.findings.push(Finding::Refused(format!("{answer:?}")));
            }
        }
    }

    /// A reader of the feed was given these rows, after those it was given before.
    pub fn show(&mut self, rows: Vec<FeedRow>) {
        self.shown.extend(rows);
    }

    pub fn last_shown(&self) -> Seq {
        self.shown.last().map_or(Seq::ZERO, |row| row.seq)
    }

    /// Something was wrong already while the history was made.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub fn accepted(&self) -> usize {
        self.accepted.len()
    }

    /// Events of the load that have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.load.lines.iter().filter(|line| !self.answered.contains(&line.id)).count()
    }

    /// Everything that is wrong with the store, given this history.
    pub async fn check(&self, store: &dyn Store) -> Vec<Finding> {
        let mut findings = self.findings.clone();
        match Dump::read(store).await {
            Ok(dump) => self.compare(&dump, &mut findings),
            Err(finding) => findings.push(finding),
        }
        findings
    }

    fn compare(&self, dump: &Dump, findings: &mut Vec<Finding>) {
        if let Err(faults) = audit(&dump.entries, kukuri_core::Seq::ZERO) {
            findings.extend(faults.lines().map(|fault| Finding::Audit(fault.to_owned())));
        }
        findings.extend(dump.faults());
        let mut rows = dump.rows();
        if let Some(row) = self.shown.iter().find(|row| rows.next() != Some(row)) {
            let what = format!("row {} was shown, and is gone or another one", row.seq);
            findings.push(Finding::Feed(what));
        }
        let remembered: BTreeSet<EventId> = dump.dedupe().collect();
        let lost = self.accepted.difference(&remembered).filter(|id| self.is_kept(id));
        findings.extend(lost.map(|id| Finding::Lost(*id)));
        let known = remembered.iter().copied().chain(dump.records().map(|r| r.event().id()));
        let phantoms: BTreeSet<EventId> = known.filter(|id| !self.offered.contains(id)).collect();
        findings.extend(phantoms.into_iter().map(Finding::Phantom));
        self.compare_texts(dump, findings);
        self.compare_view(dump, findings);
    }

    /// Ephemeral events are acknowledged and never stored.
    fn is_kept(&self, id: &EventId) -> bool {
        self.event(id).is_some_and(|event| event.kind().class() != Class::Ephemeral)
    }

    fn event(&self, id: &EventId) -> Option<Event> {
        Event::parse(self.load.text(id)?).ok()
    }

    fn compare_texts(&self, dump: &Dump, findings: &mut Vec<Finding>) {
        for record in dump.records() {
            let id = record.event().id();
            let sent = self.event(&id).map(|event| event.to_json());
            if sent.is_some_and(|sent| sent != record.body.json()) {
                findings.push(Finding::Altered(id));
            }
        }
    }

    /// What arrived is what was answered, what dedupe remembers and what won a key: a version that
    /// its author had deleted before it came leaves nothing but its mark.
    fn compare_view(&self, dump: &Dump, findings: &mut Vec<Finding>) {
        let stored = dump.dedupe().chain(dump.marks());
        let arrived: BTreeSet<EventId> = self.answered.iter().copied().chain(stored).collect();
        let events = arrived.iter().filter_map(|id| self.load.text(id)).collect();
        let handled = self.load.topics.iter().map(ToString::to_string).collect();
        let wanted = links(Spec { events, now: NOW.0, handled }.effective());
        let found = dump.effective();
        let ids: BTreeSet<&EventId> = wanted.keys().chain(found.keys()).collect();
        let differ = ids.into_iter().filter(|id| wanted.get(id) != found.get(id));
        findings.extend(differ.map(|id| Finding::View(*id)));
    }
}

fn links(effective: Effective) -> Links {
    let id =
        |text: String| EventId::parse(&text).expect("the spec speaks of events that were sent");
    let topic =
        |text: String| TopicId::parse(&text).expect("the spec speaks of topics of the load");
    let links = effective.into_iter().map(|(event, topics)| {
        let topics = topics.into_iter().map(topic).collect();
        (id(event), topics)
    });
    links.collect::<BTreeMap<_, _>>()
}
