//! L4: with the time and the handled topics fixed, what is visible does not depend on the order in which
//! events come, on repeats, or on batches: it is what the spec says of the set.

use std::sync::Arc;

use kukuri_core::admission::{Checked, Verdict};
use kukuri_core::{Act, Admitted, Command, Source, TopicId, UnixMillis};
use kukuri_event::{Filter, TagLetter, UnixSeconds};
use kukuri_store::{Model, Query, Store};
use kukuri_testkit::generate::{Seed, World, batches};
use kukuri_testkit::spec::{Effective, Spec};
use tokio::runtime::{Builder, Runtime};

use crate::curated::{NOW, Set, elsewhere, here, sets};
use crate::naive;
use crate::orders::for_each_order;
use crate::{apply, model_with};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without I/O starts")
}

fn admit(event: &Checked) -> Admitted {
    let admitted = event.clone().admit(Verdict::Admit, Source::Ws, None);
    admitted.expect("the verdict is to admit")
}

fn spec(events: &[Checked], now: UnixSeconds, handled: &[TopicId]) -> Effective {
    let texts: Vec<String> = events.iter().map(|event| event.event().to_json()).collect();
    let handled = handled.iter().map(ToString::to_string).collect();
    Spec { events: texts.iter().map(String::as_str).collect(), now: now.0, handled }.effective()
}

/// What queries return per topic. Asked without a topic, and id by id, they must say the same.
async fn view(model: &Model, now: UnixSeconds, topics: &[TopicId]) -> Effective {
    let mut view = Effective::new();
    for topic in topics {
        let mut filter = Filter::default();
        filter.tags.insert(TagLetter::TOPIC, [topic.to_string()].into());
        for id in ask(model, now, filter).await {
            view.entry(id).or_default().insert(topic.to_string());
        }
    }
    let all = ask(model, now, Filter::default()).await;
    assert!(all.iter().eq(view.keys()), "{all:?} without a topic, {view:?} with one");
    for id in &all {
        let id = id.parse().expect("an id is an id");
        let alone = Filter { ids: Some([id].into()), ..Filter::default() };
        assert_eq!(ask(model, now, alone).await, [id.to_string()]);
    }
    view
}

async fn ask(model: &Model, now: UnixSeconds, filter: Filter) -> Vec<String> {
    let query = Query { filters: vec![filter], now, limit_max: 10_000, rows_max: 10_000 };
    let hits = model.query(query).await.expect("the model answers").hits;
    let mut ids: Vec<String> = hits.iter().map(|hit| hit.id.to_hex()).collect();
    ids.sort_unstable();
    ids
}

/// The orders of a set after which a relay shows something else than the spec says.
fn objections(set: &Set, mut show: impl FnMut(&[usize]) -> Effective) -> Vec<Vec<usize>> {
    let expected = spec(&set.events, NOW, &set.handled);
    let mut objections = Vec::new();
    for_each_order(set.events.len(), &mut |order| {
        if show(order) != expected {
            objections.push(order.to_vec());
        }
    });
    objections
}

/// Runs events in an order, in batches of so many.
fn run(runtime: &Runtime, set: &Set, order: &[usize], per_batch: usize) -> Effective {
    runtime.block_on(async {
        let at = UnixMillis::from(NOW);
        let model = model_with(&set.handled, at).await;
        let publish = |nth: &usize| Command { at, act: Act::Publish(admit(&set.events[*nth])) };
        let commands: Vec<Command> = order.iter().map(publish).collect();
        for batch in commands.chunks(per_batch) {
            apply(&model, batch.into()).await;
        }
        view(&model, NOW, &[here(), elsewhere()]).await
    })
}

#[test]
fn l4_all_orders_of_small_sets_converge() {
    let runtime = runtime();
    let mut runs = 0;
    for set in sets() {
        for per_batch in [1, 2, set.events.len()] {
            let objections = objections(&set, |order| {
                runs += 1;
                run(&runtime, &set, order, per_batch)
            });
            let name = set.name;
            assert_eq!(objections, Vec::<Vec<usize>>::new(), "{name}, {per_batch} per batch");
        }
    }
    println!("{runs} runs of {} sets", sets().len());
}

/// The spec is judged by what the sets say literally.
#[test]
fn the_spec_says_what_the_sets_say() {
    for set in sets() {
        assert!(set.events.len() <= 6, "{}: all orders of so many take long", set.name);
        let visible: Vec<String> = set.visible.iter().map(ToString::to_string).collect();
        let spec = spec(&set.events, NOW, &set.handled);
        assert!(spec.keys().eq(&visible), "{}: {spec:?}", set.name);
    }
}

#[test]
fn l4_large_random_sets_converge() {
    const SETS: u64 = 40;
    const EVENTS: usize = 80;
    const ORDERS: usize = 6;
    let seed = Seed::of_run("-p kukuri-store l4_large");
    let runtime = runtime();
    for part in 0..SETS {
        let world = World::new(seed.part(part), 0, EVENTS);
        let mut dice = seed.part(part).part(0).dice();
        let handled = dice.some(&world.topics, 4);
        // Some of the events have expired when they come, some come later than that.
        let now = World::NOW.saturating_add(dice.range(0..12));
        let expected = spec(&world.events, now, &handled);
        for order in 0..ORDERS {
            let mut arrivals: Vec<usize> = (0..EVENTS).collect();
            arrivals.extend((0..EVENTS / 3).map(|_| dice.below(EVENTS)));
            dice.shuffle(&mut arrivals);
            let at = UnixMillis::from(now);
            let publish = |nth| Command { at, act: Act::Publish(admit(&world.events[nth])) };
            let commands: Vec<Command> = arrivals.into_iter().map(publish).collect();
            let batches: Vec<Arc<[Command]>> = batches(&commands, &mut dice);
            let shown = runtime.block_on(async {
                let model = model_with(&handled, at).await;
                for batch in batches {
                    apply(&model, batch).await;
                }
                view(&model, now, &world.topics).await
            });
            assert_eq!(shown, expected, "seed {seed}, set {part}, order {order}");
        }
    }
}

/// A result with one visible event less, one more, or one topic less is objected to.
#[test]
fn a_sabotaged_result_is_objected_to() {
    let runtime = runtime();
    let sabotages: [fn(&mut Effective); 3] = [
        |view| drop(view.pop_first()),
        |view| drop(view.insert("00".repeat(32), [here().to_string()].into())),
        |view| drop(view.values_mut().next().map(|topics| topics.pop_first())),
    ];
    for set in sets() {
        for sabotage in sabotages {
            let orders = objections(&set, |order| {
                let mut view = run(&runtime, &set, order, 1);
                sabotage(&mut view);
                view
            });
            assert!(!orders.is_empty(), "{}", set.name);
        }
    }
}

/// A relay as most are written, that takes events as they come, does not converge; and each of its
/// weaknesses is found by some set.
#[test]
fn a_naive_relay_is_objected_to() {
    let mut found = Vec::new();
    for set in sets() {
        let topics: Vec<String> = set.handled.iter().map(ToString::to_string).collect();
        let orders = objections(&set, |order| {
            let arrivals = order.iter().map(|nth| set.events[*nth].event());
            naive::show(arrivals, NOW, &topics)
        });
        if !orders.is_empty() {
            found.push(set.name);
        }
    }
    for weakness in [
        "ties",
        "X, deletion, X",
        "the winner deleted",
        "foreign deletions",
        "a limit between two versions",
        "deletions of deletions",
    ] {
        assert!(found.contains(&weakness), "{weakness} was not found, only {found:?}");
    }
}
