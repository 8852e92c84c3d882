//! How gossip is doing, and where other processes can read it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kukuri_core::UnixMillis;
use kukuri_gossip::GossipStatus;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::clock::clock;

/// What is older was written by a node that runs no longer.
const AGE_MAX: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gossiping {
    pub state: State,
    /// While it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<GossipStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is nobody to meet, or the node is not to.
    Off,
    Starting,
    /// Another instance does it.
    Standby,
    Running,
    Failed(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Starting => f.write_str("starting"),
            Self::Standby => f.write_str("standing by: another instance is in the swarms"),
            Self::Running => f.write_str("running"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

impl Gossiping {
    /// What is wrong, if something is that should not be.
    pub fn trouble(&self) -> Result<(), String> {
        match &self.state {
            State::Failed(why) => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Report {
    at: UnixMillis,
    /// Who has written it.
    pid: u32,
    #[serde(flatten)]
    told: Gossiping,
}

fn path(directory: &Path) -> PathBuf {
    directory.join("status.json")
}

/// Puts it where `read` looks; the file is whole at any time.
pub fn write(directory: &Path, told: &Gossiping) -> std::io::Result<()> {
    let report = Report { at: clock(None)(), pid: std::process::id(), told: told.clone() };
    let (path, new) = (path(directory), directory.join("status.json.new"));
    std::fs::write(&new, serde_json::to_vec(&report)?)?;
    std::fs::rename(new, path)
}

/// Nobody gossips here any more.
pub fn remove(directory: &Path) {
    // What is left is too old soon.
    let _ = std::fs::remove_file(path(directory));
}

/// What a node that runs here has told lately.
pub fn read(directory: &Path) -> Option<Gossiping> {
    let report: Report = serde_json::from_slice(&std::fs::read(path(directory)).ok()?).ok()?;
    let age = report.at.until(clock(None)());
    (age <= AGE_MAX && is_there(report.pid)).then_some(report.told)
}

/// Whether a process is there. One that was killed has left its report behind.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}
