//! Loading the keys that the rules ask for, with the bounds of the feed: one statement, however many they
//! are. What follows from what was found takes a second one, where it was not foreseen by the first; and what was
//! looked up too early a third.

use std::collections::BTreeSet;

use kukuri_core::{Command, Facts, NodeKey, ReadSet, Record, TopicId, follow_up, needs};
use kukuri_event::EventId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::bounds::{Bounds, Expected};
use crate::dense::{Dense, is_in};
use crate::error::Fault;
use crate::lane::foresight::{Changed, Foreseen, Places};
use crate::migrate;
use crate::numbers::TopicNumbers;
use crate::rows::{self, columns, record_columns};
use crate::subscriptions::{ById, Topics};

/// With an event comes its record, and with the key of a replaceable event the one that won it: who
/// decides asks for them next. Its first bytes lead to it as in [`EventId::prefix`], and dedupe says in
/// which partition each would be.
macro_rules! keys {
    ($records:expr) => {
        concat!(
            "WITH version AS MATERIALIZED (
                SELECT v.* FROM (SELECT UNNEST($4::INTEGER[]) AS kind, UNNEST($5::BYTEA[]) AS pubkey,
                    UNNEST($6::BYTEA[]) AS d) AS k
                JOIN current_versions v ON v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d),
            known AS MATERIALIZED (
                SELECT d.* FROM event_dedupe d WHERE d.id = ANY($1)
                UNION ALL SELECT d.* FROM version v JOIN event_dedupe d
                    ON d.id = (('x' || encode(substr(v.event_id, 1, 8), 'hex'))::BIT(64)
                        # X'8000000000000000')::BIGINT
                    WHERE $10)
            SELECT ",
            columns!(dedupe),
            ", ",
            record_columns!(none),
            " FROM known d",
            $records,
            " UNION ALL SELECT ",
            columns!(tombstone),
            ", ",
            record_columns!(none),
            " FROM (SELECT UNNEST($2::BYTEA[]) AS target_event_id, UNNEST($3::BYTEA[]) AS pubkey) AS k
            JOIN deletion_tombstones t ON t.target_event_id = k.target_event_id AND t.pubkey = k.pubkey
            UNION ALL SELECT ",
            columns!(version),
            ", ",
            record_columns!(none),
            " FROM version v
            UNION ALL SELECT ",
            columns!(usage),
            ", ",
            record_columns!(none),
            " FROM topic_usage u WHERE u.topic_no = ANY($7)
            UNION ALL SELECT ",
            columns!(node),
            ", ",
            record_columns!(none),
            " FROM node_state n WHERE n.one AND $8
            UNION ALL SELECT ",
            columns!(stand),
            ", ",
            record_columns!(none),
            " FROM feed_meta m CROSS JOIN lane l WHERE l.one
            UNION ALL SELECT ",
            columns!(schema),
            ", ",
            record_columns!(none),
            " FROM (SELECT version FROM schema_version ORDER BY version DESC LIMIT 1) AS s
            UNION ALL SELECT ",
            columns!(last),
            ", ",
            record_columns!(none),
            " FROM (SELECT seq FROM events_outbox WHERE seq >= $9 ORDER BY seq DESC LIMIT 1) AS o"
        )
    };
}

const KEYS_AND_RECORDS: &str = keys!(concat!(
    " UNION ALL SELECT ",
    columns!(record),
    ", ",
    record_columns!(),
    " FROM known d JOIN events e ON e.seq = d.seq"
));

/// Where no event is asked for: a node that only asks how it stands does not wait for who holds all events.
const KEYS: &str = keys!("");

/// Whether the events that won a key come with it, or only what was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Winners {
    Added,
    Left,
}

/// What is there of the keys a batch needs, and where feed and lane stood then.
pub(crate) struct Loaded {
    pub facts: Facts,
    pub bounds: Bounds,
    /// How many batches were committed.
    pub revision: i64,
}

/// Loads what a batch needs on a connection whose transaction decides as of when.
pub(crate) async fn load_all(
    connection: &mut PgConnection,
    topics: &Topics,
    expected: Expected,
    batch: &[Command],
) -> Result<Loaded, Fault> {
    let needs = needs(batch);
    let mut loaded = load_round(connection, topics, expected, &needs, Winners::Added).await?;
    let more = follow_up(batch, &loaded.facts);
    if !more.is_empty() {
        let more = load_round(connection, topics, expected, &more, Winners::Added).await?;
        loaded.facts.extend(more.facts);
    }
    Ok(loaded)
}

