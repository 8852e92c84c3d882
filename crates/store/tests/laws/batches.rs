//! L1: any split of a sequence of commands into batches gives the same state, rows and outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Command, Decision, Epoch, FeedBounds, FeedRow, Outcome, Seq};
use kukuri_store::conformance::dump;
use kukuri_store::{Entry, Model};
use kukuri_testkit::generate::{Dice, Seed, World, batches, script};

use crate::apply;

const SEQUENCES: u64 = 300;
const COMMANDS: usize = 40;
const EVENTS: usize = 24;
const SPLITS: usize = 4;

const EMPTY: FeedBounds = FeedBounds { epoch: Epoch(0), floor: Seq::ZERO, head: Seq::ZERO };

/// What must not depend on the split.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    outcomes: Vec<Outcome>,
    rows: Vec<FeedRow>,
    state: Vec<Entry>,
}

impl Run {
    async fn of(batches: impl IntoIterator<Item = Arc<[Command]>>) -> Run {
        let model = Model::default();
        let (mut outcomes, mut rows) = (Vec::new(), Vec::new());
        for batch in batches {
            let decision = apply(&model, batch).await;
            assert_eq!(decision.base.0 as usize, rows.len());
            outcomes.extend(decision.outcomes);
            rows.extend(decision.rows);
        }
        Run { outcomes, rows, state: dump(&model).await }
    }
}

fn commands(seed: Seed) -> (Vec<Command>, Dice) {
    let world = World::new(seed, 0, EVENTS);
    let mut dice = seed.part(0).dice();
    (script(&world, &mut dice, COMMANDS), dice)
}

fn singly(commands: &[Command]) -> Vec<Arc<[Command]>> {
    commands.chunks(1).map(Into::into).collect()
}

#[tokio::test]
async fn l1_batches_do_not_matter() {
    let seed = Seed::of_run("-p kukuri-store l1_batches");
    let mut happened = BTreeSet::new();
    for part in 0..SEQUENCES {
        let (commands, mut dice) = commands(seed.part(part));
        let singly = Run::of(singly(&commands)).await;
        let whole = Run::of([commands.as_slice().into()]).await;
        assert_eq!(singly, whole, "seed {seed}, sequence {part}: one batch");
        for _ in 0..SPLITS {
            let split = Run::of(batches(&commands, &mut dice)).await;
            assert_eq!(singly, split, "seed {seed}, sequence {part}: a split");
        }
        happened.extend(singly.outcomes.iter().map(outcome));
        happened.extend(singly.rows.iter().map(|row| format!("{:?}", row.reason)));
        happened.extend(singly.state.iter().filter_map(state));
    }
    let missing: Vec<_> = EVERYTHING.iter().filter(|what| !happened.contains(**what)).collect();
    assert!(missing.is_empty(), "seed {seed}: never happened: {missing:?}");
}

/// What random sequences have to reach for the law to mean something.
const EVERYTHING: &[&str] = &[
    "Accepted",
    "Ephemeral",
    "Done",
    "TopicInUse",
    "Duplicate(Known)",
    "Duplicate(Stale)",
    "Duplicate(NotKept)",
    "Refused(Deleted)",
    "Refused(Expired)",
    "Refused(TopicNotHandled)",
    "Refused(StorageFull)",
    "Refused(NodeFull)",
    "Refused(TopicFull)",
    "Refused(TopicPaused)",
    "Refused(NoBackfill)",
    "Removed",
    "Held",
    "HeldElsewhere",
    "None",
    "Some(Nip09)",
    "Some(Expiration)",
    "Some(Superseded)",
    "Some(Retention)",
    "Some(Capacity)",
    "Some(Topic)",
    "event Effective",
    "event Superseded",
    "event Deleted",
    "event Expired",
    "mark Some(Effective)",
    "mark Some(Deleted)",
    "mark Some(Expired)",
    "mark Some(Purged)",
    "mark Some(Evicted)",
    "mark None",
];

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Removed(_) => "Removed".to_owned(),
        Outcome::Held(_) => "Held".to_owned(),
        other => format!("{other:?}"),
    }
}

fn state(entry: &Entry) -> Option<String> {
    match entry {
        Entry::Record(record) => Some(format!("event {:?}", record.state)),
        Entry::Node(node) => Some(format!("node {:?}", node.allowance.step)),
        Entry::Version(_, version) => Some(format!("mark {:?}", version.mark.map(|m| m.state))),
        _ => None,
    }
}

/// A run that differs in anything is another run.
#[tokio::test]
async fn a_lost_row_outcome_or_entry_is_noticed() {
    let (commands, _) = commands(Seed(1));
    let run = Run::of(singly(&commands)).await;
    let mut without_row = run.clone();
    without_row.rows.pop();
    let mut without_outcome = run.clone();
    let _ = without_outcome.outcomes.swap_remove(0);
    let mut without_entry = run.clone();
    without_entry.state.swap_remove(0);
    for sabotaged in [without_row, without_outcome, without_entry] {
        assert_ne!(run, sabotaged);
    }
}

/// A store that forgets what earlier commands of the same batch did keeps no such law, and the
/// comparison has to tell.
#[tokio::test]
async fn rules_that_look_only_at_the_stored_state_are_noticed() {
    let (commands, _) = commands(Seed(2));
    let whole = Run::of([commands.as_slice().into()]).await;
    let blind: Vec<Decision> = blind(&commands);
    let outcomes: Vec<Outcome> = blind.into_iter().flat_map(|d| d.outcomes).collect();
    assert_ne!(whole.outcomes, outcomes);
}

/// Decides every command as if it were the first.
fn blind(commands: &[Command]) -> Vec<Decision> {
    let decide_alone = |command: &Command| {
        let batch = [command.clone()];
        let facts = kukuri_core::Facts::absent(&kukuri_core::needs(&batch));
        kukuri_core::decide(kukuri_core::View::new(facts), EMPTY, &batch)
    };
    commands.iter().map(decide_alone).collect()
}
