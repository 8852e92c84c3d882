//! Replaceable and addressable events: the effective version of a key is the one that is marked.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kukuri_core::{Mark, MarkState, Record, Version, VersionKey};
use kukuri_event::{EventId, UnixSeconds};

use super::finding::{Findings, REBUILD, Subject};

const CHECK: &str = "versions";

/// The effective version of each key, less those that marks have accounted for.
#[derive(Debug, Default)]
pub struct Versions {
    effective: HashMap<VersionKey, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: EventId,
    created_at: UnixSeconds,
    body: u64,
}

impl Versions {
    pub fn record(&mut self, record: &Record, findings: &mut Findings) {
        let event = record.event();
        let Some(key) = VersionKey::of(event).filter(|_| record.is_effective()) else { return };
        let body = digest(record.body.json());
        let held = Held { id: event.id(), created_at: event.created_at(), body };
        if let Some(other) = self.effective.insert(key.clone(), held) {
            let problem = format!("events {} and {} are both effective", other.id, held.id);
            findings.add(CHECK, Subject::Key(key), problem, REBUILD);
        }
    }

    pub fn version(&mut self, key: &VersionKey, version: &Version, findings: &mut Findings) {
        let held = self.effective.remove(key);
        let problem = match (version.mark, held) {
            (Some(mark), Some(held)) => mismatch(mark, version, held),
            (None, Some(held)) => Some(format!("event {} is effective and not marked", held.id)),
            (Some(mark), None) if mark.state == MarkState::Effective => {
                Some(format!("event {} is marked as effective and is not", mark.event_id))
            }
            (_, None) if version.body.is_some() => {
                Some("a body is kept, and no version is effective".to_owned())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            findings.add(CHECK, Subject::Key(key.clone()), problem, REBUILD);
        }
    }

    pub fn versions_end(&self, findings: &mut Findings) {
        for (key, held) in &self.effective {
            let problem = format!("event {} is effective, and its key is not known", held.id);
            findings.add(CHECK, Subject::Key(key.clone()), problem, REBUILD);
        }
    }
}

/// What is wrong between a mark and the effective event of its key.
fn mismatch(mark: Mark, version: &Version, held: Held) -> Option<String> {
    let Held { id, created_at, body } = held;
    if mark.event_id != id || mark.state != MarkState::Effective {
        let (winner, state) = (mark.event_id, mark.state.as_str());
        return Some(format!("event {id} is effective, and the mark says {winner}, {state}"));
    }
    if mark.created_at != created_at {
        return Some(format!("event {id} is of {created_at}, and its mark of {}", mark.created_at));
    }
    if version.body.as_ref().map(|kept| digest(kept.json())) != Some(body) {
        return Some(format!("the body of event {id} is not the one that is kept with the mark"));
    }
    let until = version.deleted_until.filter(|until| created_at <= *until)?;
    Some(format!("event {id} is effective, and versions up to {until} are deleted"))
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
