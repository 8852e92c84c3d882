//! The index in memory, by definition: look at everything, keep what matches. It is the oracle of the
//! back ends.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::Seq;
use kukuri_event::{EventId, Pubkey};

use crate::document::{Document, DocumentKey, Number, Target};
use crate::effects::{DocumentEffect, Effects};
use crate::endorsement::{Endorsement, Sort};
use crate::rank::POPULARITY_MAX;
use crate::search::{Ask, Candidate, Page, Ranking, TopicKey};

/// Documents and endorsements in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    documents: BTreeMap<DocumentKey, Document>,
    endorsements: BTreeMap<EventId, Endorsement>,
}

impl Model {
    pub fn apply(&mut self, effects: Effects) {
        for (key, effect) in effects.documents {
            match effect {
                DocumentEffect::Put(document) => self.documents.insert(key, document),
                DocumentEffect::Remove { .. } => self.documents.remove(&key),
            };
        }
        for (event, endorsement) in effects.endorsements {
            match endorsement {
                Some(endorsement) => self.endorsements.insert(event, endorsement),
                None => self.endorsements.remove(&event),
            };
        }
    }

    /// What makes the same of an empty index.
    pub fn effects(&self) -> Effects {
        let put = |document: &Document| DocumentEffect::Put(document.clone());
        let documents = self.documents.iter().map(|(key, one)| (key.clone(), put(one)));
        let endorsements = self.endorsements.iter().map(|(event, one)| (*event, Some(*one)));
        Effects { documents: documents.collect(), endorsements: endorsements.collect() }
    }

    /// How many say so, each author once per sort.
    fn popularity(&self, target: &Target) -> u32 {
        let of = self.endorsements.values().filter(|endorsement| endorsement.target == *target);
        let voices: BTreeSet<(Pubkey, Sort)> = of.map(|one| (one.author, one.sort)).collect();
        voices.len().min(POPULARITY_MAX as usize) as u32
    }

    /// `head` is up to where it has been told of the feed.
    pub fn search(&self, ask: &Ask, head: Seq) -> Page {
        let (first, last) = ask.numbers();
        let mut found: Vec<(Number, &Document)> = self
            .documents
            .values()
            .filter(|document| ask.topics.contains(&document.key.topic_id))
            .filter(|document| document.seq <= ask.seq_max())
            .filter(|document| ask.query.terms().iter().all(|term| document.text.has(term)))
            .map(|document| (Number::choices(document.created_at, &document.key)[0], document))
            .filter(|(number, _)| (first..=last).contains(number))
            .collect();
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        let mut ranking = Ranking::new(ask);
        for (number, document) in found {
            let candidate = Candidate {
                number,
                event_id: document.key.event_id,
                topic: TopicKey::of(&document.key.topic_id),
                created_at: document.created_at,
                popularity: self.popularity(&document.target),
            };
            ranking.look(&candidate, document.text.trail.as_bytes());
        }
        ranking.page(head)
    }
}
