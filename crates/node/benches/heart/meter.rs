//! Reading the clock of the CPU.

use std::time::{Duration, Instant};

use kukuri_event::Event;
use rustix::time::{ClockId, clock_gettime};

/// The cost of one signature, the unit of everything else. It is measured beside each figure: a
/// machine that others share is quicker at one moment than at another.
#[derive(Clone, Copy, Default)]
pub struct Verify {
    events: usize,
    cpu: Duration,
}

impl Verify {
    /// What a few signatures cost now.
    pub fn now(lines: &[String]) -> anyhow::Result<Self> {
        const SAMPLE_EVENTS: usize = 1_000;
        let sample = lines.iter().take(SAMPLE_EVENTS);
        let events = sample.map(|line| Ok(Event::parse(line)?.identify()?));
        let events = events.collect::<anyhow::Result<Vec<_>>>()?;
        let (count, before) = (events.len(), cpu());
        for event in events {
            std::hint::black_box(event.verify()?);
        }
        Ok(Self { events: count, cpu: cpu() - before })
    }

    /// The lesser of two that are measured over as many signatures.
    pub fn min(self, other: Self) -> Self {
        if other.cpu < self.cpu { other } else { self }
    }

    pub fn add(&mut self, other: Self) {
        self.events += other.events;
        self.cpu += other.cpu;
    }

    pub fn micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.events as f64
    }
}

/// CPU time of this process so far, all threads.
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The median and the 99th percentile, in microseconds.
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
}

impl Percentiles {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e6;
        Self { p50: at(50), p99: at(99) }
    }
}

/// Bytes this process has handed to the system to write.
pub fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let field = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How long something took.
pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = run();
    (value, start.elapsed())
}
