//! What there is one of: the state of the node, and the feed's own row.

use kukuri_core::{Change, Decision, NodeKey, NodeState};

use super::{Bulk, Columns, Sorted};

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
