//! What upkeep looks for next. A plan only says where to look; whether what is found there leaves is
//! decided in the lane, by the policy of that moment.

use crate::ladder::Step;
use crate::{Cutoffs, NodeState, NodeTopic, OnFull, TopicId, UnixMillis, Usage};

/// How long is kept what is not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Ids that were seen, and deletions that were asked for.
    pub memory_days: u32,
    pub feed_days: u32,
}

impl Keeping {
    pub const STANDARD: Self = Self { memory_days: 180, feed_days: 30 };
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Stats<'a> {
    pub topics: &'a [(NodeTopic, Usage)],
    pub node: &'a NodeState,
}

/// Something to look for, and to let go of if it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Events whose time has come.
    Expired,
    /// Events that are older than their topic keeps them.
    Aged { topic: TopicId, cutoffs: Cutoffs },
    /// The oldest events of a topic that holds more than it may.
    OldestOfTopic(TopicId),
    /// The oldest events of the node, until it holds no more than that.
    OldestOfNode { to: Usage },
    /// Ids and deletions that are remembered from before a time.
    Forgettable { before: UnixMillis },
    /// Rows of the feed that were written by then.
    FeedRows { until: UnixMillis },
}

/// On the last step of the ladder a hundredth of what is there leaves before the ladder is asked again.
const EVICTED_PARTS: u64 = 100;

/// What to look for now, in this order, each until nothing is found.
pub fn plan(stats: Stats<'_>, keeping: Keeping, now: UnixMillis) -> Vec<Look> {
    let NodeState { usage, allowance, .. } = stats.node;
    let mut looks = vec![Look::Expired];
    let used = || stats.topics.iter().filter(|(_, usage)| usage.events > 0);
    looks.extend(used().map(|(topic, _)| Look::Aged {
        topic: topic.topic_id.clone(),
        cutoffs: allowance.retention.cutoffs(&topic.ingest_policy, now),
    }));
    let over = used().filter(|(topic, usage)| {
        let policy = &topic.ingest_policy;
        policy.on_full == OnFull::Evict && policy.capacity().is_exceeded(*usage)
    });
    looks.extend(over.map(|(topic, _)| Look::OldestOfTopic(topic.topic_id.clone())));
    if allowance.evicts(*usage) && usage.events > 0 {
        looks.push(Look::OldestOfNode { to: target(stats.node) });
    }
    looks.push(Look::Forgettable { before: now.days_before(keeping.memory_days) });
    looks.push(Look::FeedRows { until: now.days_before(keeping.feed_days) });
    looks
}

/// What the node may hold; less than it does if it has to give up events whatever its limits are.
fn target(node: &NodeState) -> Usage {
    let capacity = node.allowance.capacity;
    let limit = Usage {
        events: capacity.max_events.unwrap_or(u64::MAX),
        bytes: capacity.max_bytes.unwrap_or(u64::MAX),
    };
    if node.allowance.step < Step::EvictOldest {
        return limit;
    }
    let less = |count: u64| count - count.div_ceil(EVICTED_PARTS);
    let Usage { events, bytes } = node.usage;
    Usage { events: less(events).min(limit.events), bytes: less(bytes).min(limit.bytes) }
}
