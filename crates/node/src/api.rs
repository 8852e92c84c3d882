//! Gives the interface over HTTP the rules of the relay, with which it shares its address.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::request::Parts;
use kukuri_api::Host;
use kukuri_core::TopicId;
use kukuri_core::admission::{Rate, Verdict};
use kukuri_index::{NamedTopic, Names};
use kukuri_relay::{Authed, CarriedTopics, Relay};

/// Who asks over HTTP proves nothing yet: where proofs are required, nothing is told.
pub struct RelayHost {
    relay: Arc<Relay>,
    /// The names of topics, and of which.
    named: Mutex<Option<(Arc<CarriedTopics>, Arc<Names>)>>,
}

impl RelayHost {
    pub fn new(relay: Arc<Relay>) -> Self {
        Self { relay, named: Mutex::default() }
    }
}

impl Host for RelayHost {
    fn charge(&self, request: &Parts) -> Rate {
        self.relay.charge(request)
    }

    fn may_read(&self, _request: &Parts, topics: &[TopicId]) -> Verdict {
        self.relay.may_read(&Authed::new(), topics)
    }

    fn carries(&self, topic: &TopicId) -> bool {
        self.relay.carried().ids.contains(topic)
    }

    fn names(&self) -> Arc<Names> {
        let carried = self.relay.carried();
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, names)) = &*named
            && Arc::ptr_eq(of, &carried)
        {
            return Arc::clone(names);
        }
        let topics = carried.public().map(|(topic_id, name)| NamedTopic {
            topic_id: topic_id.clone(),
            name: name.to_owned(),
        });
        let names = Arc::new(Names::new(topics));
        *named = Some((Arc::clone(&carried), Arc::clone(&names)));
        names
    }
}