/// As [`load_all`], without a transaction: every statement tells at which revision it was run. `None` if
/// another batch was committed between two of them, or a topic is new to this process. Events that were looked
/// up before are not looked for again, unless they may have changed.
pub(crate) async fn load_free(
    connection: &mut PgConnection,
    topics: &Topics,
    expected: Expected,
    batch: &[Command],
    mut needs: ReadSet,
    before: Option<(Foreseen, &Changed)>,
) -> Result<Option<Loaded>, Fault> {
    if let Some((foreseen, _)) = &before {
        let facts = foreseen.facts();
        needs.records.retain(|id| !facts.records.contains_key(id));
        needs.extend(follow_up(batch, facts));
    }
    let Some(mut loaded) = load_free_round(connection, topics, expected, &needs).await? else {
        return Ok(None);
    };
    let mut more = ReadSet::default();
    if let Some((foreseen, changed)) = before {
        let is_true = foreseen.is_true_at(loaded.revision, changed);
        let facts = foreseen.into_facts();
        match is_true {
            true => loaded.facts.extend(facts),
            false => more.records.extend(facts.records.into_keys()),
        }
    }
    // A second round leads to no third one, unless it is the first for some of the events.
    for _ in 0..2 {
        more.extend(follow_up(batch, &loaded.facts));
        if more.is_empty() {
            break;
        }
        let found = load_free_round(connection, topics, expected, &more).await?;
        let Some(found) = found.filter(|found| found.revision == loaded.revision) else {
            return Ok(None);
        };
        loaded.facts.extend(found.facts);
        more = ReadSet::default();
    }
    Ok(Some(loaded))
}

async fn load_free_round(
    connection: &mut PgConnection,
    topics: &Topics,
    expected: Expected,
    needs: &ReadSet,
) -> Result<Option<Loaded>, Fault> {
    let Some(known) = topics.numbers_of(&needs.topics) else { return Ok(None) };
    let (numbers, winners) = (&topics.numbers, Winners::Added);
    let mut loaded = load_keys(connection, numbers, known, expected, needs, winners).await?;
    if !needs.topics.is_empty() {
        let subscriptions = topics.subscriptions.remembered(loaded.bounds.topics_version);
        let Some(subscriptions) = subscriptions else { return Ok(None) };
        fill_in(&mut loaded.facts, &subscriptions);
    }
    Ok(Some(loaded))
}

/// Loads `needs` alone.
pub(crate) async fn load(
    connection: &mut PgConnection,
    topics: &Topics,
    expected: Expected,
    needs: &ReadSet,
) -> Result<Loaded, Fault> {
    load_round(connection, topics, expected, needs, Winners::Left).await
}

async fn load_round(
    connection: &mut PgConnection,
    topics: &Topics,
    expected: Expected,
    needs: &ReadSet,
    winners: Winners,
) -> Result<Loaded, Fault> {
    let wanted: Vec<&TopicId> = needs.topics.iter().collect();
    let found = topics.numbers.find(connection, &wanted).await?;
    let numbers = &topics.numbers;
    let mut loaded = load_keys(connection, numbers, found, expected, needs, winners).await?;
    if !needs.topics.is_empty() {
        let version = loaded.bounds.topics_version;
        fill_in(&mut loaded.facts, &*topics.subscriptions.at(connection, version).await?);
    }
    Ok(loaded)
}

pub(crate) fn fill_in(facts: &mut Facts, subscriptions: &ById) {
    for (topic, row) in &mut facts.topics {
        *row = subscriptions.get(topic).cloned();
    }
}

