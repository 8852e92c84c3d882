//! The model passes what every back end must pass.

use std::sync::Arc;

use kukuri_store::Model;
use kukuri_store::conformance::{Subject, run};

#[tokio::test]
async fn the_model_conforms() {
    run(|| async {
        let model = Arc::new(Model::default());
        let truncated = model.clone();
        Subject {
            store: model,
            truncate: Some(Box::new(move |floor| {
                truncated.truncate(floor);
                Box::pin(async {})
            })),
        }
    })
    .await;
}
