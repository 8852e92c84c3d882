//! Node-level subscriptions, and what topics hold.

use kukuri_core::{Change, NodeTopic, TopicId, Usage};

use super::{Bulk, Columns, Sorted};
use crate::numbers::BatchNumbers;

const INSERT_TOPICS: &str = "INSERT INTO node_subscriptions (topic_id, name, enabled, pinned,
        wanted, ingest_policy, created_at, updated_at)
    SELECT UNNEST($1::TEXT[]), UNNEST($2::BYTEA[]), UNNEST($3::BOOLEAN[]), UNNEST($4::BOOLEAN[]),
        UNNEST($5::BIGINT[]), UNNEST($6::TEXT[]), UNNEST($7::BIGINT[]), UNNEST($8::BIGINT[])";
const UPDATE_TOPICS: &str = "UPDATE node_subscriptions s
    SET name = k.name, enabled = k.enabled, pinned = k.pinned, wanted = k.wanted,
        ingest_policy = k.ingest_policy, created_at = k.created_at, updated_at = k.updated_at
    FROM (SELECT UNNEST($1::TEXT[]) AS topic_id, UNNEST($2::BYTEA[]) AS name,
        UNNEST($3::BOOLEAN[]) AS enabled, UNNEST($4::BOOLEAN[]) AS pinned,
        UNNEST($5::BIGINT[]) AS wanted, UNNEST($6::TEXT[]) AS ingest_policy,
        UNNEST($7::BIGINT[]) AS created_at, UNNEST($8::BIGINT[]) AS updated_at) AS k
    WHERE s.topic_id = k.topic_id";
const DELETE_TOPICS: &str = "DELETE FROM node_subscriptions WHERE topic_id = ANY($1)";

pub(super) fn subscriptions(bulk: &mut Bulk, changes: &[Change<TopicId, NodeTopic>]) {
    let changes = Sorted::new(changes);
    bulk.change(DELETE_TOPICS, changes.deleted.len())
        .bind(changes.deleted.iter().map(|topic| topic.as_str()));
    bind_topics(bulk.change(UPDATE_TOPICS, changes.updated.len()), &changes.updated);
    bind_topics(bulk.insert(INSERT_TOPICS, changes.inserted.len()), &changes.inserted);
}

fn bind_topics(columns: Columns<'_>, rows: &[(&TopicId, &NodeTopic)]) {
    let policy = |topic: &NodeTopic| {
        serde_json::to_string(&topic.ingest_policy).expect("a policy is plain data")
    };
    columns
        .bind(rows.iter().map(|(id, _)| id.as_str()))
        .bind(rows.iter().map(|(_, topic)| topic.name.as_bytes()))
        .bind(rows.iter().map(|(_, topic)| topic.enabled))
        .bind(rows.iter().map(|(_, topic)| topic.pinned))
        .bind(rows.iter().map(|(_, topic)| i64::from(topic.wanted)))
        .bind(rows.iter().map(|(_, topic)| policy(topic)))
        .bind(rows.iter().map(|(_, topic)| topic.created_at.0))
        .bind(rows.iter().map(|(_, topic)| topic.updated_at.0));
}

const INSERT_USAGE: &str = "INSERT INTO topic_usage (topic_no, events, bytes)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[])";
const UPDATE_USAGE: &str = "UPDATE topic_usage u SET events = k.events, bytes = k.bytes
    FROM (SELECT UNNEST($1::INTEGER[]) AS topic_no, UNNEST($2::BIGINT[]) AS events,
        UNNEST($3::BIGINT[]) AS bytes) AS k
    WHERE u.topic_no = k.topic_no";
const DELETE_USAGE: &str = "DELETE FROM topic_usage WHERE topic_no = ANY($1)";

pub(super) fn usage(bulk: &mut Bulk, changes: &[Change<TopicId, Usage>], numbers: &BatchNumbers) {
    let changes = Sorted::new(changes);
    let bind = |columns: Columns<'_>, rows: &[(&TopicId, &Usage)]| {
        columns
            .bind(rows.iter().map(|(topic, _)| numbers.of(topic)))
            .bind(rows.iter().map(|(_, usage)| usage.events.cast_signed()))
            .bind(rows.iter().map(|(_, usage)| usage.bytes.cast_signed()));
    };
    bulk.change(DELETE_USAGE, changes.deleted.len())
        .bind(changes.deleted.iter().map(|topic| numbers.of(topic)));
    bind(bulk.change(UPDATE_USAGE, changes.updated.len()), &changes.updated);
    bind(bulk.insert(INSERT_USAGE, changes.inserted.len()), &changes.inserted);
}
