//! What there is one of: the state of the node, the feed's own row, and the counters of months.

use std::collections::BTreeMap;

use kukuri_core::{Change, Decision, Keep, NodeKey, NodeState, Record};

use super::{Bulk, Columns, Sorted};
use crate::calendar::Month;

const INSERT: &str = "INSERT INTO node_state (one, events, bytes, allowance, leases, past)
    SELECT TRUE, UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::TEXT[]), UNNEST($4::TEXT[]),
        UNNEST($5::TEXT[])";
const UPDATE: &str = "UPDATE node_state n
    SET events = k.events, bytes = k.bytes, allowance = k.allowance, leases = k.leases,
        past = k.past
    FROM (SELECT UNNEST($1::BIGINT[]) AS events, UNNEST($2::BIGINT[]) AS bytes,
        UNNEST($3::TEXT[]) AS allowance, UNNEST($4::TEXT[]) AS leases,
        UNNEST($5::TEXT[]) AS past) AS k
    WHERE n.one";

/// Most batches change nothing but these.
const COUNT: &str = "UPDATE node_state
    SET events = ($1::BIGINT[])[1], bytes = ($2::BIGINT[])[1] WHERE one";

pub(super) fn state(bulk: &mut Bulk, changes: &[Change<NodeKey, NodeState>]) {
    if let [Change { before: Some(before), after: Some(after), .. }] = changes
        && same_but_usage(before, after)
    {
        bulk.change(COUNT, 1)
            .bind([after.usage.events.cast_signed()].into_iter())
            .bind([after.usage.bytes.cast_signed()].into_iter());
        return;
    }
    let changes = Sorted::new(changes);
    bind(bulk.change(UPDATE, changes.updated.len()), &changes.updated);
    bind(bulk.insert(INSERT, changes.inserted.len()), &changes.inserted);
}

fn same_but_usage(before: &NodeState, after: &NodeState) -> bool {
    let NodeState { usage: _, allowance, leases, past } = before;
    *allowance == after.allowance && *leases == after.leases && *past == after.past
}

fn bind(columns: Columns<'_>, rows: &[(&NodeKey, &NodeState)]) {
    let json = |node: &NodeState| {
        let allowance = serde_json::to_string(&node.allowance);
        let (leases, past) =
            (serde_json::to_string(&node.leases), serde_json::to_string(&node.past));
        [allowance, leases, past].map(|json| json.expect("it is plain data"))
    };
    let jsons: Vec<[String; 3]> = rows.iter().map(|(_, node)| json(node)).collect();
    columns
        .bind(rows.iter().map(|(_, node)| node.usage.events.cast_signed()))
        .bind(rows.iter().map(|(_, node)| node.usage.bytes.cast_signed()))
        .bind(jsons.iter().map(|[allowance, ..]| allowance.as_str()))
        .bind(jsons.iter().map(|[_, leases, _]| leases.as_str()))
        .bind(jsons.iter().map(|[.., past]| past.as_str()));
}

const UPDATE_FEED: &str = "UPDATE feed_meta SET
    topics_version = topics_version + ($1::BIGINT[])[1],
    floor_seq = GREATEST(floor_seq, ($2::BIGINT[])[1])
    WHERE TRUE";

/// The feed's row says that subscriptions have changed, and where the feed begins.
pub(super) fn feed(bulk: &mut Bulk, decision: &Decision) {
    let topics = i64::from(!decision.writes.topics.is_empty());
    if topics > 0 || decision.floor.is_some() {
        let floor = decision.floor.map_or(i64::MIN, |floor| floor.0);
        bulk.change(UPDATE_FEED, 1).bind([topics].into_iter()).bind([floor].into_iter());
    }
}

const UPDATE_MONTH: &str = "UPDATE event_months
    SET events = events + ($2::BIGINT[])[1] WHERE month = ($1::TEXT[])[1]";
const UPDATE_MONTHS: &str = "UPDATE event_months m SET events = m.events + k.more
    FROM (SELECT UNNEST($1::TEXT[]) AS month, UNNEST($2::BIGINT[]) AS more) AS k
    WHERE m.month = k.month";

/// Whether a part is one that changes the counters of months.
pub(super) fn counts_months(sql: &str) -> bool {
    sql == UPDATE_MONTH || sql == UPDATE_MONTHS
}

/// How many events of `keep` 0 come and go in each month.
#[derive(Default)]
pub(super) struct Months(BTreeMap<String, i64>);

impl Months {
    pub fn change(&mut self, before: Option<&Record>, after: Option<&Record>) {
        self.count(before, -1);
        self.count(after, 1);
    }

    fn count(&mut self, record: Option<&Record>, more: i64) {
        if let Some(record) = record.filter(|record| record.keep == Keep::Standard) {
            *self.0.entry(Month::of(record.ingested_at).to_string()).or_default() += more;
        }
    }

    pub fn write(mut self, bulk: &mut Bulk) {
        self.0.retain(|_, more| *more != 0);
        // Hardly any batch has events of two months, and a join costs as much as several events.
        let sql = if self.0.len() == 1 { UPDATE_MONTH } else { UPDATE_MONTHS };
        bulk.change(sql, self.0.len())
            .bind(self.0.keys().map(String::as_str))
            .bind(self.0.values().copied());
    }
}
