//! Events, signed before anything is measured.

use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};

const AUTHORS: usize = 500;
/// How many events share a second: the load is of the last minutes.
const EVENTS_PER_SECOND: usize = 100;
const CONTENT_BYTES: usize = 60;

pub struct Load {
    pub lines: Vec<String>,
}

impl Load {
    /// So many notes, spread over the topics. The content of each begins with its number, counted from
    /// `first`, so that no two loads of a run share an event.
    pub fn of(topics: &[String], events: usize, first: usize) -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = events.div_ceil(workers).max(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let part = |from: usize| {
            let lines = (from..events.min(from + share)).map(|nth| {
                let age = i64::try_from((events - nth) / EVENTS_PER_SECOND).unwrap_or(0);
                let draft = Draft::new(1, UnixSeconds(now - age))
                    .tag("t", &topics[nth % topics.len()])
                    .content(format!("{} {}", first + nth, "x".repeat(CONTENT_BYTES)));
                Author::numbered(u32::try_from(1 + nth % AUTHORS).unwrap_or(1)).sign(&draft)
            });
            lines.collect::<Vec<String>>()
        };
        let lines = thread::scope(|scope| {
            let parts: Vec<_> =
                (0..workers).map(|n| scope.spawn(move || part(n * share))).collect();
            parts.into_iter().flat_map(|part| part.join().expect("signing works")).collect()
        });
        Self { lines }
    }
}

/// The number at the beginning of the content of an event in a message.
pub fn number(message: &str) -> Option<usize> {
    let content = message.split_once("\"content\":\"")?.1;
    content.split(' ').next()?.parse().ok()
}
