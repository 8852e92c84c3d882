//! The running postmaster.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::condition::{TimedOut, wait_for};

const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Line of `postmaster.pid` that says whether the server takes connections.
const STATUS_LINE: usize = 7;

/// A postmaster and the thread that owns it.
///
/// The server dies with the thread that started it (`Account::command`), so that a killed test
/// leaves none behind. A test's own thread may end before the test does; this one ends with the
/// server.
#[derive(Debug)]
pub(super) struct Server {
    pid: Pid,
    keeper: JoinHandle<io::Result<ExitStatus>>,
}

impl Server {
    pub(super) fn spawn(mut command: Command, log: &Path) -> Result<Server> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let (sender, receiver) = mpsc::sync_channel(1);
        let keeper = thread::spawn(move || {
            let mut child = command.spawn()?;
            let _ = sender.send(Pid::from_child(&child));
            child.wait()
        });
        match receiver.recv() {
            Ok(pid) => Ok(Server { pid, keeper }),
            Err(mpsc::RecvError) => {
                let error = keeper.join().expect("the keeper does not panic");
                Err(error.expect_err("no process number was sent"))
                    .context("cannot start PostgreSQL through setpriv")
            }
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(super) fn ended(&self) -> bool {
        self.keeper.is_finished()
    }

    /// Whether this very server, and not the one before it in the same directory, takes
    /// connections.
    pub(super) fn ready(&self, data_dir: &Path) -> bool {
        let Ok(state) = fs::read_to_string(data_dir.join("postmaster.pid")) else {
            return false;
        };
        let mut lines = state.lines();
        lines.next() == Some(&self.pid().to_string())
            && lines.nth(STATUS_LINE - 1).is_some_and(|status| status.trim() == "ready")
    }

    /// Sends `signal` and waits for the end of the server.
    pub(super) fn stop(&self, signal: Signal) -> Result<(), TimedOut> {
        if !self.ended() {
            // It fails only for a server that has just ended.
            let _ = kill_process(self.pid, signal);
        }
        wait_for("the end of PostgreSQL", STOP_LIMIT, || self.ended().then_some(()))
    }
}
