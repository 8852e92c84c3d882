//! The relay that is measured.

use std::fs;
use std::time::Duration;

use kukuri_testkit::cpu::time_of_family;

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
