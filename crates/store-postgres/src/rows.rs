//! Reading columns back into values. What cannot be read is corrupt, never absent.

use std::sync::Arc;

use kukuri_core::{
    Dedupe, FeedRow, IngestPolicy, Keep, Link, Mark, MarkState, NodeTopic, Op, Reason, Record, Seq,
    Source, State, Tombstone, TombstoneKey, TopicId, UnixMillis, Usage, Version, VersionKey,
};
use kukuri_event::{Body, EventId, Kind, Pubkey, UnixSeconds};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Fault;
use crate::numbers::TopicNumbers;

/// The bytes of one link in `events.links`.
pub(crate) const LINK_BYTES: usize = 12;

pub(crate) fn event_id(bytes: &[u8]) -> Result<EventId, Fault> {
    EventId::from_slice(bytes).ok_or_else(|| wrong("an event id", bytes.len()))
}

pub(crate) fn pubkey(bytes: &[u8]) -> Result<Pubkey, Fault> {
    Pubkey::from_slice(bytes).ok_or_else(|| wrong("a key", bytes.len()))
}

fn wrong(what: &str, length: usize) -> Fault {
    Fault::corrupt(format!("{what} of {length} bytes; run doctor"))
}

fn coded<T>(value: Option<T>, column: &str, code: i16) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::corrupt(format!("{column} has the unknown code {code}")))
}

pub(crate) fn kind(number: i32) -> Result<Kind, Fault> {
    let kind = u16::try_from(number).map(Kind);
    kind.map_err(|_| Fault::corrupt(format!("a kind of {number}")))
}

pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| Fault::corrupt("a text that is not UTF-8; run doctor"))
}

pub(crate) fn body(json: &[u8]) -> Result<Arc<Body>, Fault> {
    let body = Body::restore(text(json.to_vec())?);
    body.map(Arc::new)
        .map_err(|error| Fault::corrupt(format!("a stored event cannot be read: {error}")))
}

/// The topic numbers and link seqs of `events.links`.
pub(crate) fn raw_links(bytes: &[u8]) -> impl Iterator<Item = (i32, Seq)> {
    bytes.chunks_exact(LINK_BYTES).map(|link| {
        let (number, seq) = link.split_at(4);
        let number = i32::from_be_bytes(number.try_into().expect("split at four"));
        let seq = i64::from_be_bytes(seq.try_into().expect("eight are left"));
        (number, Seq(seq))
    })
}

pub(crate) fn links(bytes: &[u8], numbers: &TopicNumbers) -> Result<Vec<Link>, Fault> {
    let link = |(number, seq)| {
        let topic = numbers.id(number)?;
        Ok(Link { topic, seq })
    };
    raw_links(bytes).map(link).collect()
}

/// The columns of [`record`].
macro_rules! record_columns {
    () => {
        "e.seq, e.ingested_at, e.keep, e.state, e.links, e.body"
    };
}
pub(crate) use record_columns;

/// The topic numbers of `rows` must be known.
pub(crate) fn record(row: &PgRow, numbers: &TopicNumbers) -> Result<Record, Fault> {
    let (keep, state): (i16, i16) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Record {
        seq: Seq(row.try_get(0)?),
        body: body(row.try_get(5)?)?,
        ingested_at: UnixMillis(row.try_get(1)?),
        keep: coded(Keep::from_code(keep), "keep", keep)?,
        state: coded(State::from_code(state), "state", state)?,
        links: links(row.try_get(4)?, numbers)?,
    })
}

/// The columns of [`dedupe`].
macro_rules! dedupe_columns {
    () => {
        "event_id, first_seen_at, last_seen_at, seen_count, seq"
    };
}
pub(crate) use dedupe_columns;

pub(crate) fn dedupe(row: &PgRow) -> Result<(EventId, Dedupe), Fault> {
    let seen_count: i64 = row.try_get(3)?;
    let dedupe = Dedupe {
        first_seen_at: UnixMillis(row.try_get(1)?),
        last_seen_at: UnixMillis(row.try_get(2)?),
        seen_count: seen_count.cast_unsigned(),
        seq: row.try_get::<Option<i64>, _>(4)?.map(Seq),
    };
    Ok((event_id(row.try_get(0)?)?, dedupe))
}

/// The columns of [`version`].
macro_rules! version_columns {
    () => {
        "v.kind, v.pubkey, v.d, v.created_at, v.event_id, v.state, v.deleted_until, v.event_json"
    };
}
pub(crate) use version_columns;

pub(crate) fn version(row: &PgRow) -> Result<(VersionKey, Version), Fault> {
    let key = VersionKey {
        kind: kind(row.try_get(0)?)?,
        pubkey: pubkey(row.try_get(1)?)?,
        d: text(row.try_get(2)?)?,
    };
    let created_at: Option<i64> = row.try_get(3)?;
    let mark = created_at.map(|created_at| {
        let state: i16 = row.try_get(5)?;
        Ok::<_, Fault>(Mark {
            created_at: UnixSeconds(created_at),
            event_id: event_id(row.try_get(4)?)?,
            state: coded(MarkState::from_code(state), "state", state)?,
        })
    });
    let json: Option<&[u8]> = row.try_get(7)?;
    let version = Version {
        mark: mark.transpose()?,
        deleted_until: row.try_get::<Option<i64>, _>(6)?.map(UnixSeconds),
        body: json.map(body).transpose()?,
    };
    Ok((key, version))
}

