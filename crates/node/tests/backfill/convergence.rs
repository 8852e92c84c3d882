//! L4 between nodes: however events were spread over two nodes, both show the same once each has asked
//! the other, and it is what the spec says of all of them together; but for what nobody can know any more.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::admission::Checked;
use kukuri_core::{TopicId, VersionKey};
use kukuri_event::{Event, Kind};
use kukuri_store::{Model, Store};
use kukuri_testkit::convergence::{admit, expected};
use kukuri_testkit::generate::{Seed, World};
use kukuri_testkit::spec::Effective;

use crate::rig::{Homes, Node, limits};

const EVENTS: usize = 120;
const ROUNDS: u64 = 12;

/// Spreads the events of a world over two nodes, at random and with some on both, and lets them converge.
/// Says how many events were fetched.
async fn converge(seed: Seed, lot: u32, stores: [Arc<dyn Store>; 2]) -> u64 {
    let world = World::new(seed, lot, EVENTS);
    let mut dice = seed.part(1).dice();
    let topics: Vec<TopicId> = world.topics.clone();
    let [one, two] = stores;
    let one = Node::over(one, &topics, limits()).await;
    let two = Node::over(two, &topics, limits()).await;
    let mut order: Vec<usize> = (0..EVENTS).collect();
    dice.shuffle(&mut order);
    for nth in order {
        let event = admit(&world.events[nth]);
        let (here, there) = *dice.pick(&[(true, false), (false, true), (true, true)]);
        if here {
            one.publish([event.clone()]).await;
        }
        if there {
            two.publish([event]).await;
        }
    }
    let all = expected(&world.events, World::NOW, &topics);
    let hidden = outlived(&world);
    // Otherwise it would mean nothing that they show the same in the end.
    assert_ne!(shown(&one, &topics, &hidden).await, all, "seed {seed}");
    assert_ne!(shown(&two, &topics, &hidden).await, all, "seed {seed}");
    let mut fetched = 0;
    for topic in &topics {
        fetched += one.pull(topic, &two).await.fetched;
    }
    for topic in &topics {
        fetched += two.pull(topic, &one).await.fetched;
    }
    for node in [&one, &two] {
        assert_eq!(shown(node, &topics, &hidden).await, all, "seed {seed}");
    }
    // Who has everything fetches nothing more.
    for topic in &topics {
        for (node, from) in [(&one, &two), (&two, &one)] {
            let again = node.pull(topic, from).await;
            assert_eq!(again.fetched, 0, "seed {seed}: {again}");
        }
    }
    fetched
}

/// What a node shows, but for some.
async fn shown(node: &Node, topics: &[TopicId], but: &BTreeSet<String>) -> Effective {
    let mut view = node.view(topics).await;
    view.retain(|id, _| !but.contains(id));
    view
}

/// Versions whose successor was deleted by its id: a node that has never had the successor cannot know that
/// there was one. Nobody shows what is deleted, and a request by id does not say of what it is a version.
fn outlived(world: &World) -> BTreeSet<String> {
    let events: Vec<&Event> = world.events.iter().map(Checked::event).collect();
    let key = |event: &Event| VersionKey::of(event);
    let deleted = |event: &Event| {
        let requests = events.iter().filter(|by| by.kind() == Kind::DELETION);
        let mut own = requests.filter(|by| by.pubkey() == event.pubkey());
        own.any(|by| by.tags().event_ids().any(|target| target == event.id()))
    };
    let beats = |one: &Event, two: &Event| {
        (Reverse(one.created_at()), one.id()) < (Reverse(two.created_at()), two.id())
    };
    let outlived = events.iter().filter(|event| {
        let rivals = events.iter().filter(|rival| key(event).is_some() && key(rival) == key(event));
        rivals.into_iter().any(|rival| beats(rival, event) && deleted(rival))
    });
    outlived.map(|event| event.id().to_hex()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_two_nodes_converge() {
    let seed = Seed::of_run("-p kukuri-node --test backfill any_two_nodes_converge");
    let mut fetched = 0;
    for nth in 0..ROUNDS {
        let model = || Arc::new(Model::default()) as Arc<dyn Store>;
        fetched += converge(seed.part(nth), 0, [model(), model()]).await;
    }
    assert!(fetched > ROUNDS * 20, "something was missing: {fetched}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_different_stores_converge() {
    let seed = Seed::of_run("-p kukuri-node --test backfill nodes_with_different_stores_converge");
    let mut homes = Homes::new();
    for nth in 0..3 {
        let stores = [homes.sqlite(), homes.postgres().await];
        assert!(converge(seed.part(nth), 0, stores).await > 0);
    }
}
