//! The rows by which events are found: derived from what an event was before a batch and is after.

use kukuri_core::{Change, Record, tag_key};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use rusqlite::{Connection, params};

use crate::dedupe::Leaving;
use crate::departed::{self, Departed};
use crate::desk::TopicNumbers;
use crate::error::OrStore;
use crate::tail::Segment;
use crate::write::one;

pub(crate) const INSERT_ID: &str = "INSERT INTO event_ids (id, seq) VALUES (?1, ?2)";
pub(crate) const INSERT_TOPIC: &str =
    "INSERT INTO event_topics (topic_no, created_at, event_id, seq, kind, author, expires_at)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const INSERT_HIDDEN: &str =
    "INSERT INTO hidden_links (topic_no, created_at, event_id, seq) VALUES (?1, ?2, ?3, ?4)";
pub(crate) const INSERT_TAG: &str =
    "INSERT INTO event_tags (key, created_at, seq) VALUES (?1, ?2, ?3)";
pub(crate) const INSERT_AUTHOR: &str =
    "INSERT INTO event_authors (author, created_at, seq, kind) VALUES (?1, ?2, ?3, ?4)";

/// Index rows to put in and to take out. Each list is sorted before it is written.
#[derive(Default)]
pub(crate) struct IndexChanges {
    put: IndexRows,
    take: IndexRows,
    departed: Vec<Departed>,
}

#[derive(Default)]
struct IndexRows {
    ids: Vec<(i64, i64)>,
    topics: Vec<TopicRow>,
    hidden: Vec<HiddenRow>,
    tags: Vec<(i64, std::cmp::Reverse<i64>, i64)>,
    authors: Vec<(i64, std::cmp::Reverse<i64>, i64, u16)>,
    expirations: Vec<(i64, i64)>,
}

/// Topic number, `created_at`, id and number of a hidden event.
pub(crate) type HiddenRow = (i64, i64, EventId, i64);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TopicRow {
    topic_no: i64,
    created_at: std::cmp::Reverse<i64>,
    event_id: EventId,
    seq: i64,
    kind: u16,
    author: i64,
    expires_at: Option<i64>,
}

impl IndexChanges {
    /// Adds what a change does to the indexes. An event in the tail has no rows there yet, but its
    /// end is always written at once: the sweep reads the table alone.
    pub(crate) fn add(
        &mut self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        segment: &Segment,
        change: &Change<EventId, Record>,
    ) -> Result<(), StoreError> {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        for (rows, record, other) in
            [(&mut self.take, before, after), (&mut self.put, after, before)]
        {
            let Some(record) = record else { continue };
            let other = other.filter(|other| other.seq == record.seq);
            rows.add_expiration(record, other);
            if !segment.contains(record) {
                rows.add_links(conn, numbers, record, other)?;
            }
        }
        self.add_places(segment, before, after);
        Ok(())
    }

    /// Adds ids, tags and authors. Those of an event that leaves are deleted later.
    fn add_places(&mut self, segment: &Segment, before: Option<&Record>, after: Option<&Record>) {
        let stays = |record: &Record, other: Option<&Record>| {
            other.is_some_and(|other| other.seq == record.seq)
        };
        if let Some(record) = before.filter(|record| !segment.contains(record)) {
            if stays(record, after) {
                self.take.add_places(record, after);
            } else {
                self.departed.push(Departed::of(record));
            }
        }
        if let Some(record) = after.filter(|record| !segment.contains(record)) {
            let other = before.filter(|_| stays(record, before));
            if other.is_none() {
                self.put.add_id(record.event().id().prefix(), record.seq.0);
            }
            self.put.add_places(record, other);
        }
    }

    /// Rows of ids stay for those that are remembered.
    pub(crate) fn write(mut self, conn: &Connection, leaving: &Leaving) -> Result<(), StoreError> {
        departed::write(conn, self.departed, leaving)?;
        self.take.sort();
        self.put.sort();
        self.take.delete(conn)?;
        self.put.insert(conn)
    }
}

impl IndexRows {
    fn add_id(&mut self, id: i64, seq: i64) {
        self.ids.push((id, seq));
    }

    fn add_tag(&mut self, key: i64, created_at: i64, seq: i64) {
        self.tags.push((key, std::cmp::Reverse(created_at), seq));
    }

    fn add_author(&mut self, author: i64, created_at: i64, seq: i64, kind: u16) {
        self.authors.push((author, std::cmp::Reverse(created_at), seq, kind));
    }

    /// Adds the tags and the author that lead to `record` and not to `other`, the same event before or
    /// after.
    fn add_places(&mut self, record: &Record, other: Option<&Record>) {
        if !record.is_effective() || other.is_some_and(Record::is_effective) {
            return;
        }
        let event = record.event();
        let (created_at, seq) = (event.created_at().0, record.seq.0);
        for (letter, value) in record.indexed_tags() {
            self.add_tag(tag_key(letter, value), created_at, seq);
        }
        self.add_author(event.pubkey().prefix(), created_at, seq, event.kind().0);
    }

