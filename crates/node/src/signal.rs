use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM: the wish that the program ends in good order.
pub struct Interrupts(Option<[Signal; 2]>);

impl Interrupts {
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self(Some([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?])))
    }

    /// For work that others end.
    pub fn never() -> Self {
        Self(None)
    }

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        match &mut self.0 {
            None => std::future::pending().await,
            Some([int, term]) => tokio::select! {
                _ = int.recv() => "SIGINT",
                _ = term.recv() => "SIGTERM",
            },
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
