//! Two relays on one PostgreSQL.

use std::sync::Arc;

use kukuri_relay::OpenGate;
use kukuri_store_postgres::{Fsync, Options, PostgresStore, Wakeup};
use kukuri_testkit::postgres::{Cluster, Durability};
use serde_json::json;

use crate::rig::{Rig, config, note, signed, topic};

async fn rig(url: &str, wakeup: Wakeup) -> Rig {
    let options = Options { fsync: Fsync::AnyForTests, wakeup, ..Options::STANDARD };
    let store = PostgresStore::open(url, options).await.unwrap();
    Rig::over(Arc::new(store), config(), OpenGate).await
}

/// What one takes in the other sends live, whether it is told of commits or has to look for them: a
/// store that only polls tells nobody, so what listens to it hears no notification at all.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_takes_in_the_other_sends_told_or_not() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let told = [(Wakeup::Notify, Wakeup::Notify), (Wakeup::PollOnly, Wakeup::Notify)];
    for (publishing, listening) in told {
        let url = cluster.create_database();
        let (a, b) = (rig(&url, publishing).await, rig(&url, listening).await);
        let (mut writer, mut reader) = (a.client().await, b.client().await);
        assert!(reader.request("s", json!({"#t": [topic(1)]})).await.is_empty());
        for nth in 0..3 {
            let event = signed(&note(&format!("{publishing:?} {nth}")));
            writer.publish_ok(&event).await;
            assert_eq!(reader.expect().await, json!(["EVENT", "s", event]));
        }
    }
}
