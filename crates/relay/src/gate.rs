//! Who may do what: the questions this door asks of others.

use std::collections::BTreeSet;

use kukuri_core::TopicId;
use kukuri_core::admission::Verdict;
use kukuri_event::{Event, Pubkey};

/// The keys a connection has proved to hold.
pub type Authed = BTreeSet<Pubkey>;

/// Whether clients have to prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    Off,
    Required,
}

/// Who may publish and read. Asked with keys that were proved, and only then.
pub trait Gate: Send + Sync + 'static {
    fn auth(&self) -> Auth;

    /// Whether an event may be published on this connection.
    fn publish(&self, authed: &Authed, event: &Event) -> Verdict;

    /// Whether topics may be read on this connection.
    fn read(&self, authed: &Authed, topics: &[TopicId]) -> Verdict;
}

/// Everyone may do everything, without saying who they are.
pub struct OpenGate;

impl Gate for OpenGate {
    fn auth(&self) -> Auth {
        Auth::Off
    }

    fn publish(&self, _: &Authed, _: &Event) -> Verdict {
        Verdict::Admit
    }

    fn read(&self, _: &Authed, _: &[TopicId]) -> Verdict {
        Verdict::Admit
    }
}

/// Everyone who proves who they are may do everything.
pub struct AuthGate;

impl Gate for AuthGate {
    fn auth(&self) -> Auth {
        Auth::Required
    }

    fn publish(&self, authed: &Authed, event: &Event) -> Verdict {
        match authed {
            none if none.is_empty() => Verdict::AuthRequired,
            keys if keys.contains(&event.pubkey()) => Verdict::Admit,
            _ => Verdict::Restricted,
        }
    }

    fn read(&self, authed: &Authed, _: &[TopicId]) -> Verdict {
        if authed.is_empty() { Verdict::AuthRequired } else { Verdict::Admit }
    }
}
