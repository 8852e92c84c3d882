//! How many events each partition of `keep` 0 holds.

use std::collections::BTreeMap;

use kukuri_core::{Keep, Record};

use super::Bulk;
use crate::error::Fault;
use crate::partition::Partitions;

const UPDATE_ONE: &str = "UPDATE event_partitions
    SET events = events + ($2::BIGINT[])[1] WHERE first_seq = ($1::BIGINT[])[1]";
const UPDATE: &str = "UPDATE event_partitions p SET events = p.events + k.more
    FROM (SELECT UNNEST($1::BIGINT[]) AS first_seq, UNNEST($2::BIGINT[]) AS more) AS k
    WHERE p.first_seq = k.first_seq";

/// Whether a part of a statement is one that changes these counters.
pub(super) fn counts(sql: &str) -> bool {
    sql == UPDATE_ONE || sql == UPDATE
}

/// How many events come and go in each partition, by its first number.
pub(super) struct Held<'a> {
    partitions: &'a Partitions,
    more: BTreeMap<i64, i64>,
}

impl<'a> Held<'a> {
    pub fn new(partitions: &'a Partitions) -> Self {
        Self { partitions, more: BTreeMap::new() }
    }

    pub fn change(&mut self, before: Option<&Record>, after: Option<&Record>) -> Result<(), Fault> {
        self.count(before, -1)?;
        self.count(after, 1)
    }

    fn count(&mut self, record: Option<&Record>, more: i64) -> Result<(), Fault> {
        let Some(record) = record.filter(|record| record.keep == Keep::Standard) else {
            return Ok(());
        };
        // Another process may have made the partition since they were counted.
        let first_seq = self.partitions.of_event(record.seq).ok_or(Fault::NoPartition)?;
        *self.more.entry(first_seq).or_default() += more;
        Ok(())
    }

    pub fn write(mut self, bulk: &mut Bulk) {
        self.more.retain(|_, more| *more != 0);
        // Hardly any batch has events of two partitions, and a join costs as much as several events.
        let sql = if self.more.len() == 1 { UPDATE_ONE } else { UPDATE };
        bulk.change(sql, self.more.len())
            .bind(self.more.keys().copied())
            .bind(self.more.values().copied());
    }
}
