//! The counters of each topic and of the node equal a recount.

use std::collections::HashMap;

use kukuri_core::{Record, TopicId, Usage};

use super::finding::{Findings, REBUILD, Subject};

const CHECK: &str = "usage";

#[derive(Debug, Default)]
pub struct Recount {
    topics: HashMap<TopicId, Usage>,
    /// Of all stored events, each once.
    bodies: Usage,
    /// What the node's own counter says; nothing before anything is stored.
    said: Usage,
}

impl Recount {
    pub fn record(&mut self, record: &Record) {
        self.bodies.add(record.bytes());
        for topic in record.topics() {
            match self.topics.get_mut(topic) {
                Some(usage) => usage.add(record.bytes()),
                None => {
                    let usage = Usage { events: 1, bytes: record.bytes() };
                    self.topics.insert(topic.clone(), usage);
                }
            }
        }
    }

    pub fn topic(&mut self, topic: &TopicId, said: Usage, findings: &mut Findings) {
        let counted = self.topics.remove(topic).unwrap_or_default();
        if counted != said {
            let problem = format!(
                "its counter says {} events and {} bytes; there are {} and {}",
                said.events, said.bytes, counted.events, counted.bytes
            );
            findings.add(CHECK, Subject::Topic(topic.clone()), problem, REBUILD);
        }
    }

    pub fn node(&mut self, said: Usage) {
        self.said = said;
    }

    pub fn node_end(&self, findings: &mut Findings) {
        let (said, counted) = (self.said, self.bodies);
        if counted != said {
            let problem = format!(
                "its counter says {} events and {} bytes; there are {} and {}",
                said.events, said.bytes, counted.events, counted.bytes
            );
            findings.add(CHECK, Subject::Node, problem, REBUILD);
        }
    }

    pub fn topics_end(&self, findings: &mut Findings) {
        for (topic, usage) in &self.topics {
            let problem = format!("{} events are linked to it, and it is not known", usage.events);
            findings.add(CHECK, Subject::Topic(topic.clone()), problem, REBUILD);
        }
    }
}
