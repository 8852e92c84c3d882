//! Which swarms the node is in. Pure.

use std::collections::BTreeSet;

use kukuri_core::TopicId;

/// What has to change for the swarms to be those of the carried topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub join: BTreeSet<TopicId>,
    pub leave: BTreeSet<TopicId>,
    /// Topics that are carried and have no swarm, because there are too many.
    pub left_out: usize,
}

/// No more than `topics_max`; those that are joined stay.
pub fn changes(
    joined: &BTreeSet<TopicId>,
    carried: &BTreeSet<TopicId>,
    topics_max: usize,
) -> Changes {
    let leave: BTreeSet<TopicId> = joined.difference(carried).cloned().collect();
    let room = topics_max.saturating_sub(joined.len() - leave.len());
    let new = carried.difference(joined);
    let join: BTreeSet<TopicId> = new.clone().take(room).cloned().collect();
    let left_out = new.count() - join.len();
    Changes { join, leave, left_out }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topic(nth: u8) -> TopicId {
        TopicId::parse(&format!("kukuri:{}", hex::encode([nth; 32]))).unwrap()
    }

    proptest! {
        #[test]
        fn after_the_changes_the_swarms_are_the_carried_topics(
            joined in proptest::collection::btree_set(0..20_u8, 0..10),
            carried in proptest::collection::btree_set(0..20_u8, 0..20),
            spare in 0..20_usize,
        ) {
            let topics_max = joined.len() + spare;
            let joined: BTreeSet<TopicId> = joined.into_iter().map(topic).collect();
            let carried: BTreeSet<TopicId> = carried.into_iter().map(topic).collect();
            let changes = changes(&joined, &carried, topics_max);
            let mut after: BTreeSet<TopicId> = joined.union(&changes.join).cloned().collect();
            after.retain(|topic| !changes.leave.contains(topic));
            prop_assert!(after.is_subset(&carried) && after.len() <= topics_max);
            prop_assert!(joined.intersection(&carried).all(|topic| after.contains(topic)));
            prop_assert_eq!(after.len() + changes.left_out, carried.len());
            prop_assert!(changes.left_out == 0 || after.len() == topics_max);
        }
    }
}
