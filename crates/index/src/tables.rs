//! The tables of a generation. Both databases have the same documents and endorsements; which document
//! has which term is an FTS5 table in SQLite, and a column with a GIN index in PostgreSQL. Either is
//! given whole terms, each joined with its topic: so what is common in one topic does not slow down
//! another.

use std::fmt::Write;

use kukuri_feed::{Desk, DeskError, Dialect, Generation};

use crate::search::TopicKey;
use crate::text::{hash, mix};

/// Bytes of terms that FTS5 gathers before it writes them, so that a batch is written at once.
const GATHERED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many parts of one size FTS5 has before it makes one of them. More are less to write and more to
/// look through.
const PARTS_MAX: usize = 8;

/// The names of the tables of a generation.
pub(crate) struct Tables {
    pub documents: String,
    pub endorsements: String,
    /// Only in SQLite.
    pub postings: String,
}

impl Tables {
    pub(crate) fn of(generation: Generation) -> Self {
        Self {
            documents: generation.table("post_search_documents"),
            endorsements: generation.table("post_search_endorsements"),
            postings: generation.table("post_search_postings"),
        }
    }

    pub(crate) async fn create(&self, desk: &mut Desk) -> Result<(), DeskError> {
        let Self { documents, endorsements, postings } = self;
        let dialect = desk.dialect();
        let blob = dialect.blob();
        let (keys, own) = match dialect {
            Dialect::Sqlite => (
                "",
                format!(
                    "CREATE VIRTUAL TABLE {postings} USING fts5(terms, content='',
                         contentless_delete=1, detail=none, tokenize=\"ascii tokenchars '#@_'\");
                     INSERT INTO {postings} ({postings}, rank)
                         VALUES ('hashsize', {GATHERED_BYTES_MAX}), ('automerge', {PARTS_MAX});"
                ),
            ),
            // Documents of a topic in their order serve questions for what nearly all of them have. Which
            // keys are common we find out ourselves, so the server need not.
            Dialect::Postgres => (
                ", keys INTEGER[] NOT NULL",
                format!(
                    "ALTER TABLE {documents} ALTER COLUMN keys SET STATISTICS 0;
                     CREATE INDEX ON {documents} USING GIN (keys);
                     CREATE INDEX ON {documents} (topic, number DESC);"
                ),
            ),
        };
        let number = if dialect == Dialect::Sqlite { "INTEGER" } else { "BIGINT" };
        desk.script(&format!(
            "CREATE TABLE {documents} (number {number} NOT NULL PRIMARY KEY,
                 event_id {blob} NOT NULL, topic BIGINT NOT NULL, created_at BIGINT NOT NULL,
                 seq BIGINT NOT NULL, target BIGINT NOT NULL, popularity BIGINT NOT NULL,
                 trail {blob} NOT NULL{keys});
             CREATE INDEX {documents}_target ON {documents} (target);
             CREATE TABLE {endorsements} (event {number} NOT NULL PRIMARY KEY,
                 target BIGINT NOT NULL, author BIGINT NOT NULL, sort BIGINT NOT NULL);
             CREATE INDEX {endorsements}_target ON {endorsements} (target, author, sort);
             {own}"
        ))
        .await
    }

    pub(crate) async fn discard(&self, desk: &mut Desk) -> Result<(), DeskError> {
        let Self { documents, endorsements, postings } = self;
        for table in [documents, endorsements, postings] {
            desk.script(&format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        Ok(())
    }
}

/// A list of numbers as one value, and the words that make it rows of one column.
pub(crate) fn list(dialect: Dialect, numbers: &[i64]) -> (&'static str, String) {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    match dialect {
        Dialect::Sqlite => ("SELECT value FROM json_each($1)", format!("[{}]", numbers.join(","))),
        Dialect::Postgres => (
            "SELECT UNNEST(CAST(CAST($1 AS TEXT) AS BIGINT[]))",
            format!("{{{}}}", numbers.join(",")),
        ),
    }
}

/// What stands before a term in FTS5: its topic in six letters and digits, of two thousand million. The
/// rare topic that shares them is told apart by its documents.
pub(crate) fn prefix(topic: TopicKey) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    const LENGTH: usize = 6;
    let digits = std::iter::successors(Some(topic.0 as u64), |rest| Some(rest / 36)).take(LENGTH);
    digits.map(|rest| char::from(DIGITS[(rest % 36) as usize])).collect()
}

/// All terms of a document as FTS5 reads them.
pub(crate) fn postings(topic: TopicKey, terms: &[String]) -> String {
    let prefix = prefix(topic);
    let bytes = terms.iter().map(|term| prefix.len() + term.len() + 1).sum();
    terms.iter().fold(String::with_capacity(bytes), |all, term| all + &prefix + term + " ")
}

/// A term in a topic as GIN has it.
fn key(topic: TopicKey, term: &str) -> i32 {
    // The upper half: stamps in trails are of the lower.
    (mix(hash(term.as_bytes()) ^ topic.0 as u64) >> 32) as i32
}

/// Keys as PostgreSQL reads them.
pub(crate) fn keys(topic: TopicKey, terms: &[String]) -> String {
    let mut keys: Vec<i32> = terms.iter().map(|term| key(topic, term)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut text = String::with_capacity(12 * keys.len() + 2);
    for (nth, key) in keys.iter().enumerate() {
        let before = if nth == 0 { '{' } else { ',' };
        let _ = write!(text, "{before}{key}");
    }
    text + "}"
}
