//! Two instances of upkeep on one store: only who holds the lease does it; and what somebody sends who has lost
//! the lease meanwhile changes nothing, whatever it was about to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{
    Act, Capacity, Command, Decision, IngestPolicy, Keeping, Outcome, Reason, Source, Storage,
};
use kukuri_node::upkeep::UpkeepSettings;
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Entry, Store, StoreError};
use kukuri_testkit::audit::audit;
use kukuri_testkit::spec::Event;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::home::Home;
use crate::rig::{DAY, LEASE_OVER, Node, SETTINGS, Time, doctor, topic};

const NOTES: usize = 20;
/// Of the topic that keeps its notes for so few days, so that they have left long before they are forgotten.
const FEW_DAYS: u32 = 3;
/// Many times what it takes.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// What the other instance was started with: it forgets less, keeps more of the feed and may hold less. So it
/// makes a difference who of the two does something, and not only how often it is done.
const OTHER: UpkeepSettings = UpkeepSettings {
    keeping: Keeping { memory_days: 365, feed_days: 60 },
    capacity: Capacity { max_events: Some(10_000), max_bytes: None },
    ..SETTINGS
};

/// What the first instance is about to do when it is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    Allow,
    Expire,
    Unlink,
    Forget,
    Trim,
}

impl Late {
    const ALL: [Self; 5] = [Self::Allow, Self::Expire, Self::Unlink, Self::Forget, Self::Trim];

    fn is(self, act: &Act) -> bool {
        match act {
            Act::Fenced { act, .. } => self.is(act),
            Act::Allow(_) => self == Self::Allow,
            Act::Expire(_) => self == Self::Expire,
            Act::Unlink { .. } => self == Self::Unlink,
            Act::Forget { .. } => self == Self::Forget,
            Act::Trim(_) => self == Self::Trim,
            _ => false,
        }
    }
}

/// Whether what upkeep sends is done only for who still holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fences {
    Kept,
    /// As if upkeep sent its commands without them.
    Missing,
}

/// Stops once before such a command, until it is let go on.
struct Dawdling {
    store: Arc<dyn Store>,
    fences: Fences,
    stops_before: Mutex<Option<Late>>,
    stopped: Notify,
    let_go: Notify,
    is_late: AtomicBool,
    /// What came of everything that was sent too late.
    outcomes: Mutex<Vec<Outcome>>,
}

impl Dawdling {
    fn new(store: Arc<dyn Store>, fences: Fences) -> Arc<Self> {
        let (stops_before, stopped, let_go, is_late, outcomes) = Default::default();
        Arc::new(Self { store, fences, stops_before, stopped, let_go, is_late, outcomes })
    }

    fn is_to_stop(&self, batch: &[Command]) -> bool {
        let mut stops_before = self.stops_before.lock().expect("nobody panics with it");
        let comes = |late: &mut Late| batch.iter().any(|command| late.is(&command.act));
        stops_before.take_if(comes).is_some()
    }
}

#[async_trait]
impl Double for Dawdling {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        if self.is_to_stop(&batch) {
            self.stopped.notify_one();
            self.let_go.notified().await;
            self.is_late.store(true, Ordering::SeqCst);
        }
        let batch = match self.fences {
            Fences::Kept => batch,
            Fences::Missing => batch.iter().map(without_fence).collect(),
        };
        let decision = self.store.apply(batch).await?;
        if self.is_late.load(Ordering::SeqCst) {
            let mut outcomes = self.outcomes.lock().expect("nobody panics with it");
            outcomes.extend(decision.outcomes.iter().cloned());
        }
        Ok(decision)
    }
}

fn without_fence(command: &Command) -> Command {
    match &command.act {
        Act::Fenced { act, .. } => Command { at: command.at, act: Act::clone(act) },
        _ => command.clone(),
    }
}

/// Takes in notes now, and says which they are.
async fn publish(node: &Node, digit: char, ends_in: Option<Duration>) -> Vec<String> {
    let now = node.time.now().seconds();
    let note = |nth| {
        let draft = Draft::new(1, now).tag("t", topic(digit)).tag("nth", nth);
        Author::numbered(1).sign(&match ends_in {
            Some(time) => draft.tag("expiration", now.0 + time.as_secs().cast_signed()),
            None => draft,
        })
    };
    let arrivals: Vec<_> = (0..NOTES).map(|nth| (note(nth), Source::Ws)).collect();
    assert!(node.publish(&arrivals).await.iter().all(String::is_empty), "all are taken in");
    let mut ids: Vec<String> = arrivals.iter().map(|(text, _)| Event::read(text).id).collect();
    ids.sort_unstable();
    ids
}

/// Which events left for which reason, each as often as the feed says so.
type Gone = BTreeMap<&'static str, Vec<String>>;

fn gone(entries: &[Entry]) -> Gone {
    let mut gone = Gone::new();
    for entry in entries {
        if let Entry::Row(row) = entry
            && let Some(reason) = row.reason
        {
            gone.entry(reason.as_str()).or_default().push(row.event_id.to_hex());
        }
    }
    gone.values_mut().for_each(|ids| ids.sort_unstable());
    gone
}

