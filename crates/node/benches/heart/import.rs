//! `kukuri-node import` as people run it: a file, a new store, all cores.

use std::io::Write;
use std::process::{Command, Stdio};

use kukuri_event::Event;
use kukuri_testkit::generate::bulk::Bulk;
use tempfile::TempDir;

use crate::NOW;
use crate::backend::{Kind, server};
use crate::commit::Cost;
use crate::meter::timed;

pub fn measure(
    kind: Kind,
    bulk: &Bulk,
    lines: &[String],
    commit: Option<Cost>,
) -> anyhow::Result<()> {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = directory.path().join("events.jsonl");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file)?);
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()?;
    let cluster = (kind == Kind::Postgres).then(server).transpose()?;
    let url = cluster.as_ref().map(|cluster| cluster.socket_url(&cluster.create_named()));
    let node = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kukuri-node"));
        command.args(["--now", &NOW.0.to_string(), "--data"]).arg(directory.path().join("data"));
        if let Some(url) = &url {
            command.args(["--database", url]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    for nth in 0..bulk.topics {
        anyhow::ensure!(
            node().args(["topic", "add", &bulk.topic(nth)]).status()?.success(),
            "topic add"
        );
    }
    let before = verify_alone(lines);
    let (status, took) = timed(|| node().args(["import", "--any-age"]).arg(&file).status());
    anyhow::ensure!(status?.success(), "the import succeeds");
    let ceiling = (before + verify_alone(lines)) / 2.0;
    let rate = lines.len() as f64 / took.as_secs_f64();
    println!(
        "import: {rate:.0} events/s = {:.0} % of verification alone on the same cores ({ceiling:.0}/s)",
        100.0 * rate / ceiling,
    );
    if let Some(commit) = commit {
        println!(
            "  of at most {:.0} %, verify / (verify + commit)",
            100.0 / (1.0 + commit.ratio())
        );
    }
    Ok(())
}

/// Events per second when all cores do nothing but parse and verify.
fn verify_alone(lines: &[String]) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (checked, took) = timed(|| {
        std::thread::scope(|scope| {
            let parts: Vec<_> = lines
                .chunks(lines.len().div_ceil(cores))
                .map(|part| scope.spawn(move || part.iter().filter(|line| verifies(line)).count()))
                .collect();
            parts.into_iter().map(|part| part.join().expect("no check panics")).sum::<usize>()
        })
    });
    checked as f64 / took.as_secs_f64()
}

fn verifies(line: &str) -> bool {
    let identified = Event::parse(line).ok().and_then(|event| event.identify().ok());
    identified.is_some_and(|event| event.verify().is_ok())
}
