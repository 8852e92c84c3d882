//! What became of the lines, in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use kukuri_core::Outcome;

/// Refused lines that are shown one by one; a report has all of them.
const REFUSED_SHOWN_MAX: usize = 20;

#[derive(Debug, Default)]
pub struct Counts {
    pub accepted: u64,
    pub duplicates: u64,
    /// Passed on to nobody: they are never stored.
    pub ephemeral: u64,
    refused: BTreeMap<&'static str, u64>,
    refused_first: Vec<(u64, String)>,
    /// Lines that storage had no answer for.
    pub failed: u64,
    /// The last line before which every line has an answer.
    pub last_line: u64,
}

impl Counts {
    pub fn add(&mut self, line: u64, outcome: &Outcome) {
        match outcome {
            Outcome::Accepted | Outcome::Done => self.accepted += 1,
            Outcome::Duplicate(_) => self.duplicates += 1,
            Outcome::Ephemeral => self.ephemeral += 1,
            Outcome::Refused(rejection) => {
                *self.refused.entry(rejection.name()).or_default() += 1;
                if self.refused_first.len() < REFUSED_SHOWN_MAX {
                    self.refused_first.push((line, rejection.to_string()));
                }
            }
            Outcome::Removed(_)
            | Outcome::Held(_)
            | Outcome::HeldElsewhere
            | Outcome::TopicInUse => {
                unreachable!("events never have this outcome")
            }
        }
    }

    pub fn refused(&self) -> u64 {
        self.refused.values().sum()
    }

    /// How many were refused, by the name of the reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refused.iter().map(|(reason, count)| (*reason, *count))
    }

    pub fn answered(&self) -> u64 {
        self.accepted + self.duplicates + self.ephemeral + self.refused()
    }

    /// The counts for people, one per line.
    pub fn to_text(&self, name: &str, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let rate = self.answered() as f64 / seconds;
        let mut text = format!("{name}: {} events in {seconds:.1} s", self.answered());
        text.push_str(&format!(" ({rate:.0} per second)\n"));
        let mut row =
            |name: &str, count: u64| text.push_str(&format!("  {name:<20} {count:>10}\n"));
        row("accepted", self.accepted);
        row("duplicate", self.duplicates);
        if self.ephemeral > 0 {
            row("ephemeral", self.ephemeral);
        }
        row("refused", self.refused());
        self.refused.iter().for_each(|(reason, count)| row(&format!("  {reason}"), *count));
        for (line, message) in &self.refused_first {
            text.push_str(&format!("line {line}: {message}\n"));
        }
        let more = self.refused() - self.refused_first.len() as u64;
        if more > 0 {
            text.push_str(&format!("and {more} more refused lines: --report FILE lists all\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kukuri_core::{Duplicate, Rejection};

    #[test]
    fn outcomes_are_counted_by_reason_and_the_first_refusals_shown() {
        let mut counts = Counts::default();
        counts.add(1, &Outcome::Accepted);
        counts.add(2, &Outcome::Duplicate(Duplicate::Stale));
        (3..40).for_each(|line| counts.add(line, &Outcome::Refused(Rejection::BadSignature)));
        let text = counts.to_text("x.jsonl", Duration::from_secs(2));
        assert!(text.starts_with("x.jsonl: 39 events in 2.0 s (20 per second)\n"), "{text}");
        assert!(text.contains("    bad_signature              37\n"), "{text}");
        assert!(text.contains("line 22: invalid: bad signature\nand 17 more"), "{text}");
        assert!(!text.contains("line 23:") && !text.contains("ephemeral"), "{text}");
    }
}
