//! The processor time of a process and its children, living and collected.

use std::fs;
use std::time::Duration;

/// User and system time in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Usage {
    parent: i32,
    own: u64,
    /// Of the children it has collected.
    collected: u64,
}

/// The time that `pid` and its direct children have used, and that of children which have ended.
pub fn time_of_family(pid: i32) -> Duration {
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    loop {
        let Some(before) = usage(pid) else {
            return Duration::ZERO;
        };
        let children: u64 = processes()
            .filter_map(usage)
            .filter(|usage| usage.parent == pid)
            .map(|usage| usage.own + usage.collected)
            .sum();
        // A child that was collected meanwhile is in neither sum or in both, so both are taken
        // again.
        if usage(pid).is_some_and(|after| after.collected == before.collected) {
            let ticks = before.own + before.collected + children;
            return Duration::from_millis(ticks * 1000 / ticks_per_second);
        }
    }
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn usage(pid: i32) -> Option<Usage> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields after the name, as `proc(5)` numbers them: 4 the parent, 14 to 17 the times.
fn parse(stat: &str) -> Option<Usage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    let ticks = |number| field(number)?.parse::<u64>().ok();
    Some(Usage {
        parent: field(4)?.parse().ok()?,
        own: ticks(14)? + ticks(15)?,
        collected: ticks(16)? + ticks(17)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_own_from_collected_time() {
        let stat = "7 (post gres) S 5 7 7 0 -1 0 0 0 0 0 100 20 3000 400 20 0 1 0 9 0 0";
        assert_eq!(parse(stat), Some(Usage { parent: 5, own: 120, collected: 3400 }));
    }
}
