//! The consumers of the feed: the one place that knows which there are, and their life in a running node.

mod command;
mod metrics;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kukuri_feed::{
    AnyRunner, Consumer, ConsumerName, Home, Place, Runner, RunnerConfig, RunnerError,
};
use kukuri_index::{Index, Kinds};
use kukuri_store::{Clock, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use command::run;
pub use metrics::write as write_metrics;

/// The pause before a consumer is opened again that could not be.
const OPEN_PAUSE: Duration = Duration::from_secs(5);

/// How often the lag of consumers is looked at.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// What a node gives its consumers.
#[derive(Clone)]
pub struct Ground {
    pub store: Arc<dyn Store>,
    pub place: Place,
    pub config: RunnerConfig,
}

/// What becomes of opening a consumer: none if it has no tables and none are to be made.
type Opening =
    Pin<Box<dyn Future<Output = Result<Option<Arc<dyn AnyRunner>>, RunnerError>> + Send>>;

/// Whether tables that are missing are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Left,
}

/// A consumer that a node has.
pub struct Registration {
    pub name: ConsumerName,
    open: Box<dyn Fn(Ground, Missing) -> Opening + Send + Sync>,
}

impl Registration {
    /// A consumer by its name and how it is made.
    pub fn of<C: Consumer>(
        name: ConsumerName,
        make: impl Fn() -> C + Clone + Send + Sync + 'static,
    ) -> Self {
        let open = move |ground: Ground, missing: Missing| -> Opening {
            let consumer = make();
            let Ground { store, place, config } = ground;
            Box::pin(async move {
                let runner = match missing {
                    Missing::Made => {
                        let home = Home::open(&place, name).await?;
                        Runner::open(consumer, store, home, config).await?
                    }
                    Missing::Left => {
                        let Some(home) = Home::existing(&place, name).await? else {
                            return Ok(None);
                        };
                        Runner::existing(consumer, store, home, config).await?
                    }
                };
                Ok(Some(Arc::new(runner) as Arc<dyn AnyRunner>))
            })
        };
        Self { name, open: Box::new(open) }
    }

    /// Makes what is missing.
    pub async fn open(&self, ground: &Ground) -> Result<Arc<dyn AnyRunner>, RunnerError> {
        let opened = (self.open)(ground.clone(), Missing::Made).await?;
        Ok(opened.expect("what is missing is made"))
    }

    /// For those who only want to know: none if no node has run it yet.
    pub async fn look(&self, ground: &Ground) -> Result<Option<Arc<dyn AnyRunner>>, RunnerError> {
        (self.open)(ground.clone(), Missing::Left).await
    }
}

/// All consumers of this program. A read model is added here and nowhere else.
pub fn registered(kinds: &Kinds) -> Vec<Registration> {
    let kinds = kinds.clone();
    vec![Registration::of(Index::NAME, move || Index::new(kinds.clone()))]
}

/// The consumers that could be opened.
pub type Opened = Arc<Mutex<Vec<Arc<dyn AnyRunner>>>>;

/// The consumers of a running node. Whatever becomes of one of them, the node and the others go on.
pub struct Consumers {
    opened: Opened,
    lag_seconds: watch::Receiver<u64>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Consumers {
    pub fn start(registrations: Vec<Registration>, ground: &Ground, clock: Clock) -> Self {
        let (opened, stop) = (Opened::default(), CancellationToken::new());
        let (lag, lag_seconds) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(measure(Arc::clone(&opened), clock, lag, stop.clone()));
        for registration in registrations {
            let life = live(registration, ground.clone(), Arc::clone(&opened), stop.clone());
            tasks.spawn(life);
        }
        Self { opened, lag_seconds, stop, tasks }
    }

    /// Those that are open.
    pub fn opened(&self) -> Opened {
        Arc::clone(&self.opened)
    }

    /// How far the slowest of those that work is behind.
    pub fn lag_seconds(&self) -> watch::Receiver<u64> {
        self.lag_seconds.clone()
    }

    /// Lets them give up what they hold.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn live(registration: Registration, ground: Ground, opened: Opened, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match registration.open(&ground).await {
            Ok(runner) => {
                opened.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&runner));
                return runner.run(stop).await;
            }
            Err(error) => {
                tracing::error!(consumer = %registration.name, %error, "a consumer cannot be opened; trying again");
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(OPEN_PAUSE) => {}
        }
    }
}

