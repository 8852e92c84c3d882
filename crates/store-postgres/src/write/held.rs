//! How many events each partition of `keep` 0 holds, and how many tags those have left behind that are gone.

use std::collections::BTreeMap;

use kukuri_core::{Keep, Record};

use super::Bulk;
use crate::error::Fault;
use crate::partition::Partitions;

const UPDATE_ONE: &str = "UPDATE event_partitions
    SET events = events + ($2::BIGINT[])[1], stray_tags = stray_tags + ($3::BIGINT[])[1]
    WHERE first_seq = ($1::BIGINT[])[1]";
const UPDATE: &str = "UPDATE event_partitions p
    SET events = p.events + k.more, stray_tags = p.stray_tags + k.stray_tags
    FROM (SELECT UNNEST($1::BIGINT[]) AS first_seq, UNNEST($2::BIGINT[]) AS more,
        UNNEST($3::BIGINT[]) AS stray_tags) AS k
    WHERE p.first_seq = k.first_seq";

/// Whether a part of a statement is one that changes these counters.
pub(super) fn counts(sql: &str) -> bool {
    sql == UPDATE_ONE || sql == UPDATE
}

/// What changes in each partition, by its first number.
pub(super) struct Held<'a> {
    partitions: &'a Partitions,
    changes: BTreeMap<i64, Change>,
}

#[derive(Default)]
struct Change {
    /// How many more events there are.
    more: i64,
    stray_tags: i64,
}

impl<'a> Held<'a> {
    pub fn new(partitions: &'a Partitions) -> Self {
        Self { partitions, changes: BTreeMap::new() }
    }

    pub fn change(&mut self, before: Option<&Record>, after: Option<&Record>) -> Result<(), Fault> {
        if let Some(change) = self.of(before)? {
            change.more -= 1;
            if let Some(gone) = before.filter(|record| leaves_tags(record, after)) {
                change.stray_tags += i64::try_from(gone.indexed_tags().len()).unwrap_or(i64::MAX);
            }
        }
        if let Some(change) = self.of(after)? {
            change.more += 1;
        }
        Ok(())
    }

    fn of(&mut self, record: Option<&Record>) -> Result<Option<&mut Change>, Fault> {
        let Some(record) = record.filter(|record| record.keep == Keep::Standard) else {
            return Ok(None);
        };
        // Another process may have made the partition since they were counted.
        let first_seq = self.partitions.of_event(record.seq).ok_or(Fault::NoPartition)?;
        Ok(Some(self.changes.entry(first_seq).or_default()))
    }

    pub fn write(mut self, bulk: &mut Bulk) {
        self.changes.retain(|_, change| change.more != 0 || change.stray_tags != 0);
        // Hardly any batch has events of two partitions, and a join costs as much as several events.
        let sql = if self.changes.len() == 1 { UPDATE_ONE } else { UPDATE };
        bulk.change(sql, self.changes.len())
            .bind(self.changes.keys().copied())
            .bind(self.changes.values().map(|change| change.more))
            .bind(self.changes.values().map(|change| change.stray_tags));
    }
}

/// Whether the tags of a record stay when its row goes, until they are swept with many others. Others are
/// found by them no longer: whoever reads a tag looks for its event.
pub(super) fn leaves_tags(before: &Record, after: Option<&Record>) -> bool {
    let goes = after.is_none_or(|after| after.seq != before.seq);
    goes && before.keep == Keep::Standard && before.is_effective()
}
