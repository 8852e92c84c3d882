//! The tables of a generation, the same in both databases: documents, who endorses them, the segments
//! that tell which document has which term, and whose numbers in them lead nowhere.

use kukuri_feed::{Desk, DeskError, Dialect, Generation};

/// The names of the tables of a generation.
pub(crate) struct Tables {
    pub documents: String,
    pub endorsements: String,
    pub voices: String,
    pub segments: String,
    pub blocks: String,
    pub departed: String,
}

impl Tables {
    pub(crate) fn of(generation: Generation) -> Self {
        Self {
            documents: generation.table("post_search_documents"),
            endorsements: generation.table("post_search_endorsements"),
            voices: generation.table("post_search_voices"),
            segments: generation.table("post_search_segments"),
            blocks: generation.table("post_search_blocks"),
            departed: generation.table("post_search_departed"),
        }
    }

    pub(crate) async fn create(&self, desk: &mut Desk) -> Result<(), DeskError> {
        let Self { documents, endorsements, voices, segments, blocks, departed } = self;
        let blob = desk.dialect().blob();
        // What SQLite calls so is the place of a row itself.
        let number = if desk.dialect() == Dialect::Sqlite { "INTEGER" } else { "BIGINT" };
        let clustered = if desk.dialect() == Dialect::Sqlite { " WITHOUT ROWID" } else { "" };
        desk.script(&format!(
            "CREATE TABLE {documents} (number {number} NOT NULL PRIMARY KEY,
                 event_id {blob} NOT NULL, topic BIGINT NOT NULL, created_at BIGINT NOT NULL,
                 seq BIGINT NOT NULL, target BIGINT NOT NULL, popularity BIGINT NOT NULL,
                 trail {blob} NOT NULL);
             CREATE INDEX {documents}_target ON {documents} (target);
             CREATE TABLE {endorsements} (event BIGINT NOT NULL, rest BIGINT NOT NULL,
                 target BIGINT NOT NULL, author BIGINT NOT NULL, sort BIGINT NOT NULL,
                 PRIMARY KEY (event, rest)){clustered};
             CREATE TABLE {voices} (target BIGINT NOT NULL, author BIGINT NOT NULL,
                 sort BIGINT NOT NULL, events BIGINT NOT NULL, PRIMARY KEY (target, author, sort));
             CREATE TABLE {segments} (segment {number} NOT NULL PRIMARY KEY,
                 postings BIGINT NOT NULL, documents BIGINT NOT NULL, removed BIGINT NOT NULL,
                 oldest BIGINT NOT NULL, newest BIGINT NOT NULL,
                 state BIGINT NOT NULL, next_key BIGINT NOT NULL);
             CREATE TABLE {blocks} (segment BIGINT NOT NULL, key BIGINT NOT NULL,
                 part BIGINT NOT NULL, block {blob} NOT NULL, PRIMARY KEY (segment, key, part));
             CREATE TABLE {departed} (number BIGINT NOT NULL, segment BIGINT NOT NULL,
                 event_id {blob} NOT NULL, topic BIGINT NOT NULL, PRIMARY KEY (number, segment));
             CREATE INDEX {departed}_segment ON {departed} (segment);"
        ))
        .await
    }

    pub(crate) async fn discard(&self, desk: &mut Desk) -> Result<(), DeskError> {
        let Self { documents, endorsements, voices, segments, blocks, departed } = self;
        for table in [documents, endorsements, voices, segments, blocks, departed] {
            desk.script(&format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        Ok(())
    }
}

/// Words that make a table with one column, `value`, of the parameter `nth`, and the parameter.
pub(crate) fn list(dialect: Dialect, nth: usize, numbers: &[i64]) -> (String, String) {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    match dialect {
        Dialect::Sqlite => {
            (format!("(SELECT value FROM json_each(${nth}))"), format!("[{}]", numbers.join(",")))
        }
        Dialect::Postgres => (
            format!("(SELECT UNNEST(CAST(CAST(${nth} AS TEXT) AS BIGINT[])) AS value)"),
            format!("{{{}}}", numbers.join(",")),
        ),
    }
}
