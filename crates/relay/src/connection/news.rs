//! What a connection hears of besides its socket and its own work. It is rare, and the connection is
//! woken for every message: waiting for it goes on from one message to the next, and is not begun anew
//! for each, which would be a turn in the queues that all connections share.

use std::sync::Arc;

use kukuri_fanout::{Detached, SubKey};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::outbox::Outbox;
use crate::policy::AuthRule;
use crate::relay::Relay;
use crate::topics::Carried;

pub(super) enum News {
    /// Other topics are carried; or never again, because the node goes down.
    Topics(Result<(), watch::error::RecvError>),
    /// Who has to prove a key, or who is let in, may be different now.
    Proofs,
    /// The client has to show that it is there.
    Ping,
    /// A live subscription found no room.
    Behind(SubKey, Detached),
    /// Nothing can be sent any more.
    Ended,
    Closing,
}

pub(super) struct Listener {
    relay: Arc<Relay>,
    outbox: Arc<Outbox>,
    carried: watch::Receiver<Carried>,
    rule: Option<watch::Receiver<AuthRule>>,
    gate: Option<watch::Receiver<u64>>,
    pings: Interval,
}

impl Listener {
    pub fn new(relay: &Arc<Relay>, outbox: &Arc<Outbox>) -> Self {
        let mut pings = interval(relay.config.limits.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        Self {
            relay: Arc::clone(relay),
            outbox: Arc::clone(outbox),
            carried: relay.carried.clone(),
            rule: Some(relay.rule.subscribe()),
            gate: relay.gate.changes(),
            pings,
        }
    }

    /// The next piece of news, and who listens for the one after it.
    pub async fn next(mut self) -> (News, Self) {
        let news = tokio::select! {
            changed = self.carried.changed() => News::Topics(changed),
            () = next_change(&mut self.rule) => News::Proofs,
            () = next_change(&mut self.gate) => News::Proofs,
            _ = self.pings.tick() => News::Ping,
            (key, why) = self.outbox.behind() => News::Behind(key, why),
            () = self.outbox.ended() => News::Ended,
            () = self.relay.closing.cancelled() => News::Closing,
        };
        (news, self)
    }
}

/// Never, if there is nothing that changes.
async fn next_change<T>(changes: &mut Option<watch::Receiver<T>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    *changes = None;
    std::future::pending().await
}
