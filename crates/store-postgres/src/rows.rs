//! Reading columns back into values. What cannot be read is corrupt, never absent.

use std::fmt::Display;
use std::sync::Arc;

use kukuri_core::{
    Dedupe, Epoch, FeedRow, IngestPolicy, Keep, Link, Mark, MarkState, NodeState, NodeTopic, Op,
    Reason, Record, Seq, Source, State, Tombstone, TombstoneKey, TopicId, UnixMillis, Usage,
    Version, VersionKey,
};
use kukuri_event::{Body, EventId, Kind, Pubkey, Signature, UnixSeconds};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::packed::Fields;

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

fn coded<T>(value: Option<T>, column: &str, code: impl Display) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::corrupt(format!("{column} has the unknown code {code}")))
}

pub(crate) fn kind(number: i64) -> Result<Kind, Fault> {
    let kind = u16::try_from(number).map(Kind);
    kind.map_err(|_| Fault::corrupt(format!("a kind of {number}")))
}

pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| Fault::corrupt("a text that is not UTF-8; run doctor"))
}

pub(crate) fn body(json: String) -> Result<Arc<Body>, Fault> {
    Body::restore(json)
        .map(Arc::new)
        .map_err(|error| Fault::corrupt(format!("a stored event cannot be read: {error}")))
}

/// The canonical JSON of an event whose id, key, time, kind, signature and body begin at `first`.
pub(crate) fn json(row: &PgRow, first: usize) -> Result<String, Fault> {
    let sig: &[u8] = row.try_get(first + 4)?;
    let fields = Fields {
        id: event_id(row.try_get(first)?)?,
        pubkey: pubkey(row.try_get(first + 1)?)?,
        created_at: UnixSeconds(row.try_get(first + 2)?),
        kind: kind(i64::from(row.try_get::<i32, _>(first + 3)?))?,
        sig: Signature::from_slice(sig).ok_or_else(|| wrong("a signature", sig.len()))?,
    };
    let body = std::str::from_utf8(row.try_get(first + 5)?);
    let body = body.map_err(|_| Fault::corrupt("a body that is not UTF-8; run doctor"))?;
    Ok(fields.unstrip(body))
}

/// The topic numbers and link seqs of `events.links`; the seq of a topic that was left is zero.
pub(crate) fn raw_links(bytes: &[u8]) -> impl Iterator<Item = (i32, Seq)> {
    bytes.chunks_exact(LINK_BYTES).map(|link| {
        let (number, seq) = link.split_at(4);
        let number = i32::from_be_bytes(number.try_into().expect("split at four"));
        let seq = i64::from_be_bytes(seq.try_into().expect("eight are left"));
        (number, Seq(seq))
    })
}

/// The links of `events.links`, and the topics that were left.
fn links(bytes: &[u8], numbers: &TopicNumbers) -> Result<(Vec<Link>, Vec<TopicId>), Fault> {
    let (mut links, mut left) = (Vec::new(), Vec::new());
    for (number, seq) in raw_links(bytes) {
        match (numbers.id(number)?, seq) {
            (topic, Seq::ZERO) => left.push(topic),
            (topic, seq) => links.push(Link { topic, seq }),
        }
    }
    Ok((links, left))
}

/// The columns of [`record`].
macro_rules! record_columns {
    () => {
        "e.seq, e.ingested_at, e.keep, e.state, e.links, e.event_id, e.pubkey, e.created_at, e.kind,
        e.sig, e.body"
    };
    (none) => {
        "NULL::BIGINT, NULL::BIGINT, NULL::SMALLINT, NULL::SMALLINT, NULL::BYTEA, NULL::BYTEA,
        NULL::BYTEA, NULL::BIGINT, NULL::INTEGER, NULL::BYTEA, NULL::BYTEA"
    };
}
pub(crate) use record_columns;

/// The column `links` of a record whose columns begin at `first`.
pub(crate) fn record_links(row: &PgRow, first: usize) -> Result<&[u8], Fault> {
    Ok(row.try_get(first + 4)?)
}

