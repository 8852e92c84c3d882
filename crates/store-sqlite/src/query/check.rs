//! Testing what an index gave against the whole filter.

use kukuri_core::Seq;
use kukuri_event::{Event, EventId, Filter, Kind, UnixSeconds, tags_match};
use kukuri_store::{Hit, Query, StoreError};
use rusqlite::Connection;

use super::plan::Bring;
use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};
use crate::rows;
use crate::tail::TailAt;

/// The moment a query looks at.
pub(super) struct Scene<'a> {
    pub conn: &'a Connection,
    pub numbers: &'a mut TopicNumbers,
    pub tail: TailAt<'a>,
    pub now: UnixSeconds,
}

/// A filter, with what is left of it once an index was chosen.
pub(super) struct Check<'a> {
    pub conn: &'a Connection,
    pub tail: TailAt<'a>,
    pub query: &'a Query,
    pub filter: &'a Filter,
    pub now: UnixSeconds,
    /// The topics asked for, as numbers; `None` asks for any.
    pub topics: Option<&'a [i64]>,
    /// Whether events that have to be read anyway bring their JSON along.
    pub bring: Bring,
}

const EVENT: &str = "SELECT event_id, pubkey, kind, created_at, expires_at, links FROM events
    WHERE seq = ?1 AND state = 1";
const EVENT_AND_BODY: &str =
    "SELECT event_id, pubkey, kind, created_at, expires_at, links, event_json FROM events
    WHERE seq = ?1 AND state = 1";

/// An event that matches, with its JSON if that was at hand.
pub(super) struct Found {
    pub hit: Hit,
    pub body: Option<String>,
}

impl AsRef<Hit> for Found {
    fn as_ref(&self) -> &Hit {
        &self.hit
    }
}

/// What an index row says of its event, as far as the filter asks.
pub(super) struct Candidate {
    pub created_at: i64,
    /// Where rows of one second come by their ids, and so in the order of the answer.
    pub id: Option<EventId>,
    pub seq: i64,
    pub kind: Option<u16>,
    pub author: Option<i64>,
    /// Only the topic index has it, and it answers for the topic too.
    pub topic: Option<TopicCover>,
    pub body: Option<String>,
}

pub(super) struct TopicCover {
    pub event_id: EventId,
    pub expires_at: Option<i64>,
}

impl Check<'_> {
    /// The hit, if the event matches. Reads the event itself only where the index row cannot tell.
    pub fn candidate(&self, row: Candidate) -> Result<Option<Found>, StoreError> {
        let (kinds, authors) = (self.filter.kinds.as_ref(), self.filter.authors.as_ref());
        let kind_differs = |kind: u16| kinds.is_some_and(|kinds| !kinds.contains(&Kind(kind)));
        let author_differs =
            |author: i64| authors.is_some_and(|a| a.iter().all(|key| key.prefix() != author));
        if row.kind.is_some_and(kind_differs) || row.author.is_some_and(author_differs) {
            return Ok(None);
        }
        match row.topic {
            Some(cover) if authors.is_none() && !self.asks_for_tags() => {
                let alive = cover.expires_at.is_none_or(|end| end > self.now.0);
                let created_at = UnixSeconds(row.created_at);
                let hit = Hit { event: Seq(row.seq), created_at, id: cover.event_id };
                let found = alive && self.query.is_ahead(&hit);
                Ok(found.then_some(Found { hit, body: row.body }))
            }
            _ => self.event(row.seq),
        }
    }

    /// The stored event with this number, if it matches.
    pub fn event(&self, seq: i64) -> Result<Option<Found>, StoreError> {
        // Where most candidates fail, their bodies would be read for nothing.
        let with_body = self.bring == Bring::Bodies && !self.asks_for_tags();
        let sql = if with_body { EVENT_AND_BODY } else { EVENT };
        let mut select = self.conn.prepare_cached(sql).or_store()?;
        let mut found = select.query([seq]).or_store()?;
        let Some(row) = found.next().or_store()? else { return Ok(None) };
        let expires_at: Option<i64> = row.get(4).or_store()?;
        let id = rows::event_id(row, 0)?;
        let created_at = UnixSeconds(row.get(3).or_store()?);
        let (pubkey, kind) = (rows::pubkey(row, 1)?, Kind(row.get(2).or_store()?));
        let links = row.get_ref(5).or_store()?.as_str().map_err(corrupt)?;
        let hit = Hit { event: Seq(seq), created_at, id };
        let matched = expires_at.is_none_or(|end| end > self.now.0)
            && self.query.is_ahead(&hit)
            && self.filter.admits(id, pubkey, kind, created_at)
            && self.linked(links)?
            && self.tagged(seq)?;
        if !matched {
            return Ok(None);
        }
        let body = if with_body { Some(row.get(6).or_store()?) } else { None };
        Ok(Some(Found { hit, body }))
    }

    fn linked(&self, links: &str) -> Result<bool, StoreError> {
        let Some(topics) = self.topics else { return Ok(true) };
        for link in TopicNumbers::split_links(links) {
            if topics.contains(&link?.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there are tag conditions other than of topics. No index proves them: only the event
    /// can.
    fn asks_for_tags(&self) -> bool {
        self.filter.other_tags().next().is_some()
    }

    /// Asked last: a body is long, and most candidates that do not match fail before.
    fn tagged(&self, seq: i64) -> Result<bool, StoreError> {
        if !self.asks_for_tags() {
            return Ok(true);
        }
        let sql = "SELECT event_json FROM events WHERE seq = ?1";
        let mut select = self.conn.prepare_cached(sql).or_store()?;
        let mut found = select.query([seq]).or_store()?;
        let Some(row) = found.next().or_store()? else { return Ok(false) };
        let json = row.get_ref(0).or_store()?.as_str().map_err(corrupt)?;
        let event = Event::parse(json).map_err(|e| corrupt(format!("a broken event ({e})")))?;
        Ok(tags_match(self.filter, &event))
    }
}
