//! Turning lines into admitted events, on all cores, a piece at a time, outside of what is measured.

use kukuri_core::admission::{Age, Door, Rate, Topicless, Verdict, screen};
use kukuri_core::{Act, Command, Limits, Source, UnixMillis};

use crate::NOW;

/// Events admitted at once; memory stays small however long the load is.
pub const PIECE_EVENTS: usize = 8 * 1024;

pub struct Load<'a> {
    pub lines: &'a [String],
}

impl<'a> Load<'a> {
    pub fn new(lines: &'a [String]) -> Self {
        Self { lines }
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Pieces of publish commands, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<Command>> {
        self.lines.chunks(PIECE_EVENTS).map(admit)
    }
}

pub fn admit(lines: &[String]) -> Vec<Command> {
    admit_at(lines, NOW.into())
}

/// The same for a node whose clock says `at`.
pub fn admit_at(lines: &[String], at: UnixMillis) -> Vec<Command> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = lines.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = lines
            .chunks(share)
            .map(|part| {
                scope.spawn(move || part.iter().map(|l| command(l, at)).collect::<Vec<_>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("the load is valid")).collect()
    })
}

fn command(line: &str, at: UnixMillis) -> Command {
    let door = Door {
        limits: &Limits::STANDARD,
        topicless: Topicless::Reject,
        age: Age::Any,
        now: at,
        handles: &|_| true,
    };
    let admitted = screen(line, Rate::Within, &door)
        .and_then(|screened| screened.verify())
        .and_then(|checked| checked.admit(Verdict::Admit, Source::Import, None));
    Command { at, act: Act::Publish(admitted.expect("the load is valid")) }
}
