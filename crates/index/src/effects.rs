//! What a batch of the feed does to documents and endorsements, worked out without looking at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kukuri_core::{Seq, TopicId, VersionKey};
use kukuri_event::{Event, EventId, Kind};

use crate::document::{Document, DocumentKey, Target, text_of};
use crate::endorsement::{Endorsement, Sort};
use crate::kinds::{Kinds, is_public};
use crate::text::Text;

/// Each key once: the last word of the batch on it. So writing effects twice is writing them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub documents: BTreeMap<DocumentKey, DocumentEffect>,
    /// By the event that endorses; `None` if it endorses nothing any more.
    pub endorsements: BTreeMap<EventId, Option<Endorsement>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentEffect {
    Put(Document),
    /// The target says where the document is, if it is there.
    Remove {
        target: Target,
    },
}

impl DocumentEffect {
    pub fn target(&self) -> Target {
        match self {
            Self::Put(document) => document.target,
            Self::Remove { target } => *target,
        }
    }
}

/// That an event stopped being visible in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub event_id: EventId,
    pub topic_id: TopicId,
    pub kind: Kind,
    pub target: Target,
    /// The other topics in which it still is.
    pub remaining: usize,
}

/// Makes the effects of a batch, told in the order of the feed.
pub struct Projection<'a> {
    kinds: &'a Kinds,
    effects: Effects,
    /// The text of the last event: it often comes once for each of its topics.
    last: Option<(EventId, Arc<Text>)>,
}

impl<'a> Projection<'a> {
    pub fn new(kinds: &'a Kinds) -> Self {
        Self { kinds, effects: Effects::default(), last: None }
    }

    /// Whether events of a kind change anything.
    pub fn wants(kinds: &Kinds, kind: Kind) -> bool {
        kinds.contains(kind) || Sort::of_kind(kind).is_some()
    }

    /// An event is visible in a topic, since a row of the feed.
    pub fn arrive(&mut self, event: &Event, topic_id: &TopicId, seq: Seq) {
        if self.kinds.admit(event) {
            let key = DocumentKey { event_id: event.id(), topic_id: topic_id.clone() };
            let document = Document {
                created_at: event.created_at(),
                seq,
                target: Target::of(event.id(), VersionKey::of(event).as_ref()),
                text: self.text(event),
                key: key.clone(),
            };
            self.effects.documents.insert(key, DocumentEffect::Put(document));
        }
        if let Some(endorsement) = Endorsement::of(event).filter(|_| is_public(event)) {
            self.effects.endorsements.insert(event.id(), Some(endorsement));
        }
    }

    pub fn leave(&mut self, departure: Departure) {
        let Departure { event_id, topic_id, kind, target, remaining } = departure;
        if self.kinds.contains(kind) {
            let key = DocumentKey { event_id, topic_id };
            self.effects.documents.insert(key, DocumentEffect::Remove { target });
        }
        if remaining == 0 && Sort::of_kind(kind).is_some() {
            self.effects.endorsements.insert(event_id, None);
        }
    }

    pub fn finish(self) -> Effects {
        self.effects
    }

    fn text(&mut self, event: &Event) -> Arc<Text> {
        match &self.last {
            Some((id, text)) if *id == event.id() => Arc::clone(text),
            _ => {
                let text = Arc::new(text_of(event));
                self.last = Some((event.id(), Arc::clone(&text)));
                text
            }
        }
    }
}
