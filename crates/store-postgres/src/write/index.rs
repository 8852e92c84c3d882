//! The rows by which events are found: links, tags, expirations. Those of effective events are for
//! queries; a hidden event keeps its links in a table of their own.

use kukuri_core::{Link, Record};
use kukuri_event::{TagLetter, UnixSeconds};
use sqlx::postgres::PgConnection;

use super::Bulk;
use super::insert::bind_tags;
use crate::error::Fault;
use crate::numbers::BatchNumbers;
use crate::query::tag_key;

const DELETE_LINKS: &str = "DELETE FROM event_topics e
    USING (SELECT UNNEST($1::INTEGER[]) AS topic, UNNEST($2::BIGINT[]) AS link) AS k
    WHERE e.topic = k.topic AND e.link = k.link";

const DELETE_TAGS: &str = "DELETE FROM event_tags t
    USING (SELECT UNNEST($1::BIGINT[]) AS key, UNNEST($2::BIGINT[]) AS created_at,
        UNNEST($3::BIGINT[]) AS tie, UNNEST($4::BIGINT[]) AS event, UNNEST($5::SMALLINT[]) AS tag,
        UNNEST($6::BYTEA[]) AS value) AS k
    WHERE t.key = k.key AND t.created_at = k.created_at AND t.tie = k.tie
        AND t.event = k.event AND t.tag = k.tag AND t.value = k.value";

const INSERT_HIDDEN: &str = "INSERT INTO hidden_links (topic, link, event_id)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[])";
const DELETE_HIDDEN: &str = "DELETE FROM hidden_links h
    USING (SELECT UNNEST($1::INTEGER[]) AS topic, UNNEST($2::BIGINT[]) AS link) AS k
    WHERE h.topic = k.topic AND h.link = k.link";

const INSERT_ENDS: &str = "INSERT INTO expirations (expires_at, event, event_id)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[])";
const DELETE_ENDS: &str = "DELETE FROM expirations x
    USING (SELECT UNNEST($1::BIGINT[]) AS expires_at, UNNEST($2::BIGINT[]) AS event) AS k
    WHERE x.expires_at = k.expires_at AND x.event = k.event";

/// What leads to the events of a batch: what is new, and what is gone.
pub(super) struct Index<'a> {
    numbers: &'a BatchNumbers,
    new: Rows<'a>,
    gone: Rows<'a>,
}

#[derive(Default)]
pub(super) struct Rows<'a> {
    pub links: Vec<LinkRow<'a>>,
    pub tags: Vec<TagRow<'a>>,
    hidden: Vec<LinkRow<'a>>,
    ends: Vec<(UnixSeconds, &'a Record)>,
}

pub(super) struct LinkRow<'a> {
    pub record: &'a Record,
    pub link: &'a Link,
    pub topic: i32,
}

pub(super) struct TagRow<'a> {
    pub record: &'a Record,
    pub letter: TagLetter,
    pub value: &'a str,
    pub key: i64,
}

impl<'a> Index<'a> {
    pub fn new(numbers: &'a BatchNumbers) -> Self {
        Self { numbers, new: Rows::default(), gone: Rows::default() }
    }

    pub fn change(&mut self, before: Option<&'a Record>, after: Option<&'a Record>) {
        let numbers = self.numbers;
        match (before, after) {
            (Some(before), Some(after))
                if before.seq == after.seq && before.is_effective() == after.is_effective() =>
            {
                let gone = before.links.iter().filter(|link| !after.links.contains(link));
                gone.for_each(|link| self.gone.add_link(before, link, numbers));
                let new = after.links.iter().filter(|link| !before.links.contains(link));
                new.for_each(|link| self.new.add_link(after, link, numbers));
            }
            (before, after) => {
                before.into_iter().for_each(|record| self.gone.add(record, numbers));
                after.into_iter().for_each(|record| self.new.add(record, numbers));
            }
        }
    }

    /// Writes all but the new rows of effective events that every batch has; these it returns.
    pub async fn write(self, connection: &mut PgConnection) -> Result<Rows<'a>, Fault> {
        let Self { new, gone, .. } = self;
        bind_links(DELETE_LINKS, &gone.links).run(connection).await?;
        bind_links(DELETE_HIDDEN, &gone.hidden).run(connection).await?;
        bind_tags(Bulk::new(DELETE_TAGS, gone.tags.len()), &gone.tags).run(connection).await?;
        bind_ends(DELETE_ENDS, &gone.ends).run(connection).await?;
        bind_links(INSERT_HIDDEN, &new.hidden)
            .bind(new.hidden.iter().map(|row| *row.record.event().id().as_bytes()))
            .run(connection)
            .await?;
        bind_ends(INSERT_ENDS, &new.ends)
            .bind(new.ends.iter().map(|(_, record)| *record.event().id().as_bytes()))
            .run(connection)
            .await?;
        Ok(new)
    }
}

impl<'a> Rows<'a> {
    fn add(&mut self, record: &'a Record, numbers: &BatchNumbers) {
        record.links.iter().for_each(|link| self.add_link(record, link, numbers));
        if !record.is_effective() {
            return;
        }
        for (letter, value) in record.indexed_tags() {
            self.tags.push(TagRow { record, letter, value, key: tag_key(letter, value) });
        }
        self.ends.extend(record.expires_at().map(|end| (end, record)));
    }

    fn add_link(&mut self, record: &'a Record, link: &'a Link, numbers: &BatchNumbers) {
        let links = if record.is_effective() { &mut self.links } else { &mut self.hidden };
        links.push(LinkRow { record, link, topic: numbers.of(&link.topic) });
    }
}

fn bind_links<'q>(sql: &'static str, rows: &[LinkRow<'_>]) -> Bulk<'q> {
    Bulk::new(sql, rows.len())
        .bind(rows.iter().map(|row| row.topic))
        .bind(rows.iter().map(|row| row.link.seq.0))
}

fn bind_ends<'q>(sql: &'static str, rows: &[(UnixSeconds, &Record)]) -> Bulk<'q> {
    Bulk::new(sql, rows.len())
        .bind(rows.iter().map(|(end, _)| end.0))
        .bind(rows.iter().map(|(_, record)| record.seq.0))
}
