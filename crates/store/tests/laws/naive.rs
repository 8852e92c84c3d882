//! A relay as most are written: it takes events as they come, and a deletion takes what it finds. The
//! negative control of L4: a checker that has no objection to it checks nothing.

use kukuri_core::VersionKey;
use kukuri_event::{Class, Event, Kind, UnixSeconds};
use kukuri_testkit::spec::Effective;

pub fn show<'a>(
    arrivals: impl Iterator<Item = &'a Event>,
    now: UnixSeconds,
    handled: &[String],
) -> Effective {
    let mut kept: Vec<&Event> = Vec::new();
    for event in arrivals {
        let expired = event.tags().expiration().is_some_and(|end| end <= now);
        if expired || event.kind().class() == Class::Ephemeral || links(event, handled).is_empty() {
            continue;
        }
        if event.kind() == Kind::DELETION {
            let named = |target: &Event| {
                let by_id = event.tags().event_ids().any(|id| id == target.id());
                let key = VersionKey::of(target);
                by_id || event.tags().addresses().any(|a| Some(VersionKey::from(a)) == key)
            };
            kept.retain(|target| !named(target));
        }
        if let Some(key) = VersionKey::of(event) {
            // The newest wins; of equally new ones, whichever came last.
            let older = |other: &&Event| VersionKey::of(other).as_ref() == Some(&key);
            if kept
                .iter()
                .copied()
                .any(|other| older(&other) && other.created_at() > event.created_at())
            {
                continue;
            }
            kept.retain(|other| !older(other));
        }
        kept.push(event);
    }
    kept.iter().map(|event| (event.id().to_hex(), links(event, handled))).collect()
}

fn links(event: &Event, handled: &[String]) -> std::collections::BTreeSet<String> {
    let topics = event.tags().values("t").map(str::to_owned);
    topics.filter(|topic| handled.contains(topic)).collect()
}
