//! Reading stretches of an index: the statements, and what their rows say.

use kukuri_core::Seq;
use kukuri_event::{EventId, Kind, Pubkey, UnixSeconds};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::moment::{Moment, moment};
use super::{Source, Wanted};
use crate::error::Fault;
use crate::{list, rows};

/// The stretches of some keys: a row for each key, in which every column is an array. While columns
/// are few and narrow, that costs less than a row for each event.
macro_rules! stretches {
    ($columns:expr, $table:literal, $key:literal, $join:literal) => {
        concat!(
            "SELECT h.epoch, h.head, k.nth, s.* FROM ",
            moment!("$6"),
            " CROSS JOIN UNNEST($1::BIGINT[], $2::BIGINT[], $3::BIGINT[], $4::BIGINT[])
                WITH ORDINALITY AS k (key, created_at, tie, take, nth)
            CROSS JOIN LATERAL (
                SELECT array_agg(s.created_at), array_agg(s.tie), array_agg(s.seq), ",
            $columns,
            " FROM (
                    SELECT * FROM ",
            $table,
            " AS e WHERE e.",
            $key,
            " = k.key AND (e.created_at, e.tie) <= (k.created_at, k.tie) AND e.created_at >= $5
                    ORDER BY e.created_at DESC, e.tie DESC LIMIT k.take
                ) AS s ",
            $join,
            ") AS s"
        )
    };
}

/// What conditions are tested on, where that is needed.
macro_rules! tested {
    ($of:literal, $topic_no:literal, $pubkey:literal) => {
        concat!(
            "array_agg(",
            $of,
            ".kind), array_agg(",
            $of,
            ".expires_at), array_agg(",
            $of,
            ".event_id), array_agg(",
            $topic_no,
            "), array_agg(",
            $pubkey,
            ")"
        )
    };
}

const TOPICS: &str =
    stretches!(tested!("s", "NULL::INTEGER", "NULL::BYTEA"), "event_topics", "topic_no", "");

const TOPICS_AND_AUTHORS: &str =
    stretches!(tested!("s", "NULL::INTEGER", "s.pubkey"), "event_topics", "topic_no", "");

const AUTHORS: &str =
    stretches!(tested!("s", "s.topic_no", "s.pubkey"), "event_topics", "author", "");

/// A row whose tag only shares the key, or whose event is in none of the topics, comes alone.
const TAGS_IN_TOPICS: &str = stretches!(
    tested!("l", "NULL::INTEGER", "l.pubkey"),
    "event_tags",
    "key",
    "LEFT JOIN LATERAL (
        SELECT l.* FROM event_topics l
        WHERE l.topic_no = ANY($9) AND l.created_at = s.created_at AND l.tie = s.tie
            AND l.seq = s.seq
        LIMIT 1
    ) AS l ON s.tag = $7 AND s.value = ANY($8)"
);

const TAGS: &str = stretches!(
    tested!("l", "NULL::INTEGER", "l.pubkey"),
    "event_tags",
    "key",
    "LEFT JOIN events l ON l.seq = s.seq AND l.state = 1 AND s.tag = $7 AND s.value = ANY($8)"
);

/// A place in the order of an index: the greater, the newer.
pub(super) type Place = (i64, i64);

/// A stretch that is asked for: so many rows of a key, from a place on.
pub(super) struct Asked {
    pub key: i64,
    pub place: Place,
    pub take: usize,
}

/// A row of an index, and what is known of its event.
pub(super) struct IndexRow {
    pub place: Place,
    pub seq: Seq,
    pub columns: Option<Columns>,
}

pub(super) struct Columns {
    pub topic_no: Option<i32>,
    pub kind: Kind,
    pub expires_at: Option<UnixSeconds>,
    pub id: EventId,
    pub pubkey: Option<Pubkey>,
}

/// The moment, and the stretches that were asked for, each with its number among these.
pub(super) async fn read(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
    source: &Source,
    asked: Vec<Asked>,
    known: Seq,
) -> Result<(Moment, Vec<(usize, Vec<IndexRow>)>), Fault> {
    let column = |read: fn(&Asked) -> i64| asked.iter().map(read).collect::<Vec<i64>>();
    let sql = match source {
        Source::Topics(_) if wanted.filter.authors.is_none() => TOPICS,
        Source::Topics(_) => TOPICS_AND_AUTHORS,
        Source::Authors { .. } => AUTHORS,
        Source::Tag { topics: Some(_), .. } => TAGS_IN_TOPICS,
        Source::Tag { topics: None, .. } => TAGS,
    };
    let mut query = sqlx::query(sql)
        .bind(column(|asked| asked.key))
        .bind(column(|asked| asked.place.0))
        .bind(column(|asked| asked.place.1))
        .bind(column(|asked| list::limit(asked.take)))
        .bind(wanted.filter.since.map_or(i64::MIN, |since| since.0))
        .bind(known.0);
    if let Source::Tag { letter, values, topics, .. } = source {
        query = query.bind(i16::from(letter.as_byte())).bind(values);
        if let Some(topics) = topics {
            query = query.bind(topics);
        }
    }
    let found = query.fetch_all(connection).await?;
    let stretches = found.iter().map(stretch).collect::<Result<_, Fault>>()?;
    Ok((Moment::of(&found, 0)?, stretches))
}

fn stretch(row: &PgRow) -> Result<(usize, Vec<IndexRow>), Fault> {
    let nth = usize::try_from(row.try_get::<i64, _>(2)? - 1).unwrap_or(0);
    let Some(created_at) = row.try_get::<Option<Vec<i64>>, _>(3)? else {
        return Ok((nth, Vec::new()));
    };
    let (ties, seqs): (Vec<i64>, Vec<i64>) = (row.try_get(4)?, row.try_get(5)?);
    let kinds: Vec<Option<i32>> = row.try_get(6)?;
    let ends: Vec<Option<i64>> = row.try_get(7)?;
    let ids: Vec<Option<[u8; 32]>> = row.try_get(8)?;
    let topic_nos: Vec<Option<i32>> = row.try_get(9)?;
    let pubkeys: Vec<Option<[u8; 32]>> = row.try_get(10)?;
    let columns = |nth: usize| {
        let (Some(kind), Some(id)) = (kinds[nth], ids[nth]) else {
            return Ok(None);
        };
        Ok::<_, Fault>(Some(Columns {
            topic_no: topic_nos[nth],
            kind: rows::kind(i64::from(kind))?,
            expires_at: ends[nth].map(UnixSeconds),
            id: EventId::from_bytes(id),
            pubkey: pubkeys[nth].map(Pubkey::from_bytes),
        }))
    };
    let rows = (0..created_at.len()).map(|nth| {
        let place = (created_at[nth], ties[nth]);
        Ok(IndexRow { place, seq: Seq(seqs[nth]), columns: columns(nth)? })
    });
    Ok((nth, rows.collect::<Result<_, Fault>>()?))
}
