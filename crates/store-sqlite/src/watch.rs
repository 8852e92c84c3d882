//! Noticing what other processes commit. SQLite counts the commits of others in `data_version`,
//! which costs next to nothing to look at.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use kukuri_core::Seq;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::desk::bounds;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Every ten seconds the tail is written into the tables, however few events it holds.
const LOOKS_PER_SETTLE: u64 = 50;

/// The thread that looks. It ends when this is dropped.
pub(crate) struct Watcher {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// `settle` is called every ten seconds.
    pub(crate) fn start(
        conn: Connection,
        heads: watch::Sender<Seq>,
        settle: impl Fn() + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("sqlite-watch".to_owned())
            .spawn(move || {
                let (mut seen, mut looks) = (None, 0);
                loop {
                    // A failed look is made good by the next one: nothing depends on this thread
                    // but how soon others' commits are noticed.
                    let version: Option<i64> =
                        conn.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
                    if version != seen
                        && let Ok(bounds) = bounds(&conn)
                    {
                        seen = version;
                        raise(&heads, bounds.head);
                    }
                    looks += 1;
                    if looks % LOOKS_PER_SETTLE == 0 {
                        settle();
                    }
                    match stopped.recv_timeout(LOOK_EVERY) {
                        Err(RecvTimeoutError::Timeout) => {}
                        Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })
            .expect("the system can start a thread");
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

/// The head only ever grows, whoever learns of it first.
pub(crate) fn raise(heads: &watch::Sender<Seq>, head: Seq) {
    heads.send_if_modified(|known| {
        let higher = head > *known;
        if higher {
            *known = head;
        }
        higher
    });
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
