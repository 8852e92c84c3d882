//! The report: one JSON object per input line, written once what it says is durable.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use kukuri_event::EventId;
use serde::Serialize;

use super::reader::is_stdin;

pub struct Report {
    path: PathBuf,
    out: BufWriter<Box<dyn Write + Send>>,
}

#[derive(Serialize)]
struct Line<'a> {
    line: u64,
    id: Option<String>,
    ok: bool,
    message: &'a str,
}

impl Report {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let out: Box<dyn Write + Send> = if is_stdin(path) {
            Box::new(io::stdout())
        } else {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write the report {}", path.display()))?)
        };
        Ok(Self { path: path.to_owned(), out: BufWriter::new(out) })
    }

    pub fn line(
        &mut self,
        line: u64,
        id: Option<EventId>,
        ok: bool,
        message: &str,
    ) -> anyhow::Result<()> {
        let entry = Line { line, id: id.map(|id| id.to_hex()), ok, message };
        let text = serde_json::to_string(&entry).context("a report line cannot be written")?;
        writeln!(self.out, "{text}").with_context(|| self.place())
    }

    /// Called after every batch: what is in the report has happened, and little that has happened
    /// is not in it.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.out.flush().with_context(|| self.place())
    }

    fn place(&self) -> String {
        format!("cannot write the report {}", self.path.display())
    }
}
