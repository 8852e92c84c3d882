//! A decision is a function of its facts, and its writes can be applied in any order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kukuri_core::{Change, Command, Decision, Facts, View, decide, follow_up, needs};
use kukuri_store::{Model, Store};
use kukuri_testkit::generate::{Dice, Seed, World, batches, script};

use crate::apply;

const SEQUENCES: u64 = 100;

/// The facts of a batch, as a back end loads them.
async fn load(model: &Model, batch: &[Command]) -> Facts {
    let load = async |set| model.facts(set).await.expect("the model has facts");
    let mut facts = load(needs(batch)).await;
    facts.extend(load(follow_up(batch, &facts)).await);
    facts
}

#[tokio::test]
async fn deciding_twice_decides_the_same() {
    let seed = Seed::of_run("-p kukuri-store deciding_twice");
    for part in 0..SEQUENCES {
        let world = World::new(seed.part(part), 0, 24);
        let mut dice = seed.part(part).part(0).dice();
        let model = Model::default();
        for batch in batches(&script(&world, &mut dice, 40), &mut dice) {
            let bounds = model.bounds().await.expect("the model has bounds");
            let facts = load(&model, &batch).await;
            let decide_now = || decide(View::new(facts.clone()), bounds, &batch);
            let first = decide_now();
            assert_eq!(first, decide_now(), "seed {seed}, sequence {part}");
            assert_eq!(first, apply(&model, batch.clone()).await, "seed {seed}, sequence {part}");
        }
    }
}

/// Writes the changes of one table.
type Step<'a> = Box<dyn FnOnce(&mut Dice) + 'a>;

/// The tables, written to by change after change.
#[derive(Default)]
struct Tables(Facts);

impl Tables {
    /// Applies the changes of one decision, each table and each change in a random place.
    fn apply(&mut self, decision: &Decision, dice: &mut Dice) {
        let (tables, writes) = (&mut self.0, &decision.writes);
        let mut steps: Vec<Step<'_>> = vec![
            Box::new(|dice| write(&mut tables.records, &writes.records, dice)),
            Box::new(|dice| write(&mut tables.dedupe, &writes.dedupe, dice)),
            Box::new(|dice| write(&mut tables.versions, &writes.versions, dice)),
            Box::new(|dice| write(&mut tables.tombstones, &writes.tombstones, dice)),
            Box::new(|dice| write(&mut tables.topics, &writes.topics, dice)),
            Box::new(|dice| write(&mut tables.usage, &writes.usage, dice)),
            Box::new(|dice| write(&mut tables.node, &writes.node, dice)),
        ];
        dice.shuffle(&mut steps);
        steps.into_iter().for_each(|step| step(dice));
    }
}

fn write<K: Ord + Clone + Debug, V: Clone + PartialEq + Debug>(
    table: &mut BTreeMap<K, Option<V>>,
    changes: &[Change<K, V>],
    dice: &mut Dice,
) {
    assert!(changes.is_sorted_by(|one, two| one.key < two.key), "one change per key, by key");
    let mut changes: Vec<&Change<K, V>> = changes.iter().collect();
    dice.shuffle(&mut changes);
    for change in changes {
        assert_ne!(change.before, change.after, "a change changes something");
        let before = table.insert(change.key.clone(), change.after.clone());
        assert_eq!(before.flatten(), change.before, "a change starts from what is stored");
    }
}

#[tokio::test]
async fn writes_can_be_applied_in_any_order() {
    let seed = Seed::of_run("-p kukuri-store writes_can_be_applied");
    for part in 0..SEQUENCES {
        let world = World::new(seed.part(part), 0, 24);
        let mut dice = seed.part(part).part(0).dice();
        let model = Model::default();
        let mut tables = Tables::default();
        for batch in batches(&script(&world, &mut dice, 40), &mut dice) {
            tables.apply(&apply(&model, batch).await, &mut dice);
        }
        let mut expected = model.facts(world.keys()).await.expect("the model has facts");
        // Keys that nothing ever touched are in neither.
        keep_present(&mut expected);
        keep_present(&mut tables.0);
        assert_eq!(tables.0, expected, "seed {seed}, sequence {part}");
    }
}

fn keep_present(facts: &mut Facts) {
    facts.records.retain(|_, value| value.is_some());
    facts.dedupe.retain(|_, value| value.is_some());
    facts.versions.retain(|_, value| value.is_some());
    facts.tombstones.retain(|_, value| value.is_some());
    facts.topics.retain(|_, value| value.is_some());
    facts.usage.retain(|_, value| value.is_some());
    facts.node.retain(|_, value| value.is_some());
}

/// The view that panics is what makes every other run here say something about `needs`.
#[tokio::test]
#[should_panic(expected = "was not loaded")]
async fn a_key_that_was_not_loaded_is_never_taken_for_absent() {
    let world = World::new(Seed(4), 0, 24);
    let commands = script(&world, &mut Seed(4).dice(), 40);
    let model = Model::default();
    let mut facts = load(&model, &commands).await;
    let touched = *facts.records.keys().next().expect("the script publishes something");
    facts.dedupe.remove(&touched);
    facts.records.remove(&touched);
    let bounds = model.bounds().await.expect("the model has bounds");
    let _ = decide(View::new(facts), bounds, &commands);
}

/// Two changes of one key would depend on their order, and the check has to tell.
#[test]
#[should_panic(expected = "one change per key")]
fn a_key_that_is_changed_twice_is_noticed() {
    let change = |before, after| Change { key: 1, before, after };
    let changes = [change(None, Some(1)), change(Some(1), Some(2))];
    write(&mut BTreeMap::new(), &changes, &mut Seed(1).dice());
}
