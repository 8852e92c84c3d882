//! Units of everything else, measured in the same run: one signature check, and one sync of the disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use kukuri_event::Event;
use rustix::time::{ClockId, clock_gettime};

/// The CPU of this process so far.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What one signature check takes, in microseconds.
pub fn verify_micros(lines: &[String]) -> anyhow::Result<f64> {
    const SAMPLE_EVENTS: usize = 2_000;
    let events = lines.iter().take(SAMPLE_EVENTS).map(|line| Ok(Event::parse(line)?.identify()?));
    let events = events.collect::<anyhow::Result<Vec<_>>>()?;
    let (count, before) = (events.len(), cpu());
    for event in events {
        std::hint::black_box(event.verify()?);
    }
    Ok((cpu() - before).as_secs_f64() * 1e6 / count as f64)
}

/// What one small write takes until it is durable, in microseconds: the median of some.
pub fn sync_micros(directory: &Path) -> anyhow::Result<f64> {
    const SYNCS: usize = 100;
    let mut file = File::create(directory.join("sync"))?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(Percentiles::of(times).p50)
}

/// In microseconds.
#[derive(Clone, Copy)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: usize| match times.len() {
            0 => f64::NAN,
            count => times[(count - 1) * share / 100].as_secs_f64() * 1e6,
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}