    /// Adds the links that `record` has and `other`, the same event before or after, has not.
    fn add_links(
        &mut self,
        conn: &Connection,
        numbers: &mut TopicNumbers,
        record: &Record,
        other: Option<&Record>,
    ) -> Result<(), StoreError> {
        let seen = other.is_some_and(Record::is_effective);
        let event = record.event();
        let expires_at = record.expires_at().map(|end| end.0);
        let created_at = std::cmp::Reverse(event.created_at().0);
        for link in &record.links {
            let stays = other.is_some_and(|other| other.links.contains(link));
            let topic_no = numbers.assign(conn, &link.topic)?;
            if !record.is_effective() && (!stays || seen) {
                self.hidden.push((topic_no, created_at.0, event.id(), record.seq.0));
            }
            if record.is_effective() && !(stays && seen) {
                self.topics.push(TopicRow {
                    topic_no,
                    created_at,
                    event_id: event.id(),
                    seq: record.seq.0,
                    kind: event.kind().0,
                    author: event.pubkey().prefix(),
                    expires_at,
                });
            }
        }
        Ok(())
    }

    fn add_expiration(&mut self, record: &Record, other: Option<&Record>) {
        if record.is_effective() && !other.is_some_and(Record::is_effective) {
            self.expirations.extend(record.expires_at().map(|end| (end.0, record.seq.0)));
        }
    }

    fn sort(&mut self) {
        self.ids.sort_unstable();
        self.topics.sort_unstable();
        self.hidden.sort_unstable();
        self.tags.sort_unstable();
        // Two tags of one event may share a key.
        self.tags.dedup();
        self.authors.sort_unstable();
        self.expirations.sort_unstable();
    }

    fn insert(&self, conn: &Connection) -> Result<(), StoreError> {
        let mut ids = conn.prepare_cached(INSERT_ID).or_store()?;
        for (id, seq) in &self.ids {
            one(&mut ids, params![id, seq])?;
        }
        let mut topics = conn.prepare_cached(INSERT_TOPIC).or_store()?;
        for row in &self.topics {
            let id = &row.event_id.as_bytes()[..];
            one(
                &mut topics,
                params![
                    row.topic_no,
                    row.created_at.0,
                    id,
                    row.seq,
                    row.kind,
                    row.author,
                    row.expires_at
                ],
            )?;
        }
        insert_hidden(conn, &self.hidden)?;
        let mut tags = conn.prepare_cached(INSERT_TAG).or_store()?;
        for (key, created_at, seq) in &self.tags {
            one(&mut tags, params![key, created_at.0, seq])?;
        }
        let mut authors = conn.prepare_cached(INSERT_AUTHOR).or_store()?;
        for (author, created_at, seq, kind) in &self.authors {
            one(&mut authors, params![author, created_at.0, seq, kind])?;
        }
        let mut expirations = conn
            .prepare_cached("INSERT INTO expirations (expires_at, seq) VALUES (?1, ?2)")
            .or_store()?;
        for (expires_at, seq) in &self.expirations {
            one(&mut expirations, params![expires_at, seq])?;
        }
        Ok(())
    }

    fn delete(&self, conn: &Connection) -> Result<(), StoreError> {
        let mut ids =
            conn.prepare_cached("DELETE FROM event_ids WHERE id = ?1 AND seq = ?2").or_store()?;
        for (id, seq) in &self.ids {
            one(&mut ids, params![id, seq])?;
        }
        let mut topics = conn.prepare_cached(
            "DELETE FROM event_topics WHERE topic_no = ?1 AND created_at = ?2 AND event_id = ?3",
        ).or_store()?;
        for row in &self.topics {
            one(
                &mut topics,
                params![row.topic_no, row.created_at.0, &row.event_id.as_bytes()[..]],
            )?;
        }
        let mut hidden = conn.prepare_cached(
            "DELETE FROM hidden_links WHERE topic_no = ?1 AND created_at = ?2 AND event_id = ?3",
        ).or_store()?;
        for (topic_no, created_at, id, _) in &self.hidden {
            one(&mut hidden, params![topic_no, created_at, &id.as_bytes()[..]])?;
        }
        let mut tags = conn
            .prepare_cached(
                "DELETE FROM event_tags WHERE key = ?1 AND created_at = ?2 AND seq = ?3",
            )
            .or_store()?;
        for (key, created_at, seq) in &self.tags {
            one(&mut tags, params![key, created_at.0, seq])?;
        }
        let mut authors = conn
            .prepare_cached(
                "DELETE FROM event_authors WHERE author = ?1 AND created_at = ?2 AND seq = ?3",
            )
            .or_store()?;
        for (author, created_at, seq, _) in &self.authors {
            one(&mut authors, params![author, created_at.0, seq])?;
        }
        let mut expirations = conn
            .prepare_cached("DELETE FROM expirations WHERE expires_at = ?1 AND seq = ?2")
            .or_store()?;
        for (expires_at, seq) in &self.expirations {
            one(&mut expirations, params![expires_at, seq])?;
        }
        Ok(())
    }
}

/// Writes links of hidden events, in order.
pub(crate) fn insert_hidden(conn: &Connection, rows: &[HiddenRow]) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(INSERT_HIDDEN).or_store()?;
    for (topic_no, created_at, id, seq) in rows {
        one(&mut insert, params![topic_no, created_at, &id.as_bytes()[..], seq])?;
    }
    Ok(())
}
