//! Times, and what they are measured in.

use std::time::Duration;

use kukuri_event::{Event, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::postgres::Cluster;

const CHECKS: usize = 2000;

/// How long one signature check takes here and now.
pub fn verify_micros() -> f64 {
    let draft = Draft::new(1, UnixSeconds(1_700_000_000)).content("a note");
    let text = Author::numbered(1).sign(&draft);
    let event = Event::parse(&text).expect("an event").identify().expect("its id holds");
    let begin = cpu(None);
    for _ in 0..CHECKS {
        event.clone().verify().expect("its signature holds");
    }
    (cpu(None) - begin).as_secs_f64() * 1e6 / CHECKS as f64
}

/// Processor time of this process and the server.
pub fn cpu(cluster: Option<&Cluster>) -> Duration {
    let times = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = Duration::new(times.tv_sec as u64, times.tv_nsec as u32);
    own + cluster.map_or(Duration::ZERO, Cluster::cpu_time)
}

#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub fn line(&self) -> String {
        let count = self.0.len();
        format!("p50 {:.0} µs, p99 {:.0} µs (of {count})", self.micros(50), self.micros(99))
    }

    /// So many percent took at most as long.
    pub fn micros(&self, percent: usize) -> f64 {
        let mut times = self.0.clone();
        times.sort_unstable();
        let place = times.len().saturating_sub(1) * percent / 100;
        times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}
