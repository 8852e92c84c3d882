//! L4: with the time and the handled topics fixed, what is visible does not depend on the order in which
//! events come, on repeats, or on batches: it is what the spec says of the set.

use kukuri_core::{Act, Command, UnixMillis};
use kukuri_store::Model;
use kukuri_testkit::convergence::{admit, carry, expected, random_set, view};
use kukuri_testkit::generate::Seed;
use kukuri_testkit::spec::Effective;
use tokio::runtime::{Builder, Runtime};

use crate::apply;
use crate::curated::{NOW, Set, elsewhere, here, sets};
use crate::naive;
use crate::orders::for_each_order;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without I/O starts")
}

/// The orders of a set after which a relay shows something else than the spec says.
fn objections(set: &Set, mut show: impl FnMut(&[usize]) -> Effective) -> Vec<Vec<usize>> {
    let expected = expected(&set.events, NOW, &set.handled);
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
        let model = Model::default();
        apply(&model, set.handled.iter().map(|topic| carry(topic, at)).collect()).await;
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
        let spec = expected(&set.events, NOW, &set.handled);
        assert!(spec.keys().eq(&visible), "{}: {spec:?}", set.name);
    }
}

#[tokio::test]
async fn l4_large_random_sets_converge() {
    const SETS: u64 = 200;
    const EVENTS: usize = 80;
    let seed = Seed::of_run("-p kukuri-store l4_large");
    for set in 0..SETS {
        let shown = random_set(&Model::default(), seed.part(set), 0, EVENTS).await;
        shown.unwrap_or_else(|objection| panic!("run seed {seed}, set {set}: {objection}"));
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
