//! Effective events: each one is remembered by dedupe under its number, and none is deleted.

use std::collections::HashMap;

use kukuri_core::{Dedupe, Record, Seq, TombstoneKey};
use kukuri_event::{EventId, Kind, Pubkey};

use super::finding::{Findings, REBUILD, Subject};

/// The effective events by id, less those that dedupe has accounted for.
#[derive(Debug, Default)]
pub struct Effective {
    events: HashMap<EventId, Held>,
    /// The last id of dedupe, which is walked in order.
    last_remembered: Option<EventId>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    seq: Seq,
    pubkey: Pubkey,
    deletion: bool,
    remembered: bool,
}

impl Effective {
    pub fn record(&mut self, record: &Record, findings: &mut Findings) {
        let event = record.event();
        let sorted = record.links.is_sorted_by(|a, b| a.topic < b.topic);
        let sorted = sorted && record.left.is_sorted_by(|a, b| a < b);
        let later = record.links.iter().all(|link| link.seq >= record.seq);
        let apart = record.left.iter().all(|topic| record.link(topic).is_none());
        if record.links.is_empty() || !sorted || !later || !apart {
            let problem = "its links are empty, out of order, older than the event, or given up";
            findings.add("links", Subject::Event(event.id()), problem, REBUILD);
        }
        if !record.is_effective() {
            return;
        }
        let held = Held {
            seq: record.seq,
            pubkey: event.pubkey(),
            deletion: event.kind() == Kind::DELETION,
            remembered: false,
        };
        if self.events.insert(event.id(), held).is_some() {
            findings.add("records", Subject::Event(event.id()), "it is stored twice", REBUILD);
        }
    }

    pub fn dedupe(&mut self, id: EventId, dedupe: &Dedupe, findings: &mut Findings) {
        if self.last_remembered.replace(id) == Some(id) {
            findings.add("dedupe", Subject::Event(id), "it is remembered twice", REBUILD);
        }
        let Some(held) = self.events.get_mut(&id) else { return };
        held.remembered = true;
        if dedupe.seq != Some(held.seq) {
            let said = dedupe.seq.map_or("none".to_owned(), |seq| seq.to_string());
            let problem = format!("its number is {}, and dedupe says {said}", held.seq);
            findings.add("dedupe", Subject::Event(id), problem, REBUILD);
        }
    }

    pub fn dedupe_end(&self, findings: &mut Findings) {
        for (id, _) in self.events.iter().filter(|(_, held)| !held.remembered) {
            let problem = "it is visible, and dedupe does not know it";
            findings.add("dedupe", Subject::Event(*id), problem, REBUILD);
        }
    }

    pub fn tombstone(&self, key: &TombstoneKey, findings: &mut Findings) {
        let target = self.events.get(&key.target);
        // Deletions cannot be deleted, and nobody deletes what is not theirs.
        if target.is_some_and(|held| held.pubkey == key.pubkey && !held.deletion) {
            let problem = "its author deleted it, and it is visible";
            findings.add("tombstones", Subject::Event(key.target), problem, REBUILD);
        }
    }
}
