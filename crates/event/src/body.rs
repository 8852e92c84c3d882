use crate::{Event, ParseError, json};

/// An event together with its canonical JSON. Built from a verified event, or restored from a store
/// into which only verified events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    event: Event,
    json: String,
}

impl Body {
    pub(crate) fn new(event: Event) -> Self {
        let json = json::write(&event);
        Self { event, json }
    }

    /// Reads back what a store holds. It was verified before it was stored, so only its shape is
    /// looked at; `doctor` verifies again.
    pub fn restore(json: String) -> Result<Self, ParseError> {
        Ok(Self { event: json::parse(&json)?, json })
    }

    pub fn event(&self) -> &Event {
        &self.event
    }

    pub fn json(&self) -> &str {
        &self.json
    }
}