/// A record whose columns begin at `first`. The topic numbers of its links must be known.
pub(crate) fn record(row: &PgRow, first: usize, numbers: &TopicNumbers) -> Result<Record, Fault> {
    let (keep, state): (i16, i16) = (row.try_get(first + 2)?, row.try_get(first + 3)?);
    let (links, left) = links(record_links(row, first)?, numbers)?;
    Ok(Record {
        seq: Seq(row.try_get(first)?),
        body: body(json(row, first + 5)?)?,
        ingested_at: UnixMillis(row.try_get(first + 1)?),
        keep: coded(Keep::from_code(keep), "keep", keep)?,
        state: coded(State::from_code(state), "state", state)?,
        links,
        left,
    })
}

/// The columns of [`dedupe`], [`tombstone`], [`version`], [`usage`], [`stand`], [`last`] and [`node_state`]:
/// rows of one shape, of which the first column says what they are, so that one statement can load all of
/// them.
macro_rules! columns {
    (dedupe) => {
        "1::SMALLINT, d.event_id, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        d.first_seen_at, d.last_seen_at, d.seen_count, d.seq"
    };
    (tombstone) => {
        "2::SMALLINT, t.target_event_id, t.pubkey, t.deletion_event_id, NULL::BYTEA,
        t.requested_at, t.applied_at, t.recorded_at, NULL::BIGINT"
    };
    (version) => {
        "3::SMALLINT, v.pubkey, v.d, v.event_id, v.event_json,
        v.kind::BIGINT, v.created_at, v.state::BIGINT, v.deleted_until"
    };
    (usage) => {
        "4::SMALLINT, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        u.topic_no::BIGINT, u.events, u.bytes, NULL::BIGINT"
    };
    (stand) => {
        "5::SMALLINT, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        m.epoch, m.floor_seq, m.topics_version, l.revision"
    };
    (last) => {
        "6::SMALLINT, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        o.seq, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT"
    };
    (schema) => {
        "8::SMALLINT, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        s.version::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT"
    };
    (node) => {
        "7::SMALLINT, convert_to(n.allowance, 'UTF8'), convert_to(n.leases, 'UTF8'),
        convert_to(n.past, 'UTF8'), NULL::BYTEA, NULL::BIGINT, n.events, n.bytes, NULL::BIGINT"
    };
    (record) => {
        "9::SMALLINT, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA, NULL::BYTEA,
        NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT"
    };
}
pub(crate) use columns;

pub(crate) const DEDUPE: i16 = 1;
pub(crate) const TOMBSTONE: i16 = 2;
pub(crate) const VERSION: i16 = 3;
pub(crate) const USAGE: i16 = 4;
pub(crate) const STAND: i16 = 5;
pub(crate) const LAST: i16 = 6;
pub(crate) const NODE: i16 = 7;
pub(crate) const SCHEMA: i16 = 8;
/// Its own columns come after those that all have.
pub(crate) const RECORD: i16 = 9;
pub(crate) const RECORD_FIRST: usize = 9;

pub(crate) fn dedupe(row: &PgRow) -> Result<(EventId, Dedupe), Fault> {
    let seen_count: i64 = row.try_get(7)?;
    let dedupe = Dedupe {
        first_seen_at: UnixMillis(row.try_get(5)?),
        last_seen_at: UnixMillis(row.try_get(6)?),
        seen_count: seen_count.cast_unsigned(),
        seq: row.try_get::<Option<i64>, _>(8)?.map(Seq),
    };
    Ok((event_id(row.try_get(1)?)?, dedupe))
}

pub(crate) fn tombstone(row: &PgRow) -> Result<(TombstoneKey, Tombstone), Fault> {
    let key = TombstoneKey { target: event_id(row.try_get(1)?)?, pubkey: pubkey(row.try_get(2)?)? };
    let tombstone = Tombstone {
        deletion_event_id: event_id(row.try_get(3)?)?,
        requested_at: UnixSeconds(row.try_get(5)?),
        recorded_at: UnixMillis(row.try_get(7)?),
        applied_at: row.try_get::<Option<i64>, _>(6)?.map(UnixMillis),
    };
    Ok((key, tombstone))
}

