//! When a statement was answered. A single statement is a snapshot by itself, so one that says where
//! the feed stood needs no transaction around it.

use kukuri_core::{Epoch, Seq};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Fault;

/// The columns `epoch` and `head` of the table `h`, for a feed that reaches the seq given.
macro_rules! moment {
    ($known:literal) => {
        concat!(
            "(SELECT epoch, GREATEST(floor_seq, (SELECT seq FROM events_outbox WHERE seq >= ",
            $known,
            " ORDER BY seq DESC LIMIT 1)) AS head FROM feed_meta) AS h"
        )
    };
}
pub(super) use moment;

pub(super) fn no_moment() -> Fault {
    Fault::corrupt("feed_meta is empty; run doctor")
}

/// A life of the feed, and how far it had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub epoch: Epoch,
    pub head: Seq,
}

impl Moment {
    /// Reads `h.epoch` and `h.head`, which begin at the column `first` of every row.
    pub(super) fn of(found: &[PgRow], first: usize) -> Result<Self, Fault> {
        Self::read(found.first().ok_or_else(no_moment)?, first)
    }

    pub(super) fn read(row: &PgRow, first: usize) -> Result<Self, Fault> {
        Ok(Self { epoch: Epoch(row.try_get(first)?), head: Seq(row.try_get(first + 1)?) })
    }

    pub(super) fn follows(self, known: Self) -> bool {
        self.epoch == known.epoch && self.head >= known.head
    }
}
