//! The model passes what every back end must pass.

use std::sync::Arc;

use kukuri_store::Model;
use kukuri_store::conformance::{Subject, failures, run};
use kukuri_testkit::differential::{Sabotage, Sabotaged};

#[tokio::test]
async fn the_model_conforms() {
    run(|| async { Subject::new(Arc::new(Model::default())) }).await;
}

/// A suite that a faulty store passes says nothing about the others.
#[tokio::test]
async fn no_sabotaged_store_conforms() {
    for sabotage in Sabotage::ALL {
        let make = || async { Subject::new(Arc::new(Sabotaged::new(*sabotage))) };
        let failures = failures(make).await;
        println!("{sabotage:?} fails {} cases", failures.len());
        assert!(!failures.is_empty(), "{sabotage:?} conforms");
    }
}
