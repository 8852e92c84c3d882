//! Noticing what other processes commit, and when nobody does. SQLite counts the commits of other
//! connections in `data_version`, which costs next to nothing to look at.
//!
//! In a quiet moment the write-ahead log is moved into the file: a read looks for each of its pages in
//! the log first, and without one it finds them where they are mapped, in two thirds of the time. Where
//! there is none it is moved all the same, so that little is left to move for who writes when the log is full.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use kukuri_core::Seq;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::desk::bounds;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Every three seconds the log is moved while others write to it: a page that many batches changed is
/// written to the file once, and batches wait for the disk less often.
const LOOKS_PER_MOVE: u64 = 15;
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
                let (mut seen, mut moved, mut looks) = (None, None, 0);
                loop {
                    // A failed look is made good by the next one: nothing depends on this thread
                    // but how soon others' commits are noticed.
                    let version: Option<i64> =
                        conn.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
                    if version != seen {
                        if let Ok(bounds) = bounds(&conn) {
                            seen = version;
                            raise(&heads, bounds.head);
                        }
                    } else if version != moved && move_log(&conn) {
                        moved = version;
                    }
                    looks += 1;
                    if version != moved && looks % LOOKS_PER_MOVE == 0 {
                        move_log(&conn);
                    }
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

/// Moves as much of the log into the file as no reader is in the way of, beside who writes meanwhile.
/// Says whether that was all.
fn move_log(conn: &Connection) -> bool {
    let moved = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (log_frames, moved_frames): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(log_frames == moved_frames)
    });
    moved.unwrap_or(false)
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
