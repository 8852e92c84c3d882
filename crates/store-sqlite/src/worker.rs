//! Threads that own connections. Jobs reach them through bounded queues and answer through a
//! channel of their own, so that async code never blocks on the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use kukuri_store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::desk::Desk;

/// Jobs that may wait for one thread; more make the sender wait.
const QUEUE_JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// One or more threads, each with a connection and a queue of its own. A job goes to the thread
/// that has the fewest.
pub(crate) struct Workers {
    threads: Vec<Worker>,
}

struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    /// Jobs that are queued or running.
    busy: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(name: &str, desks: Vec<Desk>) -> Self {
        Self { threads: desks.into_iter().map(|desk| Worker::start(name, desk)).collect() }
    }

    fn idlest(&self) -> &Worker {
        // A thread that has ended, because a job of it panicked, has no jobs and must not get any.
        let ended = |worker: &Worker| worker.jobs.as_ref().is_none_or(mpsc::Sender::is_closed);
        let busy = |worker: &&Worker| (ended(worker), worker.busy.load(Ordering::Relaxed));
        self.threads.iter().min_by_key(busy).expect("there is a thread for every desk")
    }

    /// Leaves a job that nobody waits for, unless the queue is full.
    pub(crate) fn leave(&self, job: impl FnOnce(&mut Desk) + Send + 'static) {
        let worker = self.idlest();
        let job = worker.counted(job);
        if let Some(jobs) = &worker.jobs {
            let _ = jobs.try_send(job);
        }
    }

    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> T + Send + 'static,
    {
        let gone =
            || StoreError::Unavailable("the storage thread has ended; restart the node".into());
        let (answer, wait) = oneshot::channel();
        let worker = self.idlest();
        let job = worker.counted(move |desk| {
            // A caller that gave up does not hear the answer.
            let _ = answer.send(job(desk));
        });
        let jobs = worker.jobs.as_ref().expect("the queue is open until the worker is dropped");
        jobs.send(job).await.map_err(|_| gone())?;
        wait.await.map_err(|_| gone())
    }
}

impl Worker {
    fn start(name: &str, mut desk: Desk) -> Self {
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
        Self { jobs: Some(jobs), busy: Arc::default(), thread: Some(thread) }
    }

    /// The job, counted as long as it exists: a job that is never run ends as well.
    fn counted(&self, job: impl FnOnce(&mut Desk) + Send + 'static) -> Job {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&self.busy));
        Box::new(move |desk| {
            job(desk);
            drop(counted);
        })
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
