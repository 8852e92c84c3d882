//! Index rows of events that have left. Ids, tags and authors are spread evenly, so that deleting their
//! rows with each chunk of a purge would change a page for nearly every row. They lead to an event that
//! is looked for in any case; so they stay until many can be deleted in the order of their pages.

use kukuri_core::{Record, tag_key};
use kukuri_store::StoreError;
use rusqlite::{Connection, Row, TransactionBehavior, params};

use crate::error::{OrStore, corrupt};
use crate::indexes::IndexRows;
use crate::page::collect;
use crate::write::one;

/// Events whose rows one step deletes: as many pages for half as many would change more than half as
/// many pages. It takes whoever waits to write as long as a run of the tail does.
const EVENTS_PER_STEP: i64 = 32_768;

const KEY_BYTES: usize = size_of::<i64>();

/// What the rows of an event are found by.
pub(crate) struct Departed {
    seq: i64,
    id: i64,
    created_at: i64,
    author: Option<i64>,
    tag_keys: Vec<i64>,
}

impl Departed {
    pub fn of(record: &Record) -> Self {
        let event = record.event();
        let tags = record.indexed_tags();
        let keys = tags.into_iter().map(|(letter, value)| tag_key(letter, value));
        let tag_keys = if record.is_effective() { keys.collect() } else { Vec::new() };
        Self {
            seq: record.seq.0,
            id: event.id().prefix(),
            created_at: event.created_at().0,
            author: record.is_effective().then(|| event.pubkey().prefix()),
            tag_keys,
        }
    }

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        let bytes = row.get_ref(4).or_store()?.as_blob().map_err(corrupt)?;
        let (keys, []) = bytes.as_chunks::<KEY_BYTES>() else {
            return Err(corrupt("keys of tags of the wrong length"));
        };
        Ok(Self {
            seq: row.get(0).or_store()?,
            id: row.get(1).or_store()?,
            created_at: row.get(2).or_store()?,
            author: row.get(3).or_store()?,
            tag_keys: keys.iter().map(|key| i64::from_be_bytes(*key)).collect(),
        })
    }
}

pub(crate) fn write(conn: &Connection, mut departed: Vec<Departed>) -> Result<(), StoreError> {
    departed.sort_unstable_by_key(|event| event.seq);
    let sql = "INSERT INTO departed (seq, id, created_at, author, tag_keys)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = conn.prepare_cached(sql).or_store()?;
    for Departed { seq, id, created_at, author, tag_keys } in departed {
        let keys: Vec<u8> = tag_keys.into_iter().flat_map(i64::to_be_bytes).collect();
        one(&mut insert, params![seq, id, created_at, author, keys])?;
    }
    Ok(())
}

/// Deletes the rows of some that have left. Says whether there were any.
pub(crate) fn sweep(conn: &mut Connection) -> Result<bool, StoreError> {
    let any = "SELECT EXISTS (SELECT 1 FROM departed)";
    if !conn.query_row(any, [], |row| row.get(0)).or_store()? {
        return Ok(false);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
    let sql = "SELECT seq, id, created_at, author, tag_keys FROM departed ORDER BY seq LIMIT ?1";
    let departed = collect(&tx, sql, [EVENTS_PER_STEP], Departed::read)?;
    let last = departed.last().map(|event| event.seq);
    let mut rows = IndexRows::default();
    for event in departed {
        rows.add_id(event.id, event.seq);
        for key in event.tag_keys {
            rows.add_tag(key, event.created_at, event.seq);
        }
        if let Some(author) = event.author {
            // Rows are deleted by their key, which the kind is no part of.
            rows.add_author(author, event.created_at, event.seq, 0);
        }
    }
    rows.sort();
    rows.delete(&tx)?;
    tx.execute("DELETE FROM departed WHERE seq <= ?1", [last]).or_store()?;
    tx.commit().or_store()?;
    Ok(true)
}
