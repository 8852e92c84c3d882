//! Many sequences on stores of one sort, against the model.

use std::ops::Range;
use std::sync::Arc;

use kukuri_store::conformance::dump;
use kukuri_store::{Model, Store};

use super::compare::{Mismatch, differential};
use crate::audit::audit;
use crate::generate::{Seed, World, script};

/// How many sequences a store lives for.
const SEQUENCES_PER_STORE: u32 = 50;

const COMMANDS: Range<i64> = 5..31;
const EVENTS: usize = 14;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub sequences: u64,
    pub commands: usize,
    pub rows: usize,
    pub stores: u64,
}

/// Compares stores that `make` makes with the model, over these random sequences of the run. `make` is
/// told the number of the store's first sequence, so that a store can be made the same way again.
///
/// # Errors
/// The first difference.
pub async fn run<F, Made>(seed: Seed, sequences: Range<u64>, make: F) -> Result<Report, Mismatch>
where
    F: Fn(u64) -> Made,
    Made: Future<Output = Arc<dyn Store>>,
{
    let mut report = Report::default();
    let mut next = sequences.start;
    while next < sequences.end {
        let model = Model::default();
        let candidate = make(next).await;
        for lot in
            0..SEQUENCES_PER_STORE.min(u32::try_from(sequences.end - next).unwrap_or(u32::MAX))
        {
            let seed = seed.part(next);
            let world = World::new(seed, lot, EVENTS);
            let mut dice = seed.part(0).dice();
            let count = usize::try_from(dice.range(COMMANDS)).unwrap_or_default();
            let commands = script(&world, &mut dice, count);
            differential(&model, &*candidate, &world, &commands, seed).await?;
            next += 1;
            report.sequences += 1;
            report.commands += commands.len();
        }
        report.rows += compare_dumps(&model, &*candidate, seed).await?;
        report.stores += 1;
    }
    Ok(report)
}

/// The number of feed rows, if the raw states are the same and hold together.
async fn compare_dumps(
    model: &dyn Store,
    candidate: &dyn Store,
    seed: Seed,
) -> Result<usize, Mismatch> {
    let (expected, found) = (dump(model).await, dump(candidate).await);
    let mismatch = |what: &str, expected: String, found: String| Mismatch {
        seed,
        batch: 0,
        what: what.to_owned(),
        expected,
        found,
    };
    for (expected, found) in expected.iter().zip(&found) {
        if expected != found {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            return Err(mismatch("entries of the raw state", expected, found));
        }
    }
    if expected.len() != found.len() {
        let (expected, found) = (expected.len().to_string(), found.len().to_string());
        return Err(mismatch("sizes of the raw state", expected, found));
    }
    let floor = model.bounds().await.map_or(kukuri_core::Seq::ZERO, |bounds| bounds.floor);
    let judged = audit(&expected, floor);
    judged
        .map_err(|fault| mismatch("feed and state", "a state that holds together".into(), fault))?;
    let rows = expected.iter().filter(|entry| matches!(entry, kukuri_store::Entry::Row(_)));
    Ok(rows.count())
}
