//! What a thread works with: a connection, and the topic numbers it has learnt.

use std::collections::HashMap;
use std::sync::Arc;

use kukuri_core::{Epoch, FeedBounds, Link, Record, Seq, TopicId};
use kukuri_store::StoreError;
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::{OrStore, corrupt};
use crate::schema;
use crate::tail::{Segment, Tail};

pub(crate) struct Desk {
    pub conn: Connection,
    pub numbers: TopicNumbers,
    pub tail: Arc<Tail>,
}

/// One moment of the file: a read transaction, and the tail that belongs to it.
pub(crate) struct Snapshot<'a> {
    pub conn: Transaction<'a>,
    pub numbers: &'a mut TopicNumbers,
    pub segment: Arc<Segment>,
    pub bounds: FeedBounds,
}

impl Desk {
    pub fn new(conn: Connection, tail: Arc<Tail>) -> Self {
        Self { conn, numbers: TopicNumbers::default(), tail }
    }

    pub fn snapshot(&mut self) -> Result<Snapshot<'_>, StoreError> {
        loop {
            // Nothing else on this thread uses the connection, so the transaction cannot nest.
            let conn = self.conn.unchecked_transaction().or_store()?;
            let bounds = moment(&conn)?;
            if let Some(segment) = self.tail.at(&conn, &mut self.numbers, bounds.head)? {
                return Ok(Snapshot { conn, numbers: &mut self.numbers, segment, bounds });
            }
            // A run was committed after this transaction began. One that begins now sees it.
        }
    }
}

/// Topic ids as the file numbers them. Numbers are never changed or reused, so that what was once
/// committed can be remembered for ever.
#[derive(Default)]
pub(crate) struct TopicNumbers {
    by_id: HashMap<TopicId, i64>,
    by_no: HashMap<i64, TopicId>,
}

impl TopicNumbers {
    /// The number of a topic, if the file has one.
    pub fn find(&mut self, conn: &Connection, topic: &TopicId) -> Result<Option<i64>, StoreError> {
        if let Some(no) = self.by_id.get(topic) {
            return Ok(Some(*no));
        }
        let mut select = conn
            .prepare_cached("SELECT topic_no FROM topic_numbers WHERE topic_id = ?1")
            .or_store()?;
        let no: Option<i64> =
            select.query_row([topic.as_str()], |row| row.get(0)).optional().or_store()?;
        Ok(no.inspect(|no| self.learn(*no, topic)))
    }

    /// The number of a topic, given now if it has none. The caller forgets all numbers if its
    /// transaction fails.
    pub fn assign(&mut self, conn: &Connection, topic: &TopicId) -> Result<i64, StoreError> {
        if let Some(no) = self.find(conn, topic)? {
            return Ok(no);
        }
        conn.execute("INSERT INTO topic_numbers (topic_id) VALUES (?1)", [topic.as_str()])
            .or_store()?;
        let no = conn.last_insert_rowid();
        self.learn(no, topic);
        Ok(no)
    }

    pub fn topic(&mut self, conn: &Connection, no: i64) -> Result<TopicId, StoreError> {
        if let Some(topic) = self.by_no.get(&no) {
            return Ok(topic.clone());
        }
        let mut select = conn
            .prepare_cached("SELECT topic_id FROM topic_numbers WHERE topic_no = ?1")
            .or_store()?;
        let text: Option<String> =
            select.query_row([no], |row| row.get(0)).optional().or_store()?;
        let text = text.ok_or_else(|| corrupt(format!("topic number {no} without a topic")))?;
        let topic = TopicId::parse(&text).map_err(corrupt)?;
        self.learn(no, &topic);
        Ok(topic)
    }

    pub fn forget(&mut self) {
        self.by_id.clear();
        self.by_no.clear();
    }

    fn learn(&mut self, no: i64, topic: &TopicId) {
        self.by_id.insert(topic.clone(), no);
        self.by_no.insert(no, topic.clone());
    }

    /// The column `links`: where an event is linked, and by which row; where it was once, with no row.
    pub fn write_links(
        &mut self,
        conn: &Connection,
        record: &Record,
    ) -> Result<String, StoreError> {
        let links = record.links.iter().map(|link| (&link.topic, link.seq));
        let left = record.left.iter().map(|topic| (topic, Seq::ZERO));
        let mut text = String::with_capacity(12 * record.links.len());
        for (topic, seq) in links.chain(left) {
            use std::fmt::Write;
            let gap = if text.is_empty() { "" } else { " " };
            let no = self.assign(conn, topic)?;
            write!(text, "{gap}{no}:{seq}").expect("writing to a String does not fail");
        }
        Ok(text)
    }

    /// The links of a `links` column, and the topics that were left.
    pub fn read_links(
        &mut self,
        conn: &Connection,
        text: &str,
    ) -> Result<(Vec<Link>, Vec<TopicId>), StoreError> {
        let (mut links, mut left) = (Vec::new(), Vec::new());
        for pair in Self::split_pairs(text) {
            let (topic_no, seq) = pair?;
            match (self.topic(conn, topic_no)?, Seq(seq)) {
                (topic, Seq::ZERO) => left.push(topic),
                (topic, seq) => links.push(Link { topic, seq }),
            }
        }
        Ok((links, left))
    }

    /// The numbers of the topics that a `links` column links to, and the rows that made the links.
    pub fn split_links(text: &str) -> impl Iterator<Item = Result<(i64, i64), StoreError>> {
        let is_link = |pair: &Result<(i64, i64), StoreError>| !matches!(pair, Ok((_, 0)));
        Self::split_pairs(text).filter(is_link)
    }

    fn split_pairs(text: &str) -> impl Iterator<Item = Result<(i64, i64), StoreError>> {
        text.split(' ').map(move |pair| {
            let numbers = pair
                .split_once(':')
                .and_then(|(topic_no, seq)| Some((topic_no.parse().ok()?, seq.parse().ok()?)));
            numbers.ok_or_else(|| corrupt(format!("links {text:?}")))
        })
    }
}

/// The rows the feed holds, as of the current transaction.
pub(crate) fn bounds(conn: &Connection) -> Result<FeedBounds, StoreError> {
    let mut select = conn
        .prepare_cached(
            "SELECT epoch, floor_seq, (SELECT max(seq) FROM events_outbox) FROM feed_meta",
        )
        .or_store()?;
    let (epoch, floor, head): (i64, i64, Option<i64>) =
        select.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).or_store()?;
    // Rows below the floor may still be there.
    let head = head.unwrap_or(floor).max(floor);
    Ok(FeedBounds { epoch: Epoch(epoch), floor: Seq(floor), head: Seq(head) })
}

/// The same, if the file is as this program knows it. Otherwise a newer program will be able to read it.
pub(crate) fn moment(conn: &Connection) -> Result<FeedBounds, StoreError> {
    schema::check_newest(conn, StoreError::Unavailable)?;
    bounds(conn)
}
