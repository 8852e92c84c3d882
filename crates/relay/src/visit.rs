//! Other ways to ask than by WebSocket, such as HTTP on the same address: whoever serves them goes by the
//! same rates, the same gate and the same topics.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use kukuri_core::TopicId;
use kukuri_core::admission::{Rate, Verdict};

use crate::gate::{self, Authed};
use crate::relay::Relay;
use crate::server::sender;
use crate::topics::CarriedTopics;

impl Relay {
    /// Charges who has sent a request for one question. A request that did not come through
    /// [`serve_with`](crate::serve_with) is of nobody, who may ask nothing.
    pub fn charge(&self, request: &Parts) -> Rate {
        match request.extensions.get::<ConnectInfo<SocketAddr>>() {
            Some(ConnectInfo(peer)) => {
                let proxies = &self.config.trusted_proxies;
                self.may_look(sender(peer.ip(), &request.headers, proxies))
            }
            None => Rate::Exceeded,
        }
    }

    /// Whether topics may be read now by who has proved to hold these keys.
    pub fn may_read(&self, authed: &Authed, topics: &[TopicId]) -> Verdict {
        gate::may_read(&*self.gate, &self.auth(), authed, topics, self.now())
    }

    /// The topics that are carried now. The same ones are the same `Arc`.
    pub fn carried(&self) -> Arc<CarriedTopics> {
        Arc::clone(&self.carried.borrow())
    }
}
