//! What happens to a chunk before the lane: screened, looked up, verified.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use kukuri_core::admission::{Age, Door, Rate, Screened, Topicless, Verdict, screen};
use kukuri_core::{
    Act, Facts, Known, Limits, Outcome, ReadSet, Rejection, Source, TopicId, View, known,
};
use kukuri_event::{Event, EventId};
use kukuri_store::{Clock, Store};
use tokio::runtime::Handle;

use super::reader::Chunk;

/// How long a list of the carried topics is good for. The lane decides by the list of its moment, so
/// an old one costs a refusal that is one second late and nothing else.
const HANDLED_AGE_MAX: Duration = Duration::from_secs(1);
/// One in so many events is looked up first, and all of them only if at least half of those are
/// known: a lookup costs half a signature check, so it must spare more than it costs. New files hold
/// no known events, and files that are imported again hold hardly any others.
const PROBE_STRIDE: usize = 32;

/// What is known of one line before the lane has answered.
pub struct CheckedLine {
    pub number: u64,
    pub id: Option<EventId>,
    /// `None` while it is in the lane.
    pub outcome: Option<Outcome>,
}

/// A chunk on its way to the lane: the acts of those lines that have no outcome yet, in order.
pub struct CheckedChunk {
    pub lines: Vec<CheckedLine>,
    pub acts: Vec<Act>,
    /// Ids that came again and need no lane.
    pub sighted: Vec<EventId>,
    pub bytes: u64,
    pub last_line: u64,
}

/// What lines are judged by.
pub struct Terms {
    /// Those of every other door, as `topicless` is.
    pub limits: Limits,
    pub topicless: Topicless,
    pub age: Age,
    pub source: Source,
}

pub struct Checker {
    store: Arc<dyn Store>,
    clock: Clock,
    terms: Terms,
    handled: Mutex<Handled>,
}

/// The topics the node carries, as of a moment.
#[derive(Clone)]
struct Handled {
    topics: Arc<HashSet<TopicId>>,
    read_at: Instant,
}

impl Checker {
    pub async fn new(store: Arc<dyn Store>, clock: Clock, terms: Terms) -> anyhow::Result<Self> {
        let topics = carried(&*store).await.context("cannot read the topics")?;
        let handled = Handled { topics: Arc::new(topics), read_at: Instant::now() };
        let handled = Mutex::new(handled);
        Ok(Self { store, clock, terms, handled })
    }

    /// Runs every check on a chunk. Blocks, and keeps a core busy.
    pub fn check(&self, runtime: &Handle, chunk: Chunk) -> CheckedChunk {
        let handled = self.handled(runtime);
        let door = Door {
            limits: &self.terms.limits,
            topicless: self.terms.topicless,
            age: self.terms.age,
            now: (self.clock)(),
            handles: &|topic| handled.contains(topic),
        };
        let mut lines = Vec::with_capacity(chunk.lines.len());
        let mut screened = Vec::with_capacity(chunk.lines.len());
        for line in chunk.lines {
            let text = line.text.as_deref();
            let passed =
                text.map_err(Rejection::clone).and_then(|t| screen(t, Rate::Within, &door));
            let id = match &passed {
                Ok(event) => Some(event.event().id()),
                // Worth the parsing: a refusal with an id can be looked for.
                Err(_) => text.ok().and_then(|t| Event::parse(t).ok()).map(|event| event.id()),
            };
            let (event, outcome) = split(passed);
            lines.push(CheckedLine { number: line.number, id, outcome });
            screened.push(event);
        }
        let mut checked = CheckedChunk {
            lines,
            acts: Vec::new(),
            sighted: Vec::new(),
            bytes: chunk.bytes,
            last_line: chunk.last_line,
        };
        self.look_up(runtime, &handled, &screened, &mut checked);
        verify(screened, self.terms.source, &mut checked);
        checked
    }

    /// Answers what is known already, so that it costs no signature check.
    fn look_up(
        &self,
        runtime: &Handle,
        handled: &HashSet<TopicId>,
        screened: &[Option<Screened>],
        checked: &mut CheckedChunk,
    ) {
        let events = || screened.iter().flatten();
        let Some(probe) = self.facts(runtime, events().step_by(PROBE_STRIDE)) else { return };
        let known_ids = probe.dedupe.values().flatten().count();
        if 2 * known_ids < probe.dedupe.len() {
            return;
        }
        let Some(facts) = self.facts(runtime, events()) else { return };
        let view = View::new(facts);
        for (event, line) in screened.iter().zip(&mut checked.lines) {
            let Some(event) = event else { continue };
            let topics = event.topics().iter().filter(|topic| handled.contains(*topic));
            let topics: Vec<TopicId> = topics.cloned().collect();
            if let Known::Answer(outcome) = known(&view, event.event(), &topics) {
                if matches!(outcome, Outcome::Duplicate(_)) {
                    checked.sighted.push(event.event().id());
                }
                line.outcome = Some(outcome);
            }
        }
    }

    /// `None` when the store has no answer now: then the lane, which has patience, finds out.
    fn facts<'a>(
        &self,
        runtime: &Handle,
        events: impl Iterator<Item = &'a Screened>,
    ) -> Option<Facts> {
        let mut needs = ReadSet::default();
        events.for_each(|event| needs.add_lookup(event.event()));
        if needs.is_empty() {
            return None;
        }
        runtime.block_on(self.store.facts(needs)).ok()
    }

    fn handled(&self, runtime: &Handle) -> Arc<HashSet<TopicId>> {
        let lock = || self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = lock().clone();
        if now.read_at.elapsed() < HANDLED_AGE_MAX {
            return now.topics;
        }
        match runtime.block_on(carried(&*self.store)) {
            Ok(topics) => {
                let topics = Arc::new(topics);
                *lock() = Handled { topics: Arc::clone(&topics), read_at: Instant::now() };
                topics
            }
            // A store that is away now was asked before.
            Err(_) => now.topics,
        }
    }
}

fn split(passed: Result<Screened, Rejection>) -> (Option<Screened>, Option<Outcome>) {
    match passed {
        Ok(event) => (Some(event), None),
        Err(rejection) => (None, Some(Outcome::Refused(rejection))),
    }
}

/// Verifies what has no outcome yet; what passes becomes an act.
fn verify(screened: Vec<Option<Screened>>, source: Source, checked: &mut CheckedChunk) {
    let waiting = screened.into_iter().zip(&mut checked.lines);
    for (event, line) in waiting.filter(|(_, line)| line.outcome.is_none()) {
        let event = event.expect("a line without an outcome passed the screen");
        let verdict = verdict(event.event(), source);
        let admitted = event.verify().and_then(|event| event.admit(verdict, source, None));
        match admitted {
            Ok(admitted) => checked.acts.push(Act::Publish(admitted)),
            Err(rejection) => line.outcome = Some(Outcome::Refused(rejection)),
        }
    }
}

/// A protected event (NIP-70) is taken from its author alone, and another node is not its author. What the
/// operator has in a file is the operator's business.
fn verdict(event: &Event, source: Source) -> Verdict {
    let protected = event.tags().iter().any(|tag| tag.name() == "-");
    if protected && source != Source::Import { Verdict::Restricted } else { Verdict::Admit }
}

async fn carried(store: &dyn Store) -> Result<HashSet<TopicId>, kukuri_store::StoreError> {
    let topics = store.topics().await?.into_iter().filter(|(topic, _)| topic.enabled);
    Ok(topics.map(|(topic, _)| topic.topic_id).collect())
}
