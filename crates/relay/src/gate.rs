//! Who may do what: the questions this door asks of others.

use std::collections::BTreeSet;

use kukuri_core::admission::Verdict;
use kukuri_core::{TopicId, UnixMillis};
use kukuri_event::{Event, Pubkey};
use tokio::sync::watch;

use crate::policy::AuthRule;

/// The keys a connection has proved to hold.
pub type Authed = BTreeSet<Pubkey>;

/// Who may publish and read, of those who have proved who they are. It is asked wherever proofs are
/// required, about events of proved keys and about topics, and never otherwise. Who cannot tell must
/// say no.
pub trait Gate: Send + Sync + 'static {
    /// Whether an event may be published on this connection.
    fn publish(&self, authed: &Authed, event: &Event) -> Verdict;

    /// Whether topics may be read on this connection.
    fn read(&self, authed: &Authed, topics: &[TopicId]) -> Verdict;

    /// Changes whenever an answer may have: open subscriptions are asked about again. `None` if answers
    /// never change.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Whether topics may be read now by who has proved to hold these keys.
pub(crate) fn may_read(
    gate: &dyn Gate,
    rule: &AuthRule,
    authed: &Authed,
    topics: &[TopicId],
    now: UnixMillis,
) -> Verdict {
    match (rule.enforced(now), authed.is_empty()) {
        (false, _) => Verdict::Admit,
        (true, true) => Verdict::AuthRequired,
        (true, false) => gate.read(authed, topics),
    }
}

/// Whoever proves who they are may do everything.
pub struct OpenGate;

impl Gate for OpenGate {
    fn publish(&self, _: &Authed, _: &Event) -> Verdict {
        Verdict::Admit
    }

    fn read(&self, _: &Authed, _: &[TopicId]) -> Verdict {
        Verdict::Admit
    }
}
