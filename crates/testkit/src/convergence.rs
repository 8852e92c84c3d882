//! L4 on any store: what queries show after events came in some order, held against the spec.

use std::sync::Arc;

use kukuri_core::admission::{Checked, Verdict};
use kukuri_core::{Act, Admitted, Command, Source, TopicId, UnixMillis};
use kukuri_event::{EventId, Filter, TagLetter, UnixSeconds};
use kukuri_store::{Query, Store};

use crate::generate::{Seed, World, batches};
use crate::spec::{Effective, Spec};

/// More than a set shows.
const PLENTY: usize = 100_000;

/// What queries return per topic. Asked for by id, each of these events must be found as well.
///
/// # Panics
/// When a query fails, or does not find by id what it found by topic.
pub async fn view(store: &dyn Store, now: UnixSeconds, topics: &[TopicId]) -> Effective {
    let mut view = Effective::new();
    for topic in topics {
        let mut filter = Filter::default();
        filter.tags.insert(TagLetter::TOPIC, [topic.to_string()].into());
        for id in ask(store, now, filter).await {
            view.entry(id.to_hex()).or_default().insert(topic.to_string());
        }
    }
    let ids = view.keys().map(|id| id.parse::<EventId>().expect("an id is an id"));
    let by_id = Filter { ids: Some(ids.collect()), ..Filter::default() };
    let found: Vec<String> = ask(store, now, by_id).await.iter().map(EventId::to_hex).collect();
    assert!(found.iter().eq(view.keys()), "{found:?} by id, {view:?} by topic");
    view
}

/// The ids that a filter finds, sorted.
async fn ask(store: &dyn Store, now: UnixSeconds, filter: Filter) -> Vec<EventId> {
    let query = Query {
        filters: vec![filter],
        after: None,
        now,
        limit_max: PLENTY,
        rows_max: PLENTY,
        bodies_max: 0,
    };
    let hits = store.query(query).await.expect("a query has an answer").hits;
    let mut ids: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
    ids.sort_unstable();
    ids
}

/// What the spec says of these events.
pub fn expected(events: &[Checked], now: UnixSeconds, handled: &[TopicId]) -> Effective {
    let texts: Vec<String> = events.iter().map(|event| event.event().to_json()).collect();
    let handled = handled.iter().map(ToString::to_string).collect();
    Spec { events: texts.iter().map(String::as_str).collect(), now: now.0, handled }.effective()
}

/// The event as a client sends it.
///
/// # Panics
/// Never: the verdict is to admit.
pub fn admit(event: &Checked) -> Admitted {
    let admitted = event.clone().admit(Verdict::Admit, Source::Ws, None);
    admitted.expect("the verdict is to admit")
}

/// The command that makes a node carry a topic.
pub fn carry(topic: &TopicId, at: UnixMillis) -> Command {
    let act = Act::carry(topic.clone(), "");
    Command { at, act }
}

/// Gives a random set of `events` events to the store, in a random order, in random batches and with
/// repeats, and compares what it shows with the spec. Sets of different `lot`s can share a store.
///
/// # Errors
/// What is shown and what should be.
///
/// # Panics
/// When the store fails.
pub async fn random_set(
    store: &dyn Store,
    seed: Seed,
    lot: u32,
    events: usize,
) -> Result<(), String> {
    let world = World::new(seed, lot, events);
    let mut dice = seed.part(0).dice();
    let handled = dice.some(&world.topics, world.topics.len());
    // Some of the events have expired when they come.
    let now = World::NOW.saturating_add(dice.range(0..12));
    let at = UnixMillis::from(now);
    let mut arrivals: Vec<usize> = (0..events).collect();
    arrivals.extend((0..events / 3).map(|_| dice.below(events)));
    dice.shuffle(&mut arrivals);
    let publish = |nth: usize| Command { at, act: Act::Publish(admit(&world.events[nth])) };
    let topics: Arc<[Command]> = handled.iter().map(|topic| carry(topic, at)).collect();
    let commands: Vec<Command> = arrivals.into_iter().map(publish).collect();
    for batch in [topics].into_iter().chain(batches(&commands, &mut dice)) {
        store.apply(batch).await.expect("a batch is committed");
    }
    let shown = view(store, now, &world.topics).await;
    let expected = expected(&world.events, now, &handled);
    if shown == expected {
        return Ok(());
    }
    Err(format!("seed {seed}: expected {expected:?}\nfound {shown:?}"))
}