/// The columns of [`tombstone`].
macro_rules! tombstone_columns {
    () => {
        "t.target, t.pubkey, t.deletion_event_id, t.requested_at, t.applied_at"
    };
}
pub(crate) use tombstone_columns;

pub(crate) fn tombstone(row: &PgRow) -> Result<(TombstoneKey, Tombstone), Fault> {
    let key = TombstoneKey { target: event_id(row.try_get(0)?)?, pubkey: pubkey(row.try_get(1)?)? };
    let tombstone = Tombstone {
        deletion_event_id: event_id(row.try_get(2)?)?,
        requested_at: UnixSeconds(row.try_get(3)?),
        applied_at: row.try_get::<Option<i64>, _>(4)?.map(UnixMillis),
    };
    Ok((key, tombstone))
}

/// The columns of [`topic`].
macro_rules! topic_columns {
    () => {
        "s.topic_id, s.name, s.enabled, s.pinned, s.wanted, s.ingest_policy, s.created_at,
        s.updated_at"
    };
}
pub(crate) use topic_columns;

pub(crate) fn topic(row: &PgRow) -> Result<NodeTopic, Fault> {
    let policy: &str = row.try_get(5)?;
    let policy: IngestPolicy = serde_json::from_str(policy)
        .map_err(|error| Fault::corrupt(format!("an ingest policy cannot be read: {error}")))?;
    let wanted: i64 = row.try_get(4)?;
    Ok(NodeTopic {
        topic_id: topic_id(row.try_get(0)?)?,
        name: text(row.try_get(1)?)?,
        enabled: row.try_get(2)?,
        pinned: row.try_get(3)?,
        wanted: u32::try_from(wanted).map_err(|_| Fault::corrupt(format!("wanted is {wanted}")))?,
        ingest_policy: policy,
        created_at: UnixMillis(row.try_get(6)?),
        updated_at: UnixMillis(row.try_get(7)?),
    })
}

pub(crate) fn topic_id(text: &str) -> Result<TopicId, Fault> {
    TopicId::parse(text).map_err(|error| Fault::corrupt(error.to_string()))
}

/// The columns of [`topic_and_usage`], and where they are.
macro_rules! topics_and_usage {
    () => {
        concat!(
            $crate::rows::topic_columns!(),
            ", u.events, u.bytes FROM node_subscriptions s
              LEFT JOIN topic_numbers n ON n.topic_id = s.topic_id
              LEFT JOIN topic_usage u ON u.topic = n.topic"
        )
    };
}
pub(crate) use topics_and_usage;

pub(crate) fn topic_and_usage(row: &PgRow) -> Result<(NodeTopic, Usage), Fault> {
    let (events, bytes): (Option<i64>, Option<i64>) = (row.try_get(8)?, row.try_get(9)?);
    let usage = usage(events.unwrap_or(0), bytes.unwrap_or(0));
    Ok((topic(row)?, usage))
}

pub(crate) fn usage(events: i64, bytes: i64) -> Usage {
    Usage { events: events.cast_unsigned(), bytes: bytes.cast_unsigned() }
}

/// The columns of [`feed_row`].
macro_rules! feed_columns {
    () => {
        "seq, op, event_id, topic, prior, kind, pubkey, created_at, ingested_at, d, reason, source,
        via"
    };
}
pub(crate) use feed_columns;

fn prior(bytes: &[u8]) -> impl Iterator<Item = i32> {
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("a chunk of four"));
    bytes.chunks_exact(4).map(number)
}

/// The topic numbers in a row of the feed.
pub(crate) fn feed_numbers(row: &PgRow) -> Result<Vec<i32>, Fault> {
    let mut numbers: Vec<i32> = prior(row.try_get(4)?).collect();
    numbers.push(row.try_get(3)?);
    numbers.extend(row.try_get::<Option<i32>, _>(12)?);
    Ok(numbers)
}

pub(crate) fn feed_row(row: &PgRow, numbers: &TopicNumbers) -> Result<FeedRow, Fault> {
    let (op, source): (i16, i16) = (row.try_get(1)?, row.try_get(11)?);
    let reason: Option<i16> = row.try_get(10)?;
    let (kind, pubkey) = (kind(row.try_get(5)?)?, pubkey(row.try_get(6)?)?);
    let d: Option<Vec<u8>> = row.try_get(9)?;
    let key = |d| {
        let d = text(d)?;
        Ok::<_, Fault>(VersionKey { kind, pubkey, d })
    };
    let via: Option<i32> = row.try_get(12)?;
    Ok(FeedRow {
        seq: Seq(row.try_get(0)?),
        op: coded(Op::from_code(op), "op", op)?,
        event_id: event_id(row.try_get(2)?)?,
        topic_id: numbers.id(row.try_get(3)?)?,
        prior: prior(row.try_get(4)?).map(|n| numbers.id(n)).collect::<Result<_, _>>()?,
        kind,
        pubkey,
        created_at: UnixSeconds(row.try_get(7)?),
        ingested_at: UnixMillis(row.try_get(8)?),
        effective_key: d.map(key).transpose()?,
        reason: reason.map(|code| coded(Reason::from_code(code), "reason", code)).transpose()?,
        source: coded(Source::from_code(source), "source", source)?,
        via: via.map(|number| numbers.id(number)).transpose()?,
    })
}
