//! Connections for reads of one sort, a bounded number of them. A read runs on the thread that asks
//! for it: a thread of its own would have to be woken for every read, and so would the caller for the
//! answer, which on a quiet machine takes longer than most reads do. Where all reads together could
//! hold every worker of the runtime, it is told that they may block, which costs a third of a read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kukuri_store::StoreError;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::timeout;

use crate::desk::Desk;

/// How long a read waits for others to end.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Readers {
    permits: Arc<Semaphore>,
    free: Arc<Free>,
    /// How many reads may run at once, those of other sorts included.
    reads_max: usize,
}

/// The desks at which nobody reads: as many as there are permits.
struct Free(Mutex<Vec<Desk>>);

impl Readers {
    pub(crate) fn new(desks: Vec<Desk>, reads_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(desks.len()));
        Self { permits, reads_max, free: Arc::new(Free(Mutex::new(desks))) }
    }

    pub(crate) async fn read<T, E>(
        &self,
        job: impl FnOnce(&mut Desk) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.run(job).await?
    }

    async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> T + Send + 'static,
    {
        let mut loan = self.lend().await?;
        let read = move || job(loan.desk.as_mut().expect("a loan has its desk until it ends"));
        let defect = || StoreError::Unavailable("a read panicked: please report it".into());
        let runtime = Handle::current();
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return spawn_blocking(read).await.map_err(|_| defect());
        }
        // What panics has left its transaction, and shares nothing else with later reads.
        let read = || catch_unwind(AssertUnwindSafe(read));
        let others_go_on = runtime.metrics().num_workers() > self.reads_max;
        if others_go_on { read() } else { block_in_place(read) }.map_err(|_| defect())
    }

    async fn lend(&self) -> Result<Loan, StoreError> {
        let permit = timeout(WAIT_MAX, Arc::clone(&self.permits).acquire_owned()).await;
        let busy = || StoreError::Unavailable("all connections for reads are in use".into());
        let permit = permit.map_err(|_| busy())?.expect("the permits are never closed");
        let desk = self.free.with(Vec::pop);
        Ok(Loan { desk, free: Arc::clone(&self.free), _permit: permit })
    }
}

impl Free {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Desk>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A desk in use. It goes back however the read ends: one that panicked has left its transaction.
struct Loan {
    desk: Option<Desk>,
    free: Arc<Free>,
    /// Given back after the desk.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let desk = self.desk.take();
        self.free.with(|free| free.extend(desk));
    }
}

#[cfg(test)]
mod tests {
    use kukuri_core::{ReadSet, TopicId};
    use kukuri_event::UnixSeconds;
    use kukuri_store::Store;
    use tempfile::TempDir;
    use tokio::sync::{mpsc, oneshot};
    use tokio::task::JoinSet;

    use super::*;
    use crate::{Options, SqliteStore, Sync};

    const QUESTIONS: usize = 3;
    /// Less than a read waits for others, so that one that has to wait is noticed.
    const LIMIT: Duration = Duration::from_secs(5);

    /// Questions that take as long as the senders of the channels live.
    async fn hold(store: &Arc<SqliteStore>) -> (Vec<oneshot::Sender<()>>, JoinSet<()>) {
        let (begun, mut begins) = mpsc::channel(QUESTIONS);
        let (mut holds, mut asked) = (Vec::new(), JoinSet::new());
        for _ in 0..QUESTIONS {
            let (hold, held) = oneshot::channel::<()>();
            holds.push(hold);
            let (store, begun) = (Arc::clone(store), begun.clone());
            asked.spawn(async move {
                let question = store.questions.run(move |_| {
                    begun.blocking_send(()).expect("the test waits");
                    held.blocking_recv().expect_err("nothing is ever sent");
                });
                question.await.expect("a question ends well");
            });
        }
        for _ in 0..QUESTIONS {
            begins.recv().await.expect("every question begins");
        }
        (holds, asked)
    }

    /// Clients could ask so much that live delivery, which reads the feed and facts, waited for a
    /// connection until it gave up: all reads stood in one line.
    #[tokio::test]
    async fn glances_do_not_wait_for_questions() {
        let directory = TempDir::new().expect("a temporary directory");
        let options =
            Options { sync: Sync::OffForTests, readers: QUESTIONS, run_events: 1, epoch: 1 };
        let store = SqliteStore::open(directory.path(), options).expect("a fresh store opens");
        let store = Arc::new(store);
        let (holds, mut asked) = hold(&store).await;
        assert_eq!(store.questions.permits.available_permits(), 0, "all are in use");
        let glances = async {
            let start = store.bounds().await.expect("bounds").start();
            store.feed(start, 10).await.expect("rows");
            store.facts(ReadSet::default()).await.expect("facts");
            store.topics().await.expect("topics");
            store.linked(TopicId::global(), 10).await.expect("linked events");
            store.expired(UnixSeconds(1), 10).await.expect("expired events");
        };
        timeout(LIMIT, glances).await.expect("no glance waits");
        drop(holds);
        while let Some(ended) = asked.join_next().await {
            ended.expect("no question panics");
        }
    }
}
