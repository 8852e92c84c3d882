//! The feed: gapless, and folded into the links that it says are visible.

use std::collections::HashMap;

use kukuri_core::{FeedBounds, FeedRow, Link, Op, Seq, TopicId};
use kukuri_event::EventId;

use super::finding::{Findings, REBUILD, RESTORE, Subject};

const CHECK: &str = "feed";

/// Topics by small numbers: a fold holds millions of links.
#[derive(Debug, Default)]
pub struct Topics {
    numbers: HashMap<TopicId, u32>,
    ids: Vec<TopicId>,
}

impl Topics {
    pub fn number(&mut self, topic: &TopicId) -> u32 {
        if let Some(number) = self.numbers.get(topic) {
            return *number;
        }
        let number = u32::try_from(self.ids.len()).expect("a node has fewer than 2^32 topics");
        self.numbers.insert(topic.clone(), number);
        self.ids.push(topic.clone());
        number
    }
}

/// What the feed says of one event in one topic.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The last row that made it visible, if that row is kept.
    upsert: Option<Seq>,
    visible: bool,
}

/// The feed up to a head, folded.
#[derive(Debug)]
pub struct Fold {
    bounds: FeedBounds,
    last: Seq,
    topics: Topics,
    told: HashMap<(EventId, u32), Told>,
}

impl Fold {
    pub fn new(bounds: FeedBounds) -> Self {
        Self { last: bounds.floor, bounds, topics: Topics::default(), told: HashMap::new() }
    }

    /// Takes the next row.
    pub fn row(&mut self, row: &FeedRow, findings: &mut Findings) {
        if row.seq != self.last.next() {
            let problem = format!("it follows row {}: the feed has a hole", self.last);
            findings.add(CHECK, Subject::Row(row.seq), problem, RESTORE);
        }
        self.last = row.seq;
        let topic = self.topics.number(&row.topic_id);
        let told = self.told.get(&(row.event_id, topic)).copied();
        let visible = match told {
            Some(told) => Some(told.visible),
            // Below the floor there may have been rows that are not kept.
            None => (self.bounds.floor == Seq::ZERO).then_some(false),
        };
        let now = row.op == Op::Upsert;
        if visible == Some(now) {
            let problem = format!("{} of event {} changes nothing", row.op.as_str(), row.event_id);
            findings.add(CHECK, Subject::Row(row.seq), problem, RESTORE);
        }
        let upsert = if now { Some(row.seq) } else { told.and_then(|told| told.upsert) };
        self.told.insert((row.event_id, topic), Told { upsert, visible: now });
    }

    /// Called after the last row.
    pub fn rows_end(&self, findings: &mut Findings) {
        if self.last != self.bounds.head {
            let problem = format!("it is the last one, but the head is {}", self.bounds.head);
            findings.add(CHECK, Subject::Row(self.last), problem, RESTORE);
        }
    }

    /// Compares what the feed says with a link of a stored event, and forgets what it says.
    pub fn link(&mut self, id: EventId, link: &Link, visible: bool, findings: &mut Findings) {
        let topic = self.topics.number(&link.topic);
        let told = self.told.remove(&(id, topic));
        if link.seq > self.bounds.head {
            // Written after the walk began.
            return;
        }
        let upsert = told.and_then(|told| told.upsert);
        let kept = link.seq > self.bounds.floor;
        if upsert != Some(link.seq) && (kept || upsert.is_some()) {
            let problem = format!(
                "its link to {} names row {}, which did not make it visible there",
                link.topic, link.seq
            );
            findings.add(CHECK, Subject::Event(id), problem, REBUILD);
            return;
        }
        let said = told.map_or(visible, |told| told.visible);
        if said != visible {
            let (is, was) = if visible { ("visible", "hidden") } else { ("hidden", "visible") };
            let problem = format!("it is {is} in {}, and the feed says {was}", link.topic);
            findings.add(CHECK, Subject::Event(id), problem, REBUILD);
        }
    }

    /// Called after the last stored event: nothing may be left that the feed says is visible.
    pub fn links_end(&mut self, findings: &mut Findings) {
        for ((id, topic), _) in self.told.drain().filter(|(_, told)| told.visible) {
            let topic = self.topics.ids.get(topic as usize).map_or("", |topic| topic.as_str());
            let problem =
                format!("the feed says it is visible in {topic}, and it is not stored there");
            findings.add(CHECK, Subject::Event(id), problem, REBUILD);
        }
    }
}