pub(crate) fn version(row: &PgRow) -> Result<(VersionKey, Version), Fault> {
    let key = VersionKey {
        kind: kind(row.try_get(5)?)?,
        pubkey: pubkey(row.try_get(1)?)?,
        d: text(row.try_get(2)?)?,
    };
    let created_at: Option<i64> = row.try_get(6)?;
    let mark = created_at.map(|created_at| {
        let state: i64 = row.try_get(7)?;
        let code = i16::try_from(state).ok().and_then(MarkState::from_code);
        Ok::<_, Fault>(Mark {
            created_at: UnixSeconds(created_at),
            event_id: event_id(row.try_get(3)?)?,
            state: coded(code, "state", state)?,
        })
    });
    let json: Option<Vec<u8>> = row.try_get(4)?;
    let version = Version {
        mark: mark.transpose()?,
        deleted_until: row.try_get::<Option<i64>, _>(8)?.map(UnixSeconds),
        body: json.map(|json| body(text(json)?)).transpose()?,
    };
    Ok((key, version))
}

/// A topic number, and what the topic holds.
pub(crate) fn usage(row: &PgRow) -> Result<(i32, Usage), Fault> {
    let number: i64 = row.try_get(5)?;
    let number =
        i32::try_from(number).map_err(|_| Fault::corrupt(format!("a topic number of {number}")))?;
    Ok((number, used(row.try_get(6)?, row.try_get(7)?)))
}

/// Where feed and lane stand.
pub(crate) struct Stand {
    pub epoch: Epoch,
    pub floor: Seq,
    pub topics_version: i64,
    pub revision: i64,
}

pub(crate) fn stand(row: &PgRow) -> Result<Stand, Fault> {
    Ok(Stand {
        epoch: Epoch(row.try_get(5)?),
        floor: Seq(row.try_get(6)?),
        topics_version: row.try_get(7)?,
        revision: row.try_get(8)?,
    })
}

/// The last row of the feed.
pub(crate) fn last(row: &PgRow) -> Result<Seq, Fault> {
    Ok(Seq(row.try_get(5)?))
}

pub(crate) fn node_state(row: &PgRow) -> Result<NodeState, Fault> {
    let broken = |error| Fault::corrupt(format!("the state of the node cannot be read: {error}"));
    Ok(NodeState {
        usage: used(row.try_get(6)?, row.try_get(7)?),
        allowance: serde_json::from_slice(row.try_get(1)?).map_err(broken)?,
        leases: serde_json::from_slice(row.try_get(2)?).map_err(broken)?,
        past: serde_json::from_slice(row.try_get(3)?).map_err(broken)?,
    })
}

fn used(events: i64, bytes: i64) -> Usage {
    Usage { events: events.cast_unsigned(), bytes: bytes.cast_unsigned() }
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
              LEFT JOIN topic_usage u ON u.topic_no = n.topic_no"
        )
    };
}
pub(crate) use topics_and_usage;

pub(crate) fn topic_and_usage(row: &PgRow) -> Result<(NodeTopic, Usage), Fault> {
    let (events, bytes): (Option<i64>, Option<i64>) = (row.try_get(8)?, row.try_get(9)?);
    Ok((topic(row)?, used(events.unwrap_or(0), bytes.unwrap_or(0))))
}

/// The columns of [`feed_row`].
macro_rules! feed_columns {
    () => {
        "seq, op, event_id, topic_no, prior, kind, pubkey, created_at, ingested_at, effective_d, reason,
        source, via_topic_no"
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
    let kind = kind(i64::from(row.try_get::<i32, _>(5)?))?;
    let pubkey = pubkey(row.try_get(6)?)?;
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
