//! The relay that is measured.

use std::fs;
use std::time::{Duration, Instant};

use kukuri_testkit::cpu::time_of_family;
use tokio::time::sleep;

/// Stores tidy up every ten seconds.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(15);
const QUIET_LOOK_INTERVAL: Duration = Duration::from_millis(500);

pub struct Target {
    pub name: String,
    pub url: String,
    pub pids: Vec<i32>,
    pub topics: Vec<String>,
}

impl Target {
    /// What its processes have used so far.
    pub fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| time_of_family(*pid)).sum()
    }

    /// Waits until it has nothing left to do of what came before, for as long as that may take.
    pub async fn quiet(&self) {
        let start = Instant::now();
        let mut before = self.cpu();
        while start.elapsed() < QUIET_WAIT_MAX {
            sleep(QUIET_LOOK_INTERVAL).await;
            let now = self.cpu();
            if now.saturating_sub(before) < QUIET_LOOK_INTERVAL / 20 {
                return;
            }
            before = now;
        }
    }

    /// What its processes hold, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.pids.iter().filter_map(|pid| resident_bytes(*pid)).sum()
    }
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
