use std::sync::Arc;

use kukuri_core::{Cursor, Seq};
use kukuri_event::Body;

use crate::SubKey;

/// An event for a subscription. The body is shared by all who get it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub sub: SubKey,
    /// The row that made the event new to the subscription; none for an event that is not stored.
    pub seq: Option<Seq>,
    pub body: Arc<Body>,
}

/// There is no room for a delivery now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What is to be done about a delivery that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// The mailbox waits to be told to send, which is done once for many deliveries.
    Send,
    Nothing,
}

/// Why a subscription is live no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// Its mailbox was full. Everything up to here was delivered or was none of its business: when
    /// there is room, it can be attached after it.
    Behind(Cursor),
    /// The feed was replaced by another one. Nothing leads from one to the other.
    Diverged,
}

/// Where the events of subscriptions go. Called with the fan-out's lock held, but for `send` and for
/// what is delivered late: it must neither block nor call back. No two deliveries for one
/// subscription are made at once.
pub trait Mailbox: Send + Sync {
    /// Whether the subscription is still wanted. Whoever closes one says no from then on, and
    /// detaches it after that: so none is attached that nobody would detach.
    fn is_open(&self, sub: SubKey) -> bool;

    fn deliver(&self, delivery: Delivery) -> Result<Due, Full>;

    /// Sends what was delivered, as far as that goes without waiting.
    fn send(&self);

    fn detached(&self, sub: SubKey, why: Detached);
}
