//! Mailboxes without room, feeds that end, events that are not stored.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Command, Cursor, Seq, TopicId};
use kukuri_event::{Filter, Kind, UnixSeconds};
use kukuri_fanout::{Attached, Detached, Fanout, FanoutConfig, Mailbox, Subscription};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use kukuri_testkit::generate::World;
use tokio::time::timeout;

use crate::letterbox::Letterbox;

const TOPIC: &str = "kukuri:global";
const WAIT_MAX: Duration = Duration::from_secs(30);

pub struct Scene {
    store: Arc<Model>,
    pub fanout: Fanout,
    author: Author,
}

impl Scene {
    async fn new() -> Self {
        let config = FanoutConfig { ring_rows_max: 4, page_rows_max: 3, ..FanoutConfig::STANDARD };
        Self::with(config).await
    }

    pub async fn with(config: FanoutConfig) -> Self {
        let store = Arc::new(Model::default());
        let carried = Act::carry(TopicId::global(), String::new());
        apply(&*store, vec![carried]).await;
        let fanout = Fanout::start(store.clone(), Arc::new(World::now), config).await.unwrap();
        Self { store, fanout, author: Author::numbered(1) }
    }

    fn draft(&self, kind: u16, content: &str) -> Draft {
        let tags = vec![vec!["t".to_owned(), TOPIC.to_owned()]];
        let created_at = World::NOW;
        Draft { kind: Kind(kind), created_at, tags, content: content.to_owned() }
    }

    async fn publish(&self, drafts: impl IntoIterator<Item = Draft>) {
        let acts = drafts.into_iter().map(|d| Act::Publish(self.author.admit(&d, World::NOW)));
        apply(&*self.store, acts.collect()).await;
    }

    /// Publishes so many events and waits until they are passed on.
    pub async fn publish_many(&self, events: std::ops::Range<u32>) -> Seq {
        self.publish(events.map(|nth| self.draft(1, &nth.to_string()))).await;
        let head = self.store.bounds().await.unwrap().head;
        self.reach(head).await;
        head
    }

    async fn reach(&self, head: Seq) {
        let reached = async {
            while self.fanout.stats().position < head {
                tokio::task::yield_now().await;
            }
        };
        timeout(WAIT_MAX, reached).await.expect("the fan-out reaches the head");
    }

