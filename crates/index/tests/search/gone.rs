//! What is gone is gone from the index itself, soon after the row of the feed that says so: not only left
//! out by those who look up what was found.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Command, IngestPolicy, TopicId, UnixMillis, UnlinkReason};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_feed::{Runner, RunnerConfig};
use kukuri_index::{Ask, Index, Searcher, Start};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model as StoreModel, Store};
use kukuri_testkit::condition::wait_for_async;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::rig::Rig;
use crate::scene::NOW;

/// Within a second of its row, and here so many times as long for a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const SLACK: u32 = 5;
/// Nothing else that is waited for takes as long.
const LIMIT: Duration = Duration::from_secs(120);

const EXPIRES_AT: i64 = NOW + 60;
/// Regular events are kept for thirty days.
const PURGED_AT: i64 = NOW + 31 * 24 * 60 * 60;

struct Feed(Arc<dyn Store>);

impl Feed {
    async fn apply(&self, at: i64, act: Act) {
        let command = Command { at: UnixSeconds(at).into(), act };
        let applied = self.0.apply(Arc::new([command])).await.expect("the model takes everything");
        assert!(applied.outcomes[0].is_ok(), "{:?}", applied.outcomes[0]);
    }

    async fn publish(&self, draft: Draft) -> EventId {
        let draft = draft.tag("t", TopicId::global());
        let admitted = Author::numbered(1).admit(&draft, UnixSeconds(NOW));
        let id = admitted.event().id();
        self.apply(NOW, Act::Publish(admitted)).await;
        id
    }
}

/// Until exactly these are found.
async fn finds(searcher: &Searcher, expected: &[EventId], within: Duration) {
    let start = Start::First { now: UnixSeconds(NOW) };
    let ask = Ask::new("窓", vec![TopicId::global()], start).expect("a word");
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let found = wait_for_async("exactly what is there", within, async || {
        let hits = searcher.search(&ask).await.ok()?.page.hits;
        let mut found: Vec<EventId> = hits.iter().map(|hit| hit.event_id).collect();
        found.sort_unstable();
        (found == expected).then_some(())
    });
    found.await.expect("the index follows");
}

/// A feed in memory, and the index of a rig, which follows it.
struct Stage {
    feed: Feed,
    searcher: Searcher,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Stage {
    async fn open(rig: &Rig) -> Self {
        let feed = Feed(Arc::new(StoreModel::default()));
        feed.apply(NOW, Act::carry(TopicId::global(), String::new())).await;
        let (home, config) = (rig.home.clone(), RunnerConfig::standard());
        let runner = Runner::open(Index::default(), Arc::clone(&feed.0), home, config).await;
        let (runner, stop) = (runner.expect("the runner opens"), CancellationToken::new());
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { runner.run(stop).await }
        });
        Self { feed, searcher: Searcher::new(rig.home.clone()), stop, running }
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.expect("it does not panic");
    }
}

fn note(text: &str) -> Draft {
    Draft::new(1, UnixSeconds(NOW)).content(format!("窓 {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_replaced_or_expired_leaves_within_a_second_of_its_row() {
    for rig in Rig::both().await {
        let stage = Stage::open(&rig).await;
        let Stage { feed, searcher, .. } = &stage;
        let version = |age: i64| Draft::new(30_023, UnixSeconds(NOW - age)).tag("d", "a");

        let deleted = feed.publish(note("deleted")).await;
        let replaced = feed.publish(version(10).content("窓 replaced")).await;
        let expired = feed.publish(note("expired").tag("expiration", EXPIRES_AT)).await;
        let stays = feed.publish(note("stays")).await;
        finds(searcher, &[deleted, replaced, expired, stays], LIMIT).await;

        let gone_within = GONE_WITHIN * SLACK;
        let deletion = Draft::new(5, UnixSeconds(NOW)).tag("e", deleted.to_hex());
        feed.publish(deletion).await;
        finds(searcher, &[replaced, expired, stays], gone_within).await;
        feed.publish(version(0).content("a newer version, without the word")).await;
        finds(searcher, &[expired, stays], gone_within).await;
        feed.apply(EXPIRES_AT, Act::Expire(vec![expired])).await;
        finds(searcher, &[stays], gone_within).await;
        stage.end().await;
    }
}

/// Why an operator or the node lets go of events. Each holds on the day of the purge.
const REASONS: [UnlinkReason; 4] = [
    UnlinkReason::Topic,
    UnlinkReason::Before(UnixMillis((NOW + 1) * 1000)),
    UnlinkReason::Retention,
    UnlinkReason::Capacity,
];

/// With these the bodies go as well: of what there was, only the row still tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_purged_leaves_within_a_second_of_its_row() {
    for rig in Rig::both().await {
        let stage = Stage::open(&rig).await;
        let Stage { feed, searcher, .. } = &stage;
        let mut left = Vec::new();
        for reason in REASONS {
            left.push(feed.publish(note(&format!("{reason:?}"))).await);
        }
        let stays = feed.publish(note("stays")).await;
        left.push(stays);
        finds(searcher, &left, LIMIT).await;

        // A topic that may hold nothing holds too much, whatever else is there.
        feed.apply(NOW, full()).await;
        for reason in REASONS {
            let events = vec![left.remove(0)];
            let topic = TopicId::global();
            feed.apply(PURGED_AT, Act::Unlink { topic, events, reason }).await;
            finds(searcher, &left, GONE_WITHIN * SLACK).await;
        }
        assert_eq!(left, [stays]);
        stage.end().await;
    }
}

/// The global topic may hold nothing.
fn full() -> Act {
    Act::SetTopic {
        topic_id: TopicId::global(),
        name: String::new(),
        enabled: true,
        pinned: true,
        wanted: 0,
        ingest_policy: IngestPolicy { max_events: Some(0), ..IngestPolicy::default() },
    }
}
