//! Finds candidates: documents that have all terms, newest first. A question reads so many documents
//! as it needs, however many there are.

use kukuri_core::Seq;
use kukuri_event::{EventId, UnixSeconds};
use kukuri_feed::{Desk, DeskError, Dialect, Row, Value};

use crate::document::Number;
use crate::search::{Ask, CANDIDATES_MAX, Candidate, Page, ROWS_MAX, Ranking, TopicKey};
use crate::tables::{Tables, keys, prefix};

/// Documents that are read at a time. As a rule all match, and the first read is the last.
const READ_ROWS_MAX: usize = CANDIDATES_MAX;

/// The newest documents of a topic that are looked at to guess how common terms are in it.
const SAMPLE_ROWS: usize = 400;
/// With so many of them, most of a topic would have to be read through an index that knows no order;
/// reading the topic in order until there are enough is quicker. Both take the same time where one in
/// 25 documents has the terms, with a million documents in the topic.
const SAMPLE_COMMON_MIN: i64 = 16;

const COLUMNS: &str = "d.number, d.event_id, d.topic, d.created_at, d.popularity, d.trail";

impl Tables {
    /// `head` is up to where the documents have followed the feed.
    pub(crate) async fn search(
        &self,
        desk: &mut Desk,
        ask: &Ask,
        head: Seq,
    ) -> Result<Page, DeskError> {
        let mut ranking = Ranking::new(ask);
        let (first, mut last) = ask.numbers();
        let plan = self.plan(desk, ask).await?;
        for _ in 0..ROWS_MAX / READ_ROWS_MAX {
            let mut values = plan.values.clone();
            values.extend([first.0, last.0, ask.seq_max().0].map(Value::from));
            let rows = desk.rows(&plan.sql, values).await?;
            for row in &rows {
                let (candidate, trail) = candidate(row)?;
                last = Number(candidate.number.0 - 1);
                ranking.look(&candidate, &trail);
            }
            if rows.len() < READ_ROWS_MAX || ranking.is_full() {
                break;
            }
        }
        Ok(ranking.page(head))
    }

    async fn plan(&self, desk: &mut Desk, ask: &Ask) -> Result<Plan, DeskError> {
        match desk.dialect() {
            Dialect::Sqlite => Ok(self.by_postings(ask)),
            Dialect::Postgres if self.is_common(desk, ask).await? => Ok(self.in_order(ask)),
            Dialect::Postgres => Ok(self.by_keys(ask)),
        }
    }

    /// FTS5 reads the documents of a term from the newest on, and stops where we do.
    fn by_postings(&self, ask: &Ask) -> Plan {
        let Self { documents, postings, .. } = self;
        let group = |topic: &kukuri_core::TopicId| {
            let prefix = prefix(TopicKey::of(topic));
            let terms = ask.query.terms().iter();
            let terms: Vec<String> = terms.map(|term| format!("\"{prefix}{term}\"")).collect();
            format!("({})", terms.join(" AND "))
        };
        let groups: Vec<String> = ask.topics.iter().map(group).collect();
        let sql = format!(
            "SELECT {COLUMNS} FROM {postings} AS p CROSS JOIN {documents} AS d
                 WHERE d.number = p.rowid AND p.{postings} MATCH $1
                 AND p.rowid >= $2 AND p.rowid <= $3 AND d.seq <= $4
                 ORDER BY p.rowid DESC LIMIT {READ_ROWS_MAX}"
        );
        Plan { sql, values: vec![groups.join(" OR ").into()] }
    }

    /// GIN finds all documents that have the keys; the newest of them are read.
    fn by_keys(&self, ask: &Ask) -> Plan {
        let documents = &self.documents;
        let holds: Vec<String> =
            (1..=ask.topics.len()).map(|nth| format!("keys @> {}", array(nth))).collect();
        let values = ask.topics.iter().map(|topic| keys(TopicKey::of(topic), ask.query.terms()));
        let next = ask.topics.len() + 1;
        let sql = format!(
            "WITH found AS MATERIALIZED (SELECT number, seq FROM {documents} WHERE {}),
                 newest AS MATERIALIZED (SELECT number FROM found
                     WHERE number BETWEEN ${next} AND ${} AND seq <= ${}
                     ORDER BY number DESC LIMIT {READ_ROWS_MAX})
                 SELECT {COLUMNS} FROM newest JOIN {documents} AS d USING (number)
                 ORDER BY number DESC",
            holds.join(" OR "),
            next + 1,
            next + 2,
        );
        Plan { sql, values: values.map(Value::from).collect() }
    }

    /// The documents of one topic in their order, until enough have the keys.
    fn in_order(&self, ask: &Ask) -> Plan {
        let documents = &self.documents;
        // An index finds what an operator asks for, and not what a test of its outcome does: so none is
        // used but that of the order.
        let sql = format!(
            "SELECT {COLUMNS} FROM {documents} AS d
                 WHERE topic = $1 AND (keys @> {}) IS TRUE
                 AND number BETWEEN $3 AND $4 AND seq <= $5
                 ORDER BY number DESC LIMIT {READ_ROWS_MAX}",
            array(2)
        );
        Plan { sql, values: one_topic(ask).map_or_else(Vec::new, Vec::from) }
    }

    /// Whether the newest documents of the topic say that the terms are common in it.
    async fn is_common(&self, desk: &mut Desk, ask: &Ask) -> Result<bool, DeskError> {
        let Some(values) = one_topic(ask) else { return Ok(false) };
        let sql = format!(
            "SELECT COUNT(*) FROM (SELECT keys FROM {} WHERE topic = $1
                 ORDER BY number DESC LIMIT {SAMPLE_ROWS}) AS sample WHERE keys @> {}",
            self.documents,
            array(2)
        );
        let row = desk.row(&sql, values.into()).await?;
        let count = row.map_or(Ok(0), |row| row.int(0))?;
        Ok(count >= SAMPLE_COMMON_MIN)
    }
}

/// A statement, and its values but for the first and last number and the last seq.
struct Plan {
    sql: String,
    values: Vec<Value>,
}

/// The topic and its keys, if there is one only.
fn one_topic(ask: &Ask) -> Option<[Value; 2]> {
    let [topic] = &ask.topics[..] else { return None };
    let topic = TopicKey::of(topic);
    Some([topic.0.into(), keys(topic, ask.query.terms()).into()])
}

fn array(nth: usize) -> String {
    format!("CAST(CAST(${nth} AS TEXT) AS INTEGER[])")
}

fn candidate(row: &Row) -> Result<(Candidate, Vec<u8>), DeskError> {
    let event_id = EventId::from_slice(&row.blob(1)?);
    let broken = || DeskError::Broken("a document has an event id of another length".into());
    let candidate = Candidate {
        number: Number(row.int(0)?),
        event_id: event_id.ok_or_else(broken)?,
        topic: TopicKey(row.int(2)?),
        created_at: UnixSeconds(row.int(3)?),
        popularity: row.int(4)?.clamp(0, i64::from(u32::MAX)) as u32,
    };
    Ok((candidate, row.blob(5)?))
}
