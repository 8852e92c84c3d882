//! What a test's own thread says in the log, as an operator would read it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::subscriber::DefaultGuard;

/// The lines that were written since it began.
pub struct Log {
    written: Written,
    _begun: DefaultGuard,
}

impl Log {
    /// Of this thread: a test whose keeper does its rounds elsewhere would find nothing in it.
    pub fn begin() -> Self {
        let written = Written::default();
        let to = written.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true);
        let lines = lines.with_writer(move || to.clone()).finish();
        Self { written, _begun: tracing::subscriber::set_default(lines) }
    }

    /// Those with such a message.
    pub fn said(&self, message: &str) -> Vec<Value> {
        let written = self.written.0.lock().expect("nobody panics with it");
        let lines = serde_json::Deserializer::from_slice(&written).into_iter::<Value>();
        let lines = lines.map(|line| line.expect("a line is an object"));
        lines.filter(|line| line["message"] == message).collect()
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").write(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
