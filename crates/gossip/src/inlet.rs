//! What comes in: each message is judged by its neighbour, its size, its form and the rules, and what
//! passes goes into the lane. Nothing here waits for the store.

use std::sync::Arc;

use iroh::EndpointId;
use iroh_gossip::api::Message;
use iroh_gossip::proto::DeliveryScope;
use kukuri_core::admission::{Age, Door as AdmissionDoor, Screened, Verdict};
use kukuri_core::backfill::Why;
use kukuri_core::{Act, Admitted, Outcome, Rejection, Source, TopicId};
use kukuri_lane::{Answer, LaneError, Ticket};

use crate::conduct::{Fault, Passage};
use crate::counters::{Sample, add_one};
use crate::gossip::Shared;
use crate::hello::Hello;
use crate::message::{self, Refusal, Unreadable, WRAPPING_BYTES_MAX};
use crate::outgoing::EVENT_BYTES_MAX;

/// One topic's way in.
pub(crate) struct Inlet {
    pub topic: TopicId,
    pub shared: Arc<Shared>,
    /// Lines about what nobody can read.
    pub unreadable: Sample,
}

impl Inlet {
    /// `None` if there is nothing to wait for.
    pub async fn take(&self, message: &Message) -> Option<Ticket> {
        let (counters, from) = (&self.shared.counters, &message.delivered_from);
        add_one(&counters.received);
        match self.shared.door.pass(from, || hops(message)) {
            Passage::Open => self.shared.door.weigh(from, message.content.len()),
            Passage::Muted => {
                add_one(&counters.from_muted);
                return None;
            }
            Passage::TooFast(_) | Passage::Busy => {
                add_one(&counters.over_rate);
                self.shared.missed(&self.topic, Why::Lagged);
                return None;
            }
        }
        if Hello::is_one(&message.content) {
            self.greeted(message);
            return None;
        }
        let admitted = match self.judge(&message.content) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.refuse(message, &refusal);
                return None;
            }
        };
        self.shared.ground.memory.remember(admitted.body());
        match self.shared.ground.lane.submit(Act::Publish(admitted)).await {
            Ok(ticket) => Some(ticket),
            Err(error) => {
                self.settle(Err(error));
                None
            }
        }
    }

    /// What became of a message that the lane has taken.
    pub fn settle(&self, answer: Answer) {
        let counters = &self.shared.counters;
        match answer {
            Ok(Outcome::Accepted | Outcome::Ephemeral) => add_one(&counters.accepted),
            Ok(Outcome::Duplicate(_)) => add_one(&counters.duplicates),
            Ok(_) => add_one(&counters.refused),
            Err(LaneError::Closed) => {}
            Err(_) => {
                add_one(&counters.overloaded);
                self.shared.missed(&self.topic, Why::Lagged);
            }
        }
    }

    fn judge(&self, bytes: &[u8]) -> Result<Admitted, Refusal> {
        let ground = &self.shared.ground;
        let carried = Arc::clone(&self.shared.carried.borrow());
        let door = AdmissionDoor {
            limits: &ground.limits,
            topicless: ground.topicless,
            age: Age::Bounded,
            now: (ground.clock)(),
            handles: &|topic| carried.contains(topic),
        };
        let screened: Screened = message::read(bytes, &self.topic, &door)?;
        let seen = ground.memory.recall(&screened.event().id());
        let checked = screened.verify_unless(seen).map_err(Refusal::Rejected)?;
        let via = Some(self.topic.clone());
        checked.admit(Verdict::Admit, Source::Gossip, via).map_err(Refusal::Rejected)
    }

    /// Only sizes and signatures are held against a neighbour: of everything else it may know no better.
    fn refuse(&self, message: &Message, refusal: &Refusal) {
        let counters = &self.shared.counters;
        // Others need not know that this node takes less than every node does.
        let too_large = message.content.len() > EVENT_BYTES_MAX + WRAPPING_BYTES_MAX;
        let (counter, fault) = match refusal {
            Refusal::Unreadable(Unreadable::TooLarge) | Refusal::Rejected(Rejection::TooLarge) => {
                (&counters.oversized, too_large.then_some(Fault::TooLarge))
            }
            Refusal::Rejected(Rejection::BadSignature | Rejection::IdMismatch) => {
                (&counters.bad_signatures, Some(Fault::BadSignature))
            }
            Refusal::Unreadable(Unreadable::OtherSubject) => return,
            Refusal::Unreadable(_) | Refusal::Rejected(Rejection::Malformed(_)) => {
                self.sample(&message.delivered_from, refusal);
                (&counters.unreadable, None)
            }
            Refusal::ForeignTopic => (&counters.foreign, None),
            Refusal::Protected | Refusal::Rejected(_) => (&counters.refused, None),
        };
        add_one(counter);
        if let Some(fault) = fault {
            self.shared.door.blame(&message.delivered_from, fault, hops(message));
        }
    }

    /// One line in a while: nobody floods the log. It says nothing of what was sent.
    fn sample(&self, from: &EndpointId, refusal: &Refusal) {
        if self.unreadable.is_due((self.shared.time)()) {
            let (topic, why) = (
                &self.topic,
                match refusal {
                    Refusal::Unreadable(unreadable) => unreadable.to_string(),
                    _ => "no event".to_owned(),
                },
            );
            tracing::info!(%topic, neighbour = %from.fmt_short(), why, "messages that nobody can read");
        }
    }

    fn greeted(&self, message: &Message) {
        let from = &message.delivered_from;
        let direct =
            message.scope == DeliveryScope::Neighbors && self.shared.dialler.is_named(from);
        if let Some(hello) = Hello::parse(&message.content).filter(|_| direct) {
            tracing::debug!(neighbour = %from.fmt_short(), relay = hello.relay, "a neighbour says where its relay is");
            self.shared.ground.listener.missed(&self.topic, Why::Joined, Some(&hello.relay));
        }
    }
}

/// How far a message says it has come. The library shows it to whom it is serialised for, and to nobody else.
fn hops(message: &Message) -> u16 {
    let hops = serde_json::to_value(message.scope).ok();
    let hops = hops.and_then(|scope| scope.get("Swarm")?.as_u64());
    u16::try_from(hops.unwrap_or(0)).unwrap_or(u16::MAX)
}
