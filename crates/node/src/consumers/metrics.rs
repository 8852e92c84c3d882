//! The numbers of consumers, in the text format of Prometheus.

use std::fmt::{Display, Write};
use std::sync::PoisonError;
use std::time::Duration;

use kukuri_core::UnixMillis;
use kukuri_feed::{Report, Wish};
use kukuri_index::Index;
use tokio::time::timeout;

use super::Opened;

/// How long a consumer that is asked how it is doing may take.
const REPORT_WAIT_MAX: Duration = Duration::from_secs(5);

type Number = fn(&Report) -> Option<f64>;

/// Name, sort, meaning and number. What a consumer does not have is left out.
const NUMBERS: [(&str, &str, &str, Number); 12] = [
    ("consumer_last_seq", "gauge", "The last feed row that is in.", |report| {
        Some(report.active()?.state.cursor.seq.0 as f64)
    }),
    ("consumer_lag_rows", "gauge", "Feed rows that are not in yet.", |report| {
        Some(report.active()?.lag_rows as f64)
    }),
    ("consumer_lag_seconds", "gauge", "How long the first of them has waited.", |report| {
        Some(report.active()?.lag_ms as f64 / 1000.0)
    }),
    (
        "consumer_headroom_rows",
        "gauge",
        "How many more rows the feed may let go of before one is missed.",
        |report| Some(report.active()?.headroom_rows as f64),
    ),
    ("consumer_parked", "gauge", "Rows that were put aside.", |report| {
        Some(report.active()?.state.parked as f64)
    }),
    ("consumer_fence", "gauge", "Grows with each change of hands.", |report| {
        Some(report.active()?.state.fence as f64)
    }),
    ("consumer_halted", "gauge", "Whether it waits for somebody to have a look.", |report| {
        Some(f64::from(u8::from(report.active()?.state.halted.is_some())))
    }),
    ("consumer_paused", "gauge", "Whether it was told to stand still.", |report| {
        Some(f64::from(u8::from(report.wish == Wish::Paused)))
    }),
    ("consumer_building", "gauge", "Whether a new generation is being built.", |report| {
        Some(f64::from(u8::from(report.building().is_some())))
    }),
    ("consumer_batches_total", "counter", "Batches of this process.", |report| {
        Some(report.batches as f64)
    }),
    ("consumer_batch_seconds_total", "counter", "How long they took.", |report| {
        Some(report.batch_micros as f64 / 1e6)
    }),
    ("consumer_failures_total", "counter", "Batches that failed.", |report| {
        Some(report.failures as f64)
    }),
];

/// Adds the numbers of those that are open. What cannot be read now is left out, as a gap in the curve.
pub async fn write(out: &mut String, opened: &Opened, now: UnixMillis) {
    let runners = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut reports = Vec::new();
    for runner in runners {
        if let Ok(Ok(report)) = timeout(REPORT_WAIT_MAX, runner.report(now)).await {
            reports.push(report);
        }
    }
    for (name, sort, help, number) in NUMBERS {
        let numbers = reports.iter().filter_map(|report| Some((report.name, number(report)?)));
        lines(out, (name, sort, help), numbers);
    }
    let index = reports.iter().find(|report| report.name == Index::NAME);
    if let Some(active) = index.and_then(Report::active) {
        let seconds = active.lag_ms as f64 / 1000.0;
        let help = "How long the first feed row has waited that the search does not know.";
        let name = "kukuri_index_lag_seconds";
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {seconds}");
    }
}

fn lines(
    out: &mut String,
    (name, sort, help): (&str, &str, &str),
    numbers: impl Iterator<Item = (impl Display, f64)>,
) {
    let mut numbers = numbers.peekable();
    if numbers.peek().is_some() {
        let _ = writeln!(out, "# HELP kukuri_{name} {help}\n# TYPE kukuri_{name} {sort}");
    }
    for (consumer, number) in numbers {
        let _ = writeln!(out, "kukuri_{name}{{consumer=\"{consumer}\"}} {number}");
    }
}
