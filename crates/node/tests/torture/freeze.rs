//! A PostgreSQL server that stands still, with all its processes, while its disk is copied.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kukuri_testkit::condition::wait_for;
use rustix::process::{Pid, Signal, kill_process};

const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Stopped processes. They go on when this is dropped.
pub struct Frozen {
    processes: Vec<i32>,
}

impl Frozen {
    /// Stops the server whose data lies in `directory`: the postmaster first, so that it starts no
    /// further process.
    pub fn server(directory: &Path) -> Frozen {
        let file = fs::read_to_string(directory.join("postmaster.pid")).expect("a server runs");
        let postmaster = file.lines().next().and_then(|line| line.parse().ok());
        let postmaster = postmaster.expect("the first line is the postmaster's number");
        let mut frozen = Frozen { processes: Vec::new() };
        frozen.stop(postmaster);
        for child in children(postmaster) {
            frozen.stop(child);
        }
        frozen
    }

    fn stop(&mut self, pid: i32) {
        // A child that has just ended needs no stopping.
        if signal(pid, Signal::STOP) {
            self.processes.push(pid);
            wait_for("the stop of a server process", STOP_LIMIT, || {
                let state = stat(pid).map_or('X', |stat| stat.state);
                matches!(state, 'T' | 'Z' | 'X').then_some(())
            })
            .expect("a process stops when its system call is done");
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in self.processes.iter().rev() {
            signal(*pid, Signal::CONT);
        }
    }
}

fn signal(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent)).collect()
}

struct Stat {
    state: char,
    parent: i32,
}

/// The fields follow the name, which is in parentheses and may contain any character.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}
