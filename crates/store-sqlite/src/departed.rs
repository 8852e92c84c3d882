//! Index rows of events that have left. Ids, tags and authors are spread evenly, so that deleting their
//! rows with each chunk of a purge would change a page for nearly every row. They lead to an event that
//! is looked for in any case; so they stay until many can be deleted in the order of their pages.

use kukuri_core::{Record, tag_key};
use kukuri_store::StoreError;
use rusqlite::{Connection, Row, TransactionBehavior, params, params_from_iter};

use crate::dedupe::Leaving;
use crate::error::{OrStore, corrupt};
use crate::write::one;

/// Events whose rows are sorted together: the more they are, the more rows lie on one page.
const EVENTS_PER_PASS: i64 = 131_072;

/// Tags whose rows are sorted together: some tens of megabytes, however many tags the events have.
const TAGS_PER_PASS: usize = 1 << 20;

/// Rows that one step deletes: some milliseconds for whoever waits to write.
const ROWS_PER_STEP: usize = 8192;

const KEY_BYTES: usize = size_of::<i64>();

/// What the rows of an event are found by.
pub(crate) struct Departed {
    seq: i64,
    /// Unless it is remembered by its row.
    id: Option<i64>,
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
            id: Some(event.id().prefix()),
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

pub(crate) fn write(
    conn: &Connection,
    mut departed: Vec<Departed>,
    leaving: &Leaving,
) -> Result<(), StoreError> {
    departed.sort_unstable_by_key(|event| event.seq);
    let sql = "INSERT INTO departed (seq, id, created_at, author, tag_keys)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = conn.prepare_cached(sql).or_store()?;
    for Departed { seq, id, created_at, author, tag_keys } in departed {
        let id = id.filter(|_| !leaving.contains_key(&seq));
        let keys: Vec<u8> = tag_keys.into_iter().flat_map(i64::to_be_bytes).collect();
        one(&mut insert, params![seq, id, created_at, author, keys])?;
    }
    Ok(())
}

/// A pass over the rows of many events, of which each step deletes some. Whoever is cut off begins again
/// with the same events: the numbers of events are never used twice, so that a row that is gone already,
/// by this process or another, is no fault.
#[derive(Default)]
pub(crate) struct Pass {
    ids: Vec<[i64; 2]>,
    tags: Vec<[i64; 3]>,
    authors: Vec<[i64; 3]>,
    seqs: Vec<[i64; 1]>,
}

impl Pass {
    fn load(conn: &Connection) -> Result<Self, StoreError> {
        let sql =
            "SELECT seq, id, created_at, author, tag_keys FROM departed ORDER BY seq LIMIT ?1";
        let mut pass = Self::default();
        let mut select = conn.prepare_cached(sql).or_store()?;
        let mut rows = select.query([EVENTS_PER_PASS]).or_store()?;
        while let Some(row) = rows.next().or_store()?
            && pass.tags.len() < TAGS_PER_PASS
        {
            let event = Departed::read(row)?;
            let Departed { seq, created_at, .. } = event;
            pass.ids.extend(event.id.map(|id| [id, seq]));
            pass.tags.extend(event.tag_keys.into_iter().map(|key| [key, created_at, seq]));
            pass.authors.extend(event.author.map(|author| [author, created_at, seq]));
            pass.seqs.push([seq]);
        }
        pass.ids.sort_unstable();
        pass.tags.sort_unstable();
        pass.authors.sort_unstable();
        Ok(pass)
    }

    fn delete_some(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let mut left = ROWS_PER_STEP;
        delete("event_ids WHERE id = ?1 AND seq = ?2", conn, &mut self.ids, &mut left)?;
        let of_tag = "event_tags WHERE key = ?1 AND created_at = ?2 AND seq = ?3";
        delete(of_tag, conn, &mut self.tags, &mut left)?;
        let of_author = "event_authors WHERE author = ?1 AND created_at = ?2 AND seq = ?3";
        delete(of_author, conn, &mut self.authors, &mut left)?;
        // Last, because they say what is left to do.
        delete("departed WHERE seq = ?1", conn, &mut self.seqs, &mut left)
    }
}

/// Deletes rows from the end of a list, as many as are left to this step.
fn delete<const N: usize>(
    place: &str,
    conn: &Connection,
    rows: &mut Vec<[i64; N]>,
    left: &mut usize,
) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached(&format!("DELETE FROM {place}")).or_store()?;
    let some = rows.split_off(rows.len() - rows.len().min(*left));
    *left -= some.len();
    for row in some {
        delete.execute(params_from_iter(row)).or_store()?;
    }
    Ok(())
}

/// Deletes the rows of some that have left. Says whether there were any.
pub(crate) fn sweep(conn: &mut Connection, pass: &mut Pass) -> Result<bool, StoreError> {
    // What fails is forgotten, and begins again.
    let mut current = std::mem::take(pass);
    if current.seqs.is_empty() {
        current = Pass::load(conn)?;
    }
    if current.seqs.is_empty() {
        return Ok(false);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
    current.delete_some(&tx)?;
    tx.commit().or_store()?;
    *pass = current;
    Ok(true)
}
