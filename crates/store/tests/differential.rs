//! The differential run on itself: the model agrees with the model, and with none of the stores that
//! have a fault.

use std::sync::Arc;

use kukuri_store::{Model, Store};
use kukuri_testkit::differential::{Sabotage, Sabotaged, Several, run};
use kukuri_testkit::generate::Seed;

#[tokio::test]
async fn the_model_agrees_with_itself() {
    let seed = Seed::of_run("-p kukuri-store the_model_agrees");
    let model = |_| async { Arc::new(Model::default()) as Arc<dyn Store> };
    match run(seed, 0..200, model).await {
        Ok(report) => println!("{report:?}"),
        Err(mismatch) => panic!("{mismatch}"),
    }
}

#[tokio::test]
async fn every_sabotaged_store_is_caught() {
    let seed = Seed::of_run("-p kukuri-store every_sabotaged");
    for sabotage in Sabotage::ALL {
        let sabotaged = |_| async { Arc::new(Sabotaged::new(*sabotage)) as Arc<dyn Store> };
        // As many sequences as a back end is compared for; a rare fault may need most of them.
        match run(seed, 0..2000, sabotaged).await {
            Ok(_) => panic!("{sabotage:?} was not caught with seed {seed}"),
            Err(mismatch) => println!("{sabotage:?}: batch {} of a sequence", mismatch.batch),
        }
    }
}

/// Handles that do not share a store are no store, and the run has to notice.
#[tokio::test]
async fn handles_that_do_not_share_a_state_are_caught() {
    let torn = |_| async {
        let one: Arc<dyn Store> = Arc::new(Model::default());
        let other: Arc<dyn Store> = Arc::new(Model::default());
        Arc::new(Several::new(vec![one, other])) as Arc<dyn Store>
    };
    assert!(run(Seed(1), 0..5, torn).await.is_err());
}
