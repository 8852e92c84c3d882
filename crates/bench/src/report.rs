//! What is said of a measurement.

use serde_json::{Map, Value, json};

/// One line.
pub struct Report(Map<String, Value>);

impl Report {
    pub fn new(scenario: &str, relay: &str) -> Self {
        Self(Map::new()).with("scenario", scenario).with("relay", relay)
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// With one digit behind the point.
    #[must_use]
    pub fn rounded(self, name: &str, value: f64) -> Self {
        self.with(name, json!((value * 10.0).round() / 10.0))
    }

    pub fn number(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    pub fn print(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(&self.0)?);
        Ok(())
    }
}
