//! A thousand subscribers, of whom two hundred stop reading.

use std::sync::Arc;

use kukuri_relay::{OpenGate, RelayConfig, RelayLimits};
use kukuri_store::Store;
use kukuri_store_postgres::{Fsync, PostgresStore};
use kukuri_store_sqlite::{Options, SqliteStore, Sync};
use kukuri_testkit::postgres::{Cluster, Durability};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::rig::{Client, Rig, config, id, note, signed, topic, until};

const HEALTHY: usize = 800;
const STALLED: usize = 200;
const EVENTS: usize = 500;
const CONTENT_BYTES: usize = 1_000;
/// More than an event and what surrounds it.
const EVENT_BYTES_MAX: u64 = 2_000;
const OUTBOUND_BYTES_MAX: usize = 128 * 1024;

fn limits() -> RelayLimits {
    RelayLimits {
        outbound_bytes_max: OUTBOUND_BYTES_MAX,
        lag_rows_max: 50,
        connections_per_ip_max: HEALTHY + 2 * STALLED,
        ..config().limits
    }
}

/// Subscribes from the beginning of the feed, so that every event comes with a cursor.
async fn subscribed(mut client: Client, after: &str) -> Client {
    client.send(json!(["REQ", "s", {"#t": [topic(1)], "after": after}])).await;
    client
}

/// Ids and the last cursor of what comes, until the relay says that this is all or ends it; and why.
async fn hear(client: &mut Client, events_max: usize) -> (Vec<String>, Option<String>, Value) {
    let (mut ids, mut cursor) = (Vec::new(), None);
    while ids.len() < events_max {
        let Some(message) = client.next().await else { return (ids, cursor, Value::Null) };
        match message[0].as_str() {
            Some("EVENT") => {
                ids.push(id(&message[2]));
                cursor = message[3]["cursor"].as_str().map(str::to_owned);
            }
            Some("EOSE") => {}
            _ => return (ids, cursor, message),
        }
    }
    (ids, cursor, Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_stop_reading_delay_nobody_and_lose_nothing_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { sync: Sync::OffForTests, ..Options::standard(1) };
    crowd(Arc::new(SqliteStore::open(directory.path(), options).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_stop_reading_delay_nobody_and_lose_nothing_on_postgres() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let options = kukuri_store_postgres::Options {
        fsync: Fsync::AnyForTests,
        ..kukuri_store_postgres::Options::STANDARD
    };
    crowd(Arc::new(PostgresStore::open(&cluster.create_database(), options).await.unwrap())).await;
}

async fn crowd(store: Arc<dyn Store>) {
    let rig = Rig::over(store, RelayConfig { limits: limits(), ..config() }, OpenGate).await;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(subscribed(rig.narrow_client().await, "").await);
    }
    let mut healthy = JoinSet::new();
    for _ in 0..HEALTHY {
        let mut client = subscribed(rig.client().await, "").await;
        healthy.spawn(async move { hear(&mut client, EVENTS).await.0 });
    }
    until("all are live", || rig.fanout.stats().subscriptions == HEALTHY + STALLED).await;

    let mut writer = rig.client().await;
    let mut expected = Vec::new();
    for nth in 0..EVENTS {
        let event = signed(&note(&format!("{nth} {}", "x".repeat(CONTENT_BYTES))));
        writer.publish_ok(&event).await;
        expected.push(id(&event));
    }
    // Who reads has everything while the others have read nothing.
    while let Some(heard) = healthy.join_next().await {
        assert_eq!(heard.unwrap(), expected);
    }
    let slow = u64::try_from(STALLED).unwrap();
    until("all others are let go", || rig.relay.stats().subscriptions_too_slow == slow).await;

    for mut client in stalled {
        let (mut heard, cursor, why) = hear(&mut client, usize::MAX).await;
        assert_eq!(why, json!(["CLOSED", "s", "error: too slow"]));
        assert!(heard.len() < EVENTS, "it had everything before it was let go");
        let mut again = subscribed(rig.client().await, &cursor.unwrap_or_default()).await;
        let missed = EVENTS - heard.len();
        heard.extend(hear(&mut again, missed).await.0);
        assert_eq!(heard, expected);
    }
    rig.relay.close().await;
    let peak = rig.relay.stats().outbound_bytes_peak;
    let bound = u64::try_from(OUTBOUND_BYTES_MAX).unwrap() + EVENT_BYTES_MAX;
    assert!(peak <= bound, "{peak} bytes waited for one connection");
}
