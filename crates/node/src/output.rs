//! Lines for other programs.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Context;

/// Nobody reads our stdout any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stdout was closed")]
pub struct StdoutClosed;

/// Stdout, in whole lines.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()) }
    }

    pub fn line(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.write_all(b"\n"));
        check(written)
    }

    /// One JSON object per line.
    pub fn json(&mut self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(value).context("a line cannot be written as JSON")?)
    }

    pub fn flush(&mut self) -> anyhow::Result<()> {
        check(self.out.flush())
    }
}

fn check(written: io::Result<()>) -> anyhow::Result<()> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => StdoutClosed.into(),
        _ => anyhow::Error::new(error).context("cannot write to stdout"),
    })
}
