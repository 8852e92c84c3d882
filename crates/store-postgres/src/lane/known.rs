//! What a session knows of the store without asking, because it wrote last.
//!
//! It is true at one revision and at no other. Whoever goes by it makes the revision a condition of what it
//! writes, so that a batch decided on what has changed since is not written.

use std::collections::BTreeMap;

use kukuri_core::{
    Act, Command, Decision, Facts, FeedBounds, NodeKey, NodeState, ReadSet, TopicId, UnlinkReason,
    Usage,
};
use kukuri_event::{Class, Kind};

use crate::bounds::Bounds;
use crate::facts::{Loaded, fill_in};
use crate::subscriptions::Topics;

/// Of how many topics usage is remembered at most; with more, of those of the last batch that looked.
pub(super) const TOPICS_MAX: usize = 4_096;

pub(super) struct Known {
    revision: i64,
    bounds: Bounds,
    usage: BTreeMap<TopicId, Option<Usage>>,
    node: Option<Option<NodeState>>,
}

impl Known {
    /// What was loaded, and what was known before if nobody has written since. Of topics that nobody
    /// subscribed to there is nothing to know.
    pub fn of(loaded: &Loaded, before: Option<Self>) -> Self {
        let Loaded { facts, bounds, revision } = loaded;
        let carried = facts.topics.iter().filter(|(_, row)| row.is_some());
        let usage =
            carried.filter_map(|(topic, _)| Some((topic.clone(), *facts.usage.get(topic)?)));
        let mut usage: BTreeMap<_, _> = usage.collect();
        let mut node = facts.node.get(&NodeKey).cloned();
        if let Some(mut before) = before.filter(|before| before.revision == *revision) {
            before.usage.retain(|topic, _| !usage.contains_key(topic));
            if before.usage.len() + usage.len() <= TOPICS_MAX {
                usage.append(&mut before.usage);
            }
            node = node.or(before.node);
        }
        Self { revision: *revision, bounds: *bounds, usage, node }
    }

    pub fn revision(&self) -> i64 {
        self.revision
    }

    pub fn feed(&self) -> FeedBounds {
        self.bounds.feed
    }

    #[cfg(test)]
    pub fn topics(&self) -> usize {
        self.usage.len()
    }

    /// What is known once a decision that was made by it is written. Nothing, if it changed what is read
    /// otherwise: those are few.
    pub fn after(mut self, decision: &Decision) -> Option<Self> {
        if !decision.writes.topics.is_empty() || decision.floor.is_some() {
            return None;
        }
        self.revision += 1;
        self.bounds.feed.head = decision.head();
        let usage = decision.writes.usage.iter();
        self.usage.extend(usage.map(|change| (change.key.clone(), change.after)));
        if let Some(change) = decision.writes.node.first() {
            self.node = Some(change.after.clone());
        }
        Some(self)
    }

    /// What a batch goes by, if its events are all new; `None` if that is not all known.
    pub fn facts(&self, needs: &ReadSet, topics: &Topics) -> Option<Facts> {
        let mut facts = Facts::absent(needs);
        let subscriptions = topics.subscriptions.remembered(self.bounds.topics_version)?;
        fill_in(&mut facts, &subscriptions);
        for (topic, usage) in &mut facts.usage {
            // A topic that nobody subscribed to holds nothing.
            if subscriptions.contains_key(topic) {
                *usage = *self.usage.get(topic)?;
            }
        }
        for node in facts.node.values_mut() {
            *node = self.node.clone()?;
        }
        Some(facts)
    }
}

/// Whether a batch may well have nothing but events that are new and touch no other event, and events that leave.
pub(super) fn new_or_leaving(batch: &[Command]) -> bool {
    batch.iter().all(|command| is_new_or_leaving(&command.act))
}

fn is_new_or_leaving(act: &Act) -> bool {
    match act {
        Act::Publish(admitted) => {
            let kind = admitted.event().kind();
            kind.class() == Class::Regular && kind != Kind::DELETION
        }
        // What leaves with its topic is forgotten as well.
        Act::Unlink { reason, .. } => *reason != UnlinkReason::Topic,
        Act::Fenced { act, .. } => is_new_or_leaving(act),
        _ => false,
    }
}