async fn load_keys(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    topics: Vec<i32>,
    expected: Expected,
    needs: &ReadSet,
    winners: Winners,
) -> Result<Loaded, Fault> {
    let mut facts = Facts::absent(needs);
    let (tombstones, versions) = (&needs.tombstones, &needs.versions);
    let ids = || needs.events.union(&needs.records);
    let events = ids().next().is_some() || !needs.versions.is_empty();
    let found = sqlx::query(if events { KEYS_AND_RECORDS } else { KEYS })
        .bind(column(ids().map(EventId::prefix)))
        .bind(column(tombstones.iter().map(|key| *key.target.as_bytes())))
        .bind(column(tombstones.iter().map(|key| *key.pubkey.as_bytes())))
        .bind(column(versions.iter().map(|key| i32::from(key.kind.0))))
        .bind(column(versions.iter().map(|key| *key.pubkey.as_bytes())))
        .bind(column(versions.iter().map(|key| key.d.as_bytes())))
        .bind(topics)
        .bind(needs.node.is_some())
        .bind(expected.head.0)
        .bind(winners == Winners::Added);
    let (mut stand, mut last, mut schema) = (None, None, 0);
    let (mut known, mut records) = (Vec::new(), Vec::new());
    for row in found.fetch_all(&mut *connection).await? {
        match row.try_get(0)? {
            rows::STAND => stand = Some(rows::stand(&row)?),
            rows::LAST => last = Some(rows::last(&row)?),
            rows::SCHEMA => schema = row.try_get(5)?,
            rows::DEDUPE => known.push(rows::dedupe(&row)?),
            rows::RECORD => records.push(row),
            sort => fact(sort, &row, numbers, &mut facts)?,
        }
    }
    if winners == Winners::Added {
        add_winners(&mut facts);
    }
    // Others may share the first bytes of an id.
    for (id, row) in known {
        facts.dedupe.entry(id).and_modify(|known| *known = Some(row));
    }
    for record in read_records(connection, numbers, &records, rows::RECORD_FIRST).await? {
        facts.records.entry(record.event().id()).and_modify(|known| *known = Some(record));
    }
    migrate::check_newest(schema)?;
    let stand = stand.ok_or_else(no_stand)?;
    let bounds = Bounds::new(stand.epoch, stand.floor, stand.topics_version, last);
    Ok(Loaded { facts, bounds: bounds.checked(expected)?, revision: stand.revision })
}

fn fact(sort: i16, row: &PgRow, numbers: &TopicNumbers, facts: &mut Facts) -> Result<(), Fault> {
    match sort {
        rows::TOMBSTONE => {
            let (key, row) = rows::tombstone(row)?;
            facts.tombstones.insert(key, Some(row));
        }
        rows::VERSION => {
            let (key, row) = rows::version(row)?;
            facts.versions.insert(key, Some(row));
        }
        rows::USAGE => {
            let (number, row) = rows::usage(row)?;
            facts.usage.insert(numbers.id(number)?, Some(row));
        }
        rows::NODE => {
            facts.node.insert(NodeKey, Some(rows::node_state(row)?));
        }
        other => return Err(Fault::corrupt(format!("a row of the unknown sort {other}"))),
    }
    Ok(())
}

fn column<T>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect()
}

/// The events that won a key were looked for as well.
fn add_winners(facts: &mut Facts) {
    for mark in facts.versions.values().flatten().filter_map(|version| version.mark) {
        facts.records.entry(mark.event_id).or_insert(None);
    }
}

/// Records as they are now, and at which revision that is. Some are found by their numbers, in one stretch.
const FORESEEN: &str = concat!(
    "SELECT ",
    columns!(stand),
    ", ",
    record_columns!(none),
    " FROM feed_meta m CROSS JOIN lane l WHERE l.one
    UNION ALL SELECT ",
    columns!(record),
    ", ",
    record_columns!(),
    " FROM events e WHERE ",
    is_in!("e.seq", "$1", "$2", "$3"),
    " UNION ALL SELECT ",
    columns!(record),
    ", ",
    record_columns!(),
    " FROM event_dedupe d JOIN events e ON e.seq = d.seq WHERE d.id = ANY($4)"
);

/// Looks up records that a batch will ask for. Those that are not found are left to it.
pub(crate) async fn foresee(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    events: &BTreeSet<EventId>,
    places: Places,
) -> Result<Foreseen, Fault> {
    let Places { numbers: Dense { first, last, bits }, ids } = places;
    let found = sqlx::query(FORESEEN).bind(first).bind(last).bind(bits).bind(ids);
    let mut found = found.fetch_all(&mut *connection).await?;
    let is_stand = |row: &PgRow| row.try_get::<i16, _>(0).is_ok_and(|sort| sort == rows::STAND);
    let stand = found.iter().position(is_stand);
    let stand = found.swap_remove(stand.ok_or_else(no_stand)?);
    let records = read_records(connection, numbers, &found, rows::RECORD_FIRST).await?;
    // Others may share the first bytes of an id.
    let meant = records.into_iter().filter(|record| events.contains(&record.event().id()));
    Ok(Foreseen::new(rows::stand(&stand)?.revision, meant))
}

fn no_stand() -> Fault {
    Fault::corrupt("feed_meta or lane is empty; run doctor")
}

/// Reads rows of records, whose columns begin at `first`, learning what topics they speak of.
pub(crate) async fn read_records(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    found: &[PgRow],
    first: usize,
) -> Result<Vec<Record>, Fault> {
    let mut topics = BTreeSet::new();
    for row in found {
        let links = rows::record_links(row, first)?;
        topics.extend(rows::raw_links(links).map(|(number, _)| number));
    }
    numbers.learn(connection, topics).await?;
    found.iter().map(|row| rows::record(row, first, numbers)).collect()
}
