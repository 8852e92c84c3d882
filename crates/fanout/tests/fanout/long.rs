//! Replays of many rows: page by page, and while everyone else goes on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kukuri_core::Seq;
use kukuri_fanout::{
    Attached, Delivery, Detached, Due, FanoutConfig, Full, Mailbox, SubKey, Subscription,
};
use tokio::runtime::Handle;

use crate::letterbox::Letterbox;
use crate::slow::Scene;

/// How many rows a late subscription is given at a time.
const PAGE_ROWS: u32 = 256;
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A letterbox in which one delivery gets stuck until it is told to go on.
struct Gate {
    letterbox: Arc<Letterbox>,
    /// How many deliveries pass before that one.
    free: AtomicUsize,
    stuck: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Mailbox for Gate {
    fn is_open(&self, sub: SubKey) -> bool {
        self.letterbox.is_open(sub)
    }

    fn deliver(&self, delivery: Delivery) -> Result<Due, Full> {
        if self.free.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.stuck.send(()).unwrap();
            let told = self.go_on.lock().unwrap().recv_timeout(WAIT_MAX);
            told.expect("nobody waits for who is stuck");
        }
        self.letterbox.deliver(delivery)
    }

    fn send(&self) {}

    fn detached(&self, sub: SubKey, why: Detached) {
        self.letterbox.detached(sub, why);
    }
}

/// A replay that is stuck in the middle of its second page.
struct Stuck {
    scene: Arc<Scene>,
    subscription: Subscription,
    letterbox: Arc<Letterbox>,
    go_on: Sender<()>,
    /// A thread of its own, so that none of the runtime's is stuck as well.
    attached: JoinHandle<Attached>,
}

impl Stuck {
    async fn new() -> (Self, Seq) {
        let scene = Arc::new(Scene::with(FanoutConfig::STANDARD).await);
        let head = scene.publish_many(0..2 * PAGE_ROWS + 1).await;
        let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
        let ((stuck, wait), (go_on, told)) = (channel(), channel());
        let free = AtomicUsize::new(PAGE_ROWS as usize + 10);
        let gate = Gate { letterbox: letterbox.clone(), free, stuck, go_on: Mutex::new(told) };
        let (stage, late, runtime) = (scene.clone(), subscription.clone(), Handle::current());
        let attach = move || {
            let gate = Arc::new(gate);
            runtime.block_on(stage.attach(&late, &gate, Seq::ZERO))
        };
        let attached = thread::spawn(attach);
        wait.recv_timeout(WAIT_MAX).expect("the replay gets stuck");
        (Self { scene, subscription, letterbox, go_on, attached }, head)
    }

    fn release(self) -> (Attached, Vec<Seq>) {
        self.go_on.send(()).unwrap();
        let attached = self.attached.join().expect("the replay ends");
        (attached, seqs(&self.letterbox, &self.subscription))
    }
}

/// A replay from the ring used to be one long stretch with the lock held: nobody was attached or
/// detached meanwhile, and no row went to anyone.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_replay_holds_up_nobody() {
    let (stuck, head) = Stuck::new().await;
    let scene = Arc::clone(&stuck.scene);
    let (letterbox, other) = (Letterbox::new(), scene.subscription());
    assert_eq!(scene.attach(&other, &letterbox, head).await, Attached::Live(head));
    let further = scene.publish_many(5_000..5_003).await;
    assert_eq!(seqs(&letterbox, &other), span(head, further));
    scene.fanout.detach(other.key);
    assert_eq!(scene.fanout.stats().subscriptions, 0);

    // What came meanwhile is given to who was stuck, in its turn.
    let (subscription, late) = (stuck.subscription.clone(), stuck.letterbox.clone());
    let (attached, given) = stuck.release();
    assert_eq!(attached, Attached::Live(further));
    assert_eq!(given, span(Seq::ZERO, further));
    let last = scene.publish_many(5_003..5_004).await;
    assert_eq!(seqs(&late, &subscription), span(Seq::ZERO, last));
}

/// Who is closed in the middle of a replay does not become live.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_replay_can_be_closed() {
    let (stuck, _) = Stuck::new().await;
    let scene = Arc::clone(&stuck.scene);
    stuck.letterbox.close(stuck.subscription.key);
    scene.fanout.detach(stuck.subscription.key);
    let (attached, given) = stuck.release();
    assert_eq!(attached, Attached::Closed);
    assert_eq!(given, span(Seq::ZERO, Seq(i64::from(2 * PAGE_ROWS))), "the page it was in");
    assert_eq!(scene.fanout.stats().subscriptions, 0);
}

/// No row is lost or given twice where one page ends and the next begins, nor when the mailbox is
/// full anywhere in one; from the ring as from the feed.
#[tokio::test(flavor = "multi_thread")]
async fn pages_meet_exactly() {
    for ring_rows_max in [0, 300, FanoutConfig::STANDARD.ring_rows_max] {
        let config = FanoutConfig { ring_rows_max, ..FanoutConfig::STANDARD };
        let scene = Scene::with(config).await;
        let head = scene.publish_many(0..2 * PAGE_ROWS + 1).await;
        for missing in [0, 1, 255, 256, 257, 511, 512, 513] {
            for room in [100, 256, 257, 1_000] {
                let after = Seq(head.0 - missing);
                let given = catch_up(&scene, after, room).await;
                assert_eq!(given, span(after, head), "{ring_rows_max} {missing} {room}");
            }
        }
    }
}

/// Attaches with so much room at a time, until the subscription is live.
async fn catch_up(scene: &Scene, after: Seq, room: usize) -> Vec<Seq> {
    let (letterbox, subscription) = (Letterbox::new(), scene.subscription());
    let mut seq = after;
    loop {
        letterbox.make_room(room);
        match scene.attach(&subscription, &letterbox, seq).await {
            Attached::Behind(cursor) => seq = cursor.seq,
            attached => break assert!(matches!(attached, Attached::Live(_)), "{attached:?}"),
        }
    }
    scene.fanout.detach(subscription.key);
    seqs(&letterbox, &subscription)
}

fn seqs(letterbox: &Letterbox, subscription: &Subscription) -> Vec<Seq> {
    letterbox.delivered(subscription.key).into_iter().filter_map(|(seq, _)| seq).collect()
}

/// The seqs after one, up to another.
fn span(after: Seq, last: Seq) -> Vec<Seq> {
    (after.0 + 1..=last.0).map(Seq).collect()
}