/// Tells by how much the one that is furthest behind is behind.
async fn measure(opened: Opened, clock: Clock, lag: watch::Sender<u64>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let runners = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lag_ms = 0;
        for runner in runners {
            let Ok(report) = runner.report(clock()).await else { continue };
            lag_ms = report.pressing_lag_ms().max(lag_ms);
        }
        lag.send_replace(lag_ms / 1000);
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(MEASURE_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kukuri_core::{Act, Command, TopicId, UnixMillis};
    use kukuri_event::UnixSeconds;
    use kukuri_feed::{Report, Sync, Wish};
    use kukuri_store::Model;
    use kukuri_store::conformance::signing::{Author, Draft};
    use kukuri_testkit::condition::wait_for_async;
    use kukuri_testkit::scratch::Scratch;

    use super::*;

    const POSTED_AT: UnixSeconds = UnixSeconds(1_700_000_000);
    const LAG_MS: i64 = 70_900;
    /// Many times what it takes: it is looked again and again.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    async fn apply(store: &dyn Store, act: Act) {
        let command = Command { at: POSTED_AT.into(), act };
        assert!(store.apply([command].into()).await.unwrap().outcomes[0].is_ok());
    }

    async fn report(consumers: &Consumers) -> Option<Report> {
        let runner = consumers.opened.lock().unwrap().first().map(Arc::clone);
        runner?.report(POSTED_AT.into()).await.ok()
    }

    /// Posts until a consumer that is held up is behind: at first it may be reading what comes.
    async fn fall_behind(store: &dyn Store, consumers: &Consumers) {
        let mut nth = 0;
        let is_behind = wait_for_async("the consumer is behind", WAIT_MAX, async || {
            nth += 1;
            let draft = Draft::new(1, POSTED_AT).tag("t", TopicId::global()).tag("nth", nth);
            let note = Author::numbered(1).admit(&draft, POSTED_AT);
            apply(store, Act::Publish(note)).await;
            let report = report(consumers).await?;
            (report.active()?.lag_rows > 0).then_some(())
        });
        is_behind.await.unwrap();
    }

    /// Waits until the ladder is told so. A look that is under way may still tell what was before.
    async fn is_told(lag_seconds: &mut watch::Receiver<u64>, seconds: u64) {
        tokio::time::pause();
        tokio::time::advance(MEASURE_INTERVAL).await;
        tokio::time::resume();
        let told = lag_seconds.wait_for(|told| *told == seconds);
        let told = tokio::time::timeout(WAIT_MAX, told).await.map(|told| *told.unwrap());
        assert_eq!(told, Ok(seconds), "it is told something else");
    }

    #[tokio::test]
    async fn the_ladder_is_told_who_is_behind_at_work() {
        let scratch = Scratch::new().unwrap();
        let (store, is_held_up) = (Arc::new(Model::default()), Arc::new(AtomicBool::new(false)));
        apply(&*store, Act::carry(TopicId::global(), "")).await;
        let obstacle = Arc::clone(&is_held_up);
        let obstacle = move || obstacle.load(Ordering::SeqCst).then(|| "a full disk".to_owned());
        let place =
            Place::Directory { directory: scratch.path().to_owned(), sync: Sync::OffForTests };
        let config =
            RunnerConfig { obstacle: Some(Arc::new(obstacle)), ..RunnerConfig::standard() };
        let ground = Ground { store: Arc::<Model>::clone(&store), place, config };
        let now = UnixMillis(UnixMillis::from(POSTED_AT).0 + LAG_MS);
        let consumers =
            Consumers::start(registered(&Kinds::default()), &ground, Arc::new(move || now));
        let mut lag_seconds = consumers.lag_seconds();
        let works = wait_for_async("the consumer is at work", WAIT_MAX, async || {
            report(&consumers).await?.active()?.state.held.then_some(())
        });
        works.await.unwrap();

        is_held_up.store(true, Ordering::SeqCst);
        fall_behind(&*store, &consumers).await;
        is_told(&mut lag_seconds, 70).await;

        let runner = Arc::clone(&consumers.opened.lock().unwrap()[0]);
        runner.wish(Wish::Paused).await.unwrap();
        is_told(&mut lag_seconds, 0).await;
        consumers.stop().await;
    }
}
