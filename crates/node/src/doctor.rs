//! `doctor`: whether what is stored can be what the rules left, and what to do if not.
//!
//! The checks are pure: they take the entries of each table and the rows of the feed, and hold them
//! against each other. The walk in [`walk`] brings them what a store holds, page by page, beside
//! whatever else writes to it: events, keys and topics that changed during the walk are not judged.

mod bodies;
mod checks;
mod feed;
mod finding;
mod found;
mod records;
mod usage;
mod versions;
mod walk;

pub use checks::{Checks, Moved};
pub use finding::{Finding, Subject};
pub use walk::{Examined, Walk};

use serde::Serialize;

use crate::cli::{Common, DoctorArgs};
use crate::exit::Exit;
use crate::open::open_existing;
use crate::output::Output;

/// Findings of one check that are printed; the rest is counted.
const SHOWN_PER_CHECK_MAX: usize = 50;

pub async fn run(common: &Common, args: DoctorArgs) -> anyhow::Result<Exit> {
    let opened = open_existing(common).await?;
    let sample = if args.all { u64::MAX } else { args.sample };
    let offset = (opened.clock)().0.unsigned_abs();
    let examined = Walk::new(&*opened.store, sample, offset).run().await?;
    let mut printer = Printer { json: args.json, out: Output::stdout() };
    printer.print(&examined)?;
    eprint!("{}", summary(&opened.place, &examined));
    // What was found and not kept may have been a fault.
    let clean = examined.findings.is_empty() && examined.dropped == 0;
    Ok(if clean { Exit::Done } else { Exit::Findings })
}

struct Printer {
    json: bool,
    out: Output,
}

/// A finding as `doctor --json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    check: &'static str,
    subject: String,
    problem: &'a str,
    advice: &'static str,
}

impl Printer {
    fn print(&mut self, examined: &Examined) -> anyhow::Result<()> {
        let mut shown = std::collections::BTreeMap::<&str, usize>::new();
        for finding in &examined.findings {
            if self.json {
                self.out.json(&Line {
                    check: finding.check,
                    subject: finding.subject.to_string(),
                    problem: &finding.problem,
                    advice: finding.advice,
                })?;
                continue;
            }
            let shown = shown.entry(finding.check).or_default();
            *shown += 1;
            if *shown <= SHOWN_PER_CHECK_MAX {
                eprintln!("{finding}");
            }
        }
        for (check, count) in shown {
            if count > SHOWN_PER_CHECK_MAX {
                let more = count - SHOWN_PER_CHECK_MAX;
                eprintln!("{check}: and {more} more: --json lists all");
            }
        }
        self.out.flush()
    }
}

fn summary(place: &str, examined: &Examined) -> String {
    let Examined { rows, records, verified, .. } = examined;
    let mut text = format!("{place}: {rows} feed rows, {records} events, {verified} signatures");
    let found = examined.findings.len();
    match found {
        0 => text.push_str(": nothing wrong\n"),
        1 => text.push_str(": 1 finding\n"),
        _ => text.push_str(&format!(": {found} findings\n")),
    }
    if examined.dropped > 0 {
        text.push_str(&format!("{} more were found and not kept\n", examined.dropped));
    }
    if examined.moved > 0 {
        text.push_str(&format!(
            "{} events and topics changed meanwhile and were not judged: for those, run it again \
             when nothing is written\n",
            examined.moved
        ));
    }
    text
}
