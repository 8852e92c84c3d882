use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM: the wish that the program ends in good order.
pub struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())? })
    }

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.int.recv() => "SIGINT",
            _ = self.term.recv() => "SIGTERM",
        }
    }
}

/// SIGHUP: the wish that settings are read again.
pub struct Reloads(Signal);

impl Reloads {
    pub fn listen() -> anyhow::Result<Self> {
        signal(SignalKind::hangup()).map(Self).context("cannot listen for signals")
    }

    pub async fn next(&mut self) {
        // A stream of signals has no end.
        self.0.recv().await;
    }
}
