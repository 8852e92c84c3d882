use std::collections::BTreeMap;

use kukuri_event::EventId;

use crate::{PublishError, Published, Reason};

use super::auth::{Auth, Known, Verdict};
use super::{Moment, Output, Publication, Ticket, event_text};

/// Events that wait for their OK. How many there are is bounded by whoever hands out tickets.
#[derive(Default)]
pub(super) struct Publishes {
    /// In the order in which they came, which is the order in which they are sent again.
    pending: BTreeMap<Ticket, Pending>,
}

struct Pending {
    publication: Publication,
    sent: Sent,
}

enum Sent {
    /// Not on this connection.
    No,
    As(Known),
    /// Refused until we are known.
    NeedsAuth(Reason),
}

impl Publishes {
    pub fn add(&mut self, ticket: Ticket, publication: Publication) {
        self.pending.insert(ticket, Pending { publication, sent: Sent::No });
    }

    /// Sends what has not been sent on this connection.
    pub fn send_all(&mut self, auth: &Auth, out: &mut Vec<Output>) {
        for pending in self.pending.values_mut() {
            if let Sent::No = pending.sent {
                pending.sent = Sent::As(auth.known());
                out.push(event_text(&pending.publication));
            }
        }
    }

    pub fn lost(&mut self) {
        self.pending.values_mut().for_each(|pending| pending.sent = Sent::No);
    }

    /// One OK answers everyone who waits for the event: what it says is true for all of them.
    pub fn answered(
        &mut self,
        id: EventId,
        accepted: bool,
        message: Reason,
        auth: &Auth,
        out: &mut Vec<Output>,
    ) {
        let mut done = Vec::new();
        for (ticket, pending) in &mut self.pending {
            let Sent::As(known) = pending.sent else { continue };
            if pending.publication.id != id {
                continue;
            }
            match auth.judge(&message, known) {
                Verdict::SayAgain if !accepted => pending.sent = Sent::No,
                Verdict::Wait if !accepted => pending.sent = Sent::NeedsAuth(message.clone()),
                _ => done.push(*ticket),
            }
        }
        let answer = if accepted {
            Ok(Published { id, message })
        } else {
            Err(PublishError::Refused { id, reason: message })
        };
        for ticket in done {
            self.pending.remove(&ticket);
            out.push(Output::Answer(ticket, answer.clone()));
        }
        self.send_all(auth, out);
    }

    pub fn auth_changed(&mut self, auth: &Auth, out: &mut Vec<Output>) {
        let mut refused = Vec::new();
        for (ticket, pending) in &mut self.pending {
            let Sent::NeedsAuth(reason) = &pending.sent else { continue };
            match auth.judge(reason, Known::No) {
                Verdict::Wait => {}
                Verdict::SayAgain => pending.sent = Sent::No,
                Verdict::Final => {
                    refused.push((*ticket, pending.publication.id, reason.clone()));
                }
            }
        }
        for (ticket, id, reason) in refused {
            self.pending.remove(&ticket);
            out.push(Output::Answer(ticket, Err(PublishError::Refused { id, reason })));
        }
        self.send_all(auth, out);
    }

    pub fn wake(&self) -> Option<Moment> {
        self.pending.values().map(Pending::deadline).min()
    }

    pub fn tick(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.pending.retain(|ticket, pending| {
            let late = pending.deadline() <= now;
            if late {
                let Publication { id, wait_max: waited, .. } = pending.publication;
                let error = match &pending.sent {
                    Sent::NeedsAuth(reason) => PublishError::Refused { id, reason: reason.clone() },
                    Sent::No | Sent::As(_) => PublishError::Unanswered { id, waited },
                };
                out.push(Output::Answer(*ticket, Err(error)));
            }
            !late
        });
    }
}

impl Pending {
    fn deadline(&self) -> Moment {
        self.publication.begun + self.publication.wait_max
    }
}