    pub fn subscription(&self) -> Subscription {
        let filters = vec![Filter::parse(&format!(r##"{{"#t":["{TOPIC}"]}}"##)).unwrap()];
        Subscription { key: self.fanout.new_key(), filters: filters.into() }
    }

    pub async fn attach(
        &self,
        to: &Subscription,
        letterbox: &Arc<impl Mailbox + 'static>,
        seq: Seq,
    ) -> Attached {
        let mailbox: Arc<dyn Mailbox> = letterbox.clone();
        let cursor = Cursor { epoch: self.fanout.epoch(), seq };
        self.fanout.attach(to, &mailbox, cursor).await.unwrap()
    }
}

pub async fn apply(store: &dyn Store, acts: Vec<Act>) {
    let batch: Vec<Command> =
        acts.into_iter().map(|act| Command { at: World::now(), act }).collect();
    store.apply(batch.into()).await.unwrap();
}

/// Whoever has no room is taken out, told where it stands, and catches up from the feed without a gap
/// or a repeat, as often as it takes.
#[tokio::test]
async fn a_full_mailbox_loses_nothing() {
    let scene = Scene::new().await;
    let (letterbox, subscription) = (Letterbox::with_room(2), scene.subscription());
    assert_eq!(scene.attach(&subscription, &letterbox, Seq::ZERO).await, Attached::Live(Seq::ZERO));
    scene.publish_many(0..20).await;
    let detached = letterbox.take_detached();
    let [(key, Detached::Behind(mut cursor))] = detached[..] else { panic!("{detached:?}") };
    assert_eq!((key, cursor.seq), (subscription.key, Seq(2)));
    loop {
        letterbox.make_room(3);
        match scene.attach(&subscription, &letterbox, cursor.seq).await {
            Attached::Behind(further) => cursor = further,
            attached => break assert_eq!(attached, Attached::Live(Seq(20))),
        }
    }
    letterbox.make_room(100);
    let head = scene.publish_many(20..25).await;
    let seqs: Vec<Seq> =
        letterbox.delivered(subscription.key).into_iter().filter_map(|(seq, _)| seq).collect();
    assert_eq!(seqs, (1..=head.0).map(Seq).collect::<Vec<_>>());
    assert_eq!(letterbox.take_detached(), []);
}

/// A subscription that was read ahead of the fan-out is not given what it has read already.
#[tokio::test]
async fn rows_up_to_s_are_not_delivered() {
    let scene = Scene::new().await;
    let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
    // The fan-out's task does not run before this test waits for something.
    let drafts = (0..3).map(|nth| scene.draft(1, &nth.to_string()));
    scene.publish(drafts.collect::<Vec<_>>()).await;
    let head = scene.store.bounds().await.unwrap().head;
    assert!(scene.fanout.stats().position < head, "the fan-out is not behind");
    assert_eq!(scene.attach(&subscription, &letterbox, head).await, Attached::Live(head));
    scene.reach(head).await;
    assert_eq!(letterbox.delivered(subscription.key), []);
    scene.publish_many(3..4).await;
    assert_eq!(letterbox.delivered(subscription.key).len(), 1);
}

#[tokio::test]
async fn a_detached_subscription_gets_nothing_more() {
    let scene = Scene::new().await;
    let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
    let _ = scene.attach(&subscription, &letterbox, Seq::ZERO).await;
    scene.publish_many(0..1).await;
    scene.fanout.detach(subscription.key);
    scene.publish_many(1..2).await;
    assert_eq!(letterbox.delivered(subscription.key).len(), 1);
    assert_eq!(scene.fanout.stats().subscriptions, 0);
    // Nor does one that was closed before it was live.
    letterbox.close(subscription.key);
    assert_eq!(scene.attach(&subscription, &letterbox, Seq(2)).await, Attached::Closed);
    assert_eq!(scene.fanout.stats().subscriptions, 0);
}

/// An event whose time has come is not sent, although nobody has swept it yet.
#[tokio::test]
async fn expired_events_are_not_sent() {
    let scene = Scene::new().await;
    let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
    let mut draft = scene.draft(1, "brief");
    let end = UnixSeconds(World::NOW.0 - 50);
    draft.tags.push(vec!["expiration".to_owned(), end.0.to_string()]);
    draft.created_at = UnixSeconds(World::NOW.0 - 100);
    let act = Act::Publish(scene.author.admit(&draft, draft.created_at));
    let at = kukuri_core::UnixMillis::from(draft.created_at);
    scene.store.apply(vec![Command { at, act }].into()).await.unwrap();
    let head = scene.publish_many(0..1).await;
    assert_eq!(head, Seq(2));
    assert_eq!(scene.attach(&subscription, &letterbox, Seq::ZERO).await, Attached::Live(head));
    let seqs: Vec<_> = letterbox.delivered(subscription.key).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, [Some(Seq(2))]);
}

#[tokio::test]
async fn ephemeral_events_go_to_who_wants_them() {
    let scene = Scene::new().await;
    let (letterbox, subscription) = (Letterbox::with_room(1), scene.subscription());
    let _ = scene.attach(&subscription, &letterbox, Seq::ZERO).await;
    for content in ["one", "two"] {
        let admitted = scene.author.admit(&scene.draft(20_001, content), World::NOW);
        scene.fanout.pass(admitted.body(), admitted.topics()).await;
    }
    let delivered = letterbox.delivered(subscription.key);
    assert_eq!(delivered.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [None]);
    let stats = scene.fanout.stats();
    assert_eq!((stats.deliveries, stats.overflows), (1, 1));
}

/// A cursor into another feed is an error, never a guess.
#[tokio::test]
async fn a_cursor_of_another_feed_is_refused() {
    let scene = Scene::new().await;
    let letterbox: Arc<dyn Mailbox> = Letterbox::new();
    let epoch = kukuri_core::Epoch(scene.fanout.epoch().0 + 1);
    let cursor = Cursor { epoch, seq: Seq::ZERO };
    let refused = scene.fanout.attach(&scene.subscription(), &letterbox, cursor).await;
    assert!(matches!(refused, Err(kukuri_store::FeedError::Cursor(_))), "{refused:?}");
}

/// An event that was deleted meanwhile is not given to who comes late, from the ring or from the feed.
#[tokio::test]
async fn what_is_gone_is_not_replayed() {
    let scene = Scene::new().await;
    let target = scene.author.admit(&scene.draft(1, "regretted"), World::NOW);
    let mut deletion = scene.draft(5, "");
    deletion.tags.push(vec!["e".to_owned(), target.event().id().to_hex()]);
    let deletion = scene.author.admit(&deletion, World::NOW);
    scene.fanout.remember(target.body());
    apply(&*scene.store, vec![Act::Publish(target), Act::Publish(deletion.clone())]).await;
    let head = scene.store.bounds().await.unwrap().head;
    scene.reach(head).await;
    for rows_since in [0..1, 1..20] {
        let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
        let _ = scene.attach(&subscription, &letterbox, Seq::ZERO).await;
        let delivered = letterbox.delivered(subscription.key);
        assert_eq!(delivered.first().map(|(_, id)| *id), Some(deletion.event().id()));
        // The next time the ring does not reach back so far.
        scene.publish_many(rows_since).await;
    }
}
