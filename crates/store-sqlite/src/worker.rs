//! The thread that owns the connection for writes. Jobs reach it through a bounded queue and answer
//! through a channel of their own, so that async code never waits for the disk.

use std::thread::JoinHandle;

use kukuri_store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::desk::Desk;

/// Jobs that may wait for the thread; more make the sender wait.
const QUEUE_JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

pub(crate) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(name: &str, mut desk: Desk) -> Self {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE_JOBS_MAX);
        let work = move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut desk);
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .expect("the system can start a thread");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }

    fn jobs(&self) -> &mpsc::Sender<Job> {
        self.jobs.as_ref().expect("the queue is open until the worker is dropped")
    }

    /// Leaves a job that nobody waits for, unless the queue is full.
    pub(crate) fn leave(&self, job: impl FnOnce(&mut Desk) + Send + 'static) {
        let _ = self.jobs().try_send(Box::new(job));
    }

    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> T + Send + 'static,
    {
        let gone =
            || StoreError::Unavailable("the storage thread has ended; restart the node".into());
        let (answer, wait) = oneshot::channel();
        let job = Box::new(move |desk: &mut Desk| {
            // A caller that gave up does not hear the answer.
            let _ = answer.send(job(desk));
        });
        self.jobs().send(job).await.map_err(|_| gone())?;
        wait.await.map_err(|_| gone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