/// Lives for half a year with somebody who holds the lease all the time, until there is something of everything
/// to do that was not there to be done a moment ago. Says what is to leave then.
async fn half_a_year(node: &mut Node) -> Gone {
    let seconds = Duration::from_secs;
    let few_days = IngestPolicy { retention_days: Some(FEW_DAYS), ..IngestPolicy::default() };
    node.set_topic('a', IngestPolicy::default()).await;
    node.set_topic('b', few_days).await;
    // They are forgotten on day 180.
    publish(node, 'b', None).await;
    node.time.pass((FEW_DAYS + 1) * DAY);
    node.keep().await;
    node.time.pass((150 - FEW_DAYS - 1) * DAY);
    // They age on day 180, and so do their rows.
    let aging = publish(node, 'a', None).await;
    node.time.pass(30 * DAY - seconds(60));
    let expiring = publish(node, 'a', Some(seconds(60))).await;
    // The first of these is the last round that looks for everything, a minute before there is anything.
    for pause in [25, 25, 20] {
        node.keep().await;
        node.time.pass(seconds(pause));
    }
    let (expiration, retention) = (Reason::Expiration.as_str(), Reason::Retention.as_str());
    Gone::from([(expiration, expiring), (retention, aging)])
}

/// Who does upkeep is held up before such a command while the other one takes over, and then goes on as if nothing
/// had happened. Says what there was when it went on.
async fn hold_up(
    first: &mut Node,
    other: &mut Node,
    dawdling: &Dawdling,
    late: Late,
) -> Vec<Entry> {
    *dawdling.stops_before.lock().expect("nobody panics with it") = Some(late);
    let mut round = std::pin::pin!(first.keeper.round());
    let stopped = timeout(WAIT_MAX, dawdling.stopped.notified());
    tokio::select! {
        ended = &mut round => panic!("without {late:?} the round ended: {ended:?}"),
        stopped = stopped => stopped.expect("a round comes to it"),
    }
    other.time.pass(LEASE_OVER);
    other.keep().await;
    assert!(other.keeper.upkept().borrow().holds, "nobody else does it");
    let after = dump(&*other.store).await;
    dawdling.let_go.notify_one();
    let ended = timeout(WAIT_MAX, round).await.expect("the round ends");
    ended.expect("to have lost the lease is no failure");
    after
}

/// A round of somebody who does not hold the lease.
async fn is_not_its_turn(node: &mut Node) {
    let before = dump(&*node.store).await;
    node.keeper.round().await.expect("the round ends well");
    assert!(!node.keeper.upkept().borrow().holds, "another one holds the lease");
    assert!(dump(&*node.store).await == before, "what is not done changes nothing");
}

/// Another instance takes over while the first one is held up.
///
/// # Errors
/// What the first one still did.
async fn takeover(home: Home, late: Late, fences: Fences) -> Result<(), String> {
    let time = Time::start();
    let dawdling = Dawdling::new(home.open().await, fences);
    let mut first = Node::start(Arc::clone(&dawdling) as Arc<dyn Store>, &time);
    let leaving = half_a_year(&mut first).await;
    let mut other = Node::start_with(home.open().await, &time, OTHER, None);
    is_not_its_turn(&mut other).await;
    assert_eq!(gone(&dump(&*other.store).await), Gone::new(), "nobody has looked yet");

    // Somebody who looked at the disk gives the first one something to say.
    let act = Act::SetStorage(Storage::Full { reserve_bytes: 1 });
    assert!(other.lane.run(act).await.expect("the lane answers").is_ok());
    let after = hold_up(&mut first, &mut other, &dawdling, late).await;
    assert_eq!(gone(&after), leaving, "each leaves once");
    if dump(&*other.store).await != after {
        return Err(format!("{late:?}: something changed"));
    }
    let outcomes = std::mem::take(&mut *dawdling.outcomes.lock().expect("nobody panics with it"));
    if outcomes.is_empty() || outcomes.iter().any(|outcome| *outcome != Outcome::HeldElsewhere) {
        return Err(format!("{late:?}: {outcomes:?}"));
    }
    is_not_its_turn(&mut first).await;
    let floor = other.store.bounds().await.expect("it can be read").floor;
    assert_eq!(audit(&after, floor), Ok(()));
    assert_eq!(doctor(&*other.store).await, [] as [&str; 0]);
    other.end().await;
    first.end().await;
    Ok(())
}

async fn late_words_change_nothing(home: fn() -> Home) {
    for late in Late::ALL {
        assert_eq!(takeover(home(), late, Fences::Kept).await, Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_words_change_nothing_on_sqlite() {
    late_words_change_nothing(Home::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_words_change_nothing_on_postgres() {
    late_words_change_nothing(Home::postgres).await;
}

/// What has expired or aged has left already, whoever says so again; the others would be done by settings that are
/// those of nobody who holds the lease.
#[tokio::test(flavor = "multi_thread")]
async fn missing_fences_are_found() {
    for late in Late::ALL {
        let found = takeover(Home::model(), late, Fences::Missing).await;
        println!("{found:?}");
        let found = found.expect_err("nobody noticed");
        let changes = matches!(late, Late::Allow | Late::Forget | Late::Trim);
        assert_eq!(found.contains("something changed"), changes, "{found}");
    }
}
