//! What became of a reconciliation, in numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kukuri_client::sync::Traffic;

use crate::import::counts::Counts;

/// Why a reconciliation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// Everything that was missing has come, or is refused.
    #[default]
    Done,
    /// As much has come as one reconciliation may bring, or it has lasted for as long as one may.
    OverBudget,
    /// The node is under pressure: the ladder's first step.
    Stopped,
    /// The topic's policy says no.
    NotAllowed,
    Interrupted,
}

#[derive(Debug, Default)]
pub struct Pulled {
    /// Events of our own that were compared.
    pub compared: u64,
    /// Those that the other node has not.
    pub only_here: u64,
    /// Ids that the other node has and we do not show.
    pub named: u64,
    /// Those of them that are known here: deleted, replaced or purged.
    pub known: u64,
    /// Those of them that are here and were not in the topic.
    pub at_hand: u64,
    /// Windows that were compared to their ends.
    pub windows: u64,
    /// Seconds that were left out: there is more in each of them than can be compared. Those of them that are so
    /// by our own bounds, whatever the other node can do.
    pub crowded: u64,
    pub crowded_here: u64,
    pub fetched: u64,
    pub accepted: u64,
    pub duplicates: u64,
    /// By the names of the reasons.
    pub refused: BTreeMap<&'static str, u64>,
    pub ended: Ended,
    pub traffic: Traffic,
    /// The part of it that went into finding out what is missing, both ways.
    pub comparing_bytes: u64,
    pub elapsed: Duration,
}

/// What became of events that came.
pub struct Taken {
    pub ended: Ended,
    pub counts: Counts,
    pub failure: Option<anyhow::Error>,
}

impl Pulled {
    /// Events that have an answer.
    pub fn came(&self) -> u64 {
        self.accepted + self.duplicates + self.refused()
    }

    pub fn refused(&self) -> u64 {
        self.refused.values().sum()
    }

    pub(super) fn add(&mut self, taken: Taken) -> anyhow::Result<()> {
        let Taken { ended, counts, failure } = taken;
        self.accepted += counts.accepted;
        self.duplicates += counts.duplicates + counts.ephemeral;
        counts.refusals().for_each(|(why, count)| *self.refused.entry(why).or_default() += count);
        if ended != Ended::Done {
            self.ended = ended;
        }
        failure.map_or(Ok(()), Err)
    }
}

impl fmt::Display for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, named, known, fetched, accepted, .. } = self;
        write!(
            f,
            "{compared} compared, {named} missing, {known} of them known, {fetched} fetched, {accepted} accepted"
        )
    }
}
