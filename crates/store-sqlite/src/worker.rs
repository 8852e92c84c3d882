//! Threads that own connections. Jobs reach them through a bounded queue and answer through a
//! channel of their own, so that async code never blocks on the disk.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use kukuri_store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::desk::Desk;

/// Jobs that may wait for a free thread; more make the sender wait.
const QUEUE_JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// One or more threads, each with a connection of its own, serving one queue.
pub(crate) struct Workers {
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(name: &str, desks: Vec<Desk>) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>(QUEUE_JOBS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let threads = desks.into_iter().map(|mut desk| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    while let Some(job) = next(&queue) {
                        job(&mut desk);
                    }
                })
                .expect("the system can start a thread")
        });
        Self { jobs: Some(jobs), threads: threads.collect() }
    }

    /// Leaves a job that nobody waits for, unless the queue is full.
    pub(crate) fn leave(&self, job: impl FnOnce(&mut Desk) + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.try_send(Box::new(job));
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
        let job = Box::new(move |desk: &mut Desk| {
            // A caller that gave up does not hear the answer.
            let _ = answer.send(job(desk));
        });
        let jobs = self.jobs.as_ref().expect("the queue is open until the workers are dropped");
        jobs.send(job).await.map_err(|_| gone())?;
        wait.await.map_err(|_| gone())
    }
}

fn next(queue: &Mutex<mpsc::Receiver<Job>>) -> Option<Job> {
    queue.lock().expect("no thread panics while it waits for a job").blocking_recv()
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
