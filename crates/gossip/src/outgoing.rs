//! What of the feed goes out to which swarm. Pure.

use std::collections::BTreeSet;

use kukuri_core::admission::is_p2p_only;
use kukuri_core::{Admitted, FeedRow, Op, Source, TopicId};
use kukuri_event::Body;

use crate::message::is_protected;

/// What every node takes, whatever its own limits are: a larger message would end the stream of a
/// neighbour that allows no more, and silence all that follows it.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;

/// Why something stays here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It tells that an event is gone; what made it go is an event of its own.
    Departure,
    /// It came by import or backfill, or from the node itself: others have it, or ask for it.
    Door,
    /// It came from the very swarm.
    SameSwarm,
    /// NIP-70: its author brings it where it is to be.
    Protected,
    /// Kinds for peers alone.
    P2pOnly,
    TooLarge,
}

/// Whether a row's event goes out to the swarm of the row's topic.
pub fn of_row(row: &FeedRow) -> Result<(), Kept> {
    if row.op != Op::Upsert {
        return Err(Kept::Departure);
    }
    if is_p2p_only(row.kind) {
        return Err(Kept::P2pOnly);
    }
    of_source(row.source, row.via.as_ref(), &row.topic_id)
}

fn of_source(source: Source, via: Option<&TopicId>, topic: &TopicId) -> Result<(), Kept> {
    match source {
        Source::Ws | Source::Paid => Ok(()),
        Source::Gossip if via.is_some_and(|via| via != topic) => Ok(()),
        Source::Gossip => Err(Kept::SameSwarm),
        Source::Backfill | Source::Import | Source::Node => Err(Kept::Door),
    }
}

/// The swarms an ephemeral event goes out to: there is no row of it.
pub fn of_ephemeral(event: &Admitted, carried: &BTreeSet<TopicId>) -> Vec<TopicId> {
    let topics = event.topics().iter().filter(|topic| carried.contains(*topic));
    topics.filter(|topic| of_source(event.source(), event.via(), topic).is_ok()).cloned().collect()
}

/// Whether an event may leave at all.
pub fn of_body(body: &Body) -> Result<&str, Kept> {
    if is_p2p_only(body.event().kind()) {
        Err(Kept::P2pOnly)
    } else if is_protected(body.event()) {
        Err(Kept::Protected)
    } else if body.json().len() > EVENT_BYTES_MAX {
        Err(Kept::TooLarge)
    } else {
        Ok(body.json())
    }
}
