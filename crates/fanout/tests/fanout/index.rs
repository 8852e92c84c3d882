use std::collections::BTreeSet;

use kukuri_core::{FeedRow, Op, Seq, Source, TopicId, UnixMillis};
use kukuri_event::{Event, matches_any};
use kukuri_fanout::{Index, SubKey, Subscription};
use kukuri_testkit::generate::{Dice, Seed, World, query};

const SUBSCRIPTIONS: u64 = 5_000;

/// Thousands of filter groups of every shape, all at once: the candidates of an event hold everyone
/// whom the matcher would choose, before and after some have left.
#[test]
fn candidates_hold_every_match() {
    let seed = Seed::of_run("candidates_hold_every_match");
    let (world, mut dice) = (World::new(seed, 0, 60), seed.part(1).dice());
    let mut index = Index::default();
    let mut subscriptions: Vec<Subscription> = (0..SUBSCRIPTIONS)
        .map(|key| Subscription {
            key: SubKey(key),
            filters: query(&world, &mut dice).filters.into(),
        })
        .collect();
    subscriptions.iter().for_each(|subscription| index.insert(subscription));
    let mut matched = compare(&index, &subscriptions, &world);
    assert!(matched > 1_000, "only {matched} matches: the filters do not fit the world");
    dice.shuffle(&mut subscriptions);
    for subscription in subscriptions.split_off(subscriptions.len() / 2) {
        index.remove(&subscription);
    }
    matched = compare(&index, &subscriptions, &world);
    assert!(matched > 500, "only {matched} matches are left");
    subscriptions.iter().for_each(|subscription| index.remove(subscription));
    assert!(index.is_empty(), "{} places are left behind", index.len());
}

fn compare(index: &Index, subscriptions: &[Subscription], world: &World) -> usize {
    let mut matched = 0;
    for event in world.events.iter().map(|checked| checked.event()) {
        let topics: Vec<TopicId> =
            event.tags().values("t").filter_map(|tag| TopicId::parse(tag).ok()).collect();
        let candidates: BTreeSet<SubKey> = index.candidates(event, &topics).into_iter().collect();
        for subscription in subscriptions {
            if matches_any(&subscription.filters, event, &topics) {
                matched += 1;
                let filters = &subscription.filters;
                assert!(candidates.contains(&subscription.key), "{filters:?} missed {event:?}");
            }
        }
    }
    matched
}

/// Whatever topics an event is linked to, and in whatever order: who matches in the end takes exactly
/// one of its rows, and who does not takes none.
#[test]
fn exactly_one_row_of_an_event_is_taken() {
    let seed = Seed::of_run("exactly_one_row_of_an_event_is_taken");
    let (world, mut dice) = (World::new(seed, 0, 60), seed.part(1).dice());
    for key in 0..SUBSCRIPTIONS {
        let filters = query(&world, &mut dice).filters.into();
        let subscription = Subscription { key: SubKey(key), filters };
        let event = dice.pick(&world.events).event();
        let mut topics = dice.some(&world.topics, 4);
        dice.shuffle(&mut topics);
        let rows = rows(event, &topics, &mut dice);
        let taken = rows.iter().filter(|row| subscription.takes(row, event)).count();
        let wanted = !topics.is_empty() && matches_any(&subscription.filters, event, &topics);
        assert_eq!(taken, usize::from(wanted), "{:?} of {rows:?}", subscription.filters);
    }
}

fn rows(event: &Event, topics: &[TopicId], dice: &mut Dice) -> Vec<FeedRow> {
    let mut row = |nth: usize| {
        let mut prior = topics[..nth].to_vec();
        prior.sort_unstable();
        FeedRow {
            seq: Seq(1 + nth as i64),
            op: Op::Upsert,
            event_id: event.id(),
            topic_id: topics[nth].clone(),
            prior,
            kind: event.kind(),
            pubkey: event.pubkey(),
            created_at: event.created_at(),
            ingested_at: UnixMillis::from(World::NOW),
            effective_key: None,
            reason: None,
            source: *dice.pick(Source::ALL),
            via: None,
        }
    };
    (0..topics.len()).map(&mut row).collect()
}
