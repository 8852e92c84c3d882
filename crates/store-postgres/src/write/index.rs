//! The rows by which events are found: links, tags, expirations. Those of effective events are for
//! queries; a hidden event keeps its links in a table of their own.

use kukuri_core::{Link, Record, tag_key};
use kukuri_event::{TagLetter, UnixSeconds};

use super::held::leaves_tags;
use super::{Bulk, Columns};
use crate::numbers::BatchNumbers;
use crate::packed::tag_value;
use crate::query::tie;

const INSERT_LINKS: &str = "INSERT INTO event_topics (topic_no, created_at, tie, author, seq,
        ingested_at, expires_at, kind, keep, event_id, pubkey)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[]), UNNEST($4::BIGINT[]),
        UNNEST($5::BIGINT[]), UNNEST($6::BIGINT[]), UNNEST($7::BIGINT[]), UNNEST($8::INTEGER[]),
        UNNEST($9::SMALLINT[]), UNNEST($10::BYTEA[]), UNNEST($11::BYTEA[])";
const DELETE_LINKS: &str = "DELETE FROM event_topics e
    USING (SELECT UNNEST($1::INTEGER[]) AS topic_no, UNNEST($2::BIGINT[]) AS created_at,
        UNNEST($3::BIGINT[]) AS tie, UNNEST($4::BIGINT[]) AS seq) AS k
    WHERE e.topic_no = k.topic_no AND e.created_at = k.created_at AND e.tie = k.tie
        AND e.seq = k.seq";

const INSERT_TAGS: &str = "INSERT INTO event_tags (key, created_at, tie, seq, tag, value)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[]), UNNEST($4::BIGINT[]),
        UNNEST($5::SMALLINT[]), UNNEST($6::BYTEA[])";
/// An event loses all its tags at once, so that two of one key need not be told apart.
const DELETE_TAGS: &str = "DELETE FROM event_tags t
    USING (SELECT UNNEST($1::BIGINT[]) AS key, UNNEST($2::BIGINT[]) AS created_at,
        UNNEST($3::BIGINT[]) AS tie, UNNEST($4::BIGINT[]) AS seq) AS k
    WHERE t.key = k.key AND t.created_at = k.created_at AND t.tie = k.tie AND t.seq = k.seq";

const INSERT_HIDDEN: &str = "INSERT INTO hidden_links (topic_no, created_at, event_id,
        ingested_at, kind)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[]), UNNEST($4::BIGINT[]),
        UNNEST($5::INTEGER[])";
const DELETE_HIDDEN: &str = "DELETE FROM hidden_links h
    USING (SELECT UNNEST($1::INTEGER[]) AS topic_no, UNNEST($2::BIGINT[]) AS created_at,
        UNNEST($3::BYTEA[]) AS event_id) AS k
    WHERE h.topic_no = k.topic_no AND h.created_at = k.created_at AND h.event_id = k.event_id";

const INSERT_ENDS: &str = "INSERT INTO expirations (expires_at, seq, event_id)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[])";
const DELETE_ENDS: &str = "DELETE FROM expirations x
    USING (SELECT UNNEST($1::BIGINT[]) AS expires_at, UNNEST($2::BIGINT[]) AS seq) AS k
    WHERE x.expires_at = k.expires_at AND x.seq = k.seq";

/// What leads to the events of a batch: what is new, and what is gone.
pub(super) struct Index<'a> {
    numbers: &'a BatchNumbers,
    new: Rows<'a>,
    gone: Rows<'a>,
}

#[derive(Default)]
struct Rows<'a> {
    links: Vec<LinkRow<'a>>,
    tags: Vec<TagRow<'a>>,
    hidden: Vec<LinkRow<'a>>,
    ends: Vec<(UnixSeconds, &'a Record)>,
}

struct LinkRow<'a> {
    record: &'a Record,
    topic_no: i32,
}

struct TagRow<'a> {
    record: &'a Record,
    letter: TagLetter,
    value: &'a str,
    key: i64,
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
                if let Some(record) = before {
                    self.gone.add(record, numbers);
                    if !leaves_tags(record, after) {
                        self.gone.add_tags(record);
                    }
                }
                if let Some(record) = after {
                    self.new.add(record, numbers);
                    self.new.add_tags(record);
                }
            }
        }
    }

    pub fn write(self, bulk: &mut Bulk) {
        let Self { mut new, mut gone, .. } = self;
        new.sort();
        gone.sort();
        place_keys(bulk.change(DELETE_LINKS, gone.links.len()), &gone.links)
            .bind(gone.links.iter().map(|row| row.record.seq.0));
        hidden_keys(bulk.change(DELETE_HIDDEN, gone.hidden.len()), &gone.hidden);
        tag_keys(bulk.change(DELETE_TAGS, gone.tags.len()), &gone.tags);
        end_keys(bulk.change(DELETE_ENDS, gone.ends.len()), &gone.ends);
        bind_links(bulk.insert(INSERT_LINKS, new.links.len()), &new.links);
        bind_tags(bulk.insert(INSERT_TAGS, new.tags.len()), &new.tags);
        hidden_keys(bulk.insert(INSERT_HIDDEN, new.hidden.len()), &new.hidden)
            .bind(new.hidden.iter().map(|row| row.record.ingested_at.0))
            .bind(new.hidden.iter().map(|row| i32::from(row.record.event().kind().0)));
        end_keys(bulk.insert(INSERT_ENDS, new.ends.len()), &new.ends)
            .bind(new.ends.iter().map(|(_, record)| *record.event().id().as_bytes()));
    }
}

impl<'a> Rows<'a> {
    /// In the order of their indexes, so that rows of one page are put in, or looked for, one after the other.
    fn sort(&mut self) {
        let place = |row: &LinkRow<'_>| (row.topic_no, row.record.event().created_at());
        self.links.sort_unstable_by_key(place);
        self.hidden.sort_unstable_by_key(place);
        self.tags.sort_unstable_by_key(|tag| (tag.key, tag.record.event().created_at()));
        self.ends.sort_unstable_by_key(|(end, record)| (*end, record.seq));
    }

    fn add(&mut self, record: &'a Record, numbers: &BatchNumbers) {
        record.links.iter().for_each(|link| self.add_link(record, link, numbers));
        if record.is_effective() {
            self.ends.extend(record.expires_at().map(|end| (end, record)));
        }
    }

    fn add_tags(&mut self, record: &'a Record) {
        if record.is_effective() {
            let tag =
                |(letter, value)| TagRow { record, letter, value, key: tag_key(letter, value) };
            self.tags.extend(record.indexed_tags().into_iter().map(tag));
        }
    }

    fn add_link(&mut self, record: &'a Record, link: &'a Link, numbers: &BatchNumbers) {
        let links = if record.is_effective() { &mut self.links } else { &mut self.hidden };
        links.push(LinkRow { record, topic_no: numbers.of(&link.topic) });
    }
}

fn hidden_keys<'b>(columns: Columns<'b>, rows: &[LinkRow<'_>]) -> Columns<'b> {
    let events = || rows.iter().map(|row| row.record.event());
    columns
        .bind(rows.iter().map(|row| row.topic_no))
        .bind(events().map(|event| event.created_at().0))
        .bind(events().map(|event| *event.id().as_bytes()))
}

/// Where a row stands in the order of its topic.
fn place_keys<'b>(columns: Columns<'b>, rows: &[LinkRow<'_>]) -> Columns<'b> {
    let events = || rows.iter().map(|row| row.record.event());
    columns
        .bind(rows.iter().map(|row| row.topic_no))
        .bind(events().map(|event| event.created_at().0))
        .bind(events().map(|event| tie(event.id())))
}

fn end_keys<'b>(columns: Columns<'b>, rows: &[(UnixSeconds, &Record)]) -> Columns<'b> {
    columns
        .bind(rows.iter().map(|(end, _)| end.0))
        .bind(rows.iter().map(|(_, record)| record.seq.0))
}

fn bind_links(columns: Columns<'_>, rows: &[LinkRow<'_>]) {
    let events = || rows.iter().map(|row| row.record.event());
    place_keys(columns, rows)
        .bind(events().map(|event| event.pubkey().prefix()))
        .bind(rows.iter().map(|row| row.record.seq.0))
        .bind(rows.iter().map(|row| row.record.ingested_at.0))
        .bind(rows.iter().map(|row| row.record.expires_at().map(|end| end.0)))
        .bind(events().map(|event| i32::from(event.kind().0)))
        .bind(rows.iter().map(|row| row.record.keep.code()))
        .bind(events().map(|event| *event.id().as_bytes()))
        .bind(events().map(|event| *event.pubkey().as_bytes()));
}

fn tag_keys<'b>(columns: Columns<'b>, rows: &[TagRow<'_>]) -> Columns<'b> {
    columns
        .bind(rows.iter().map(|tag| tag.key))
        .bind(rows.iter().map(|tag| tag.record.event().created_at().0))
        .bind(rows.iter().map(|tag| tie(tag.record.event().id())))
        .bind(rows.iter().map(|tag| tag.record.seq.0))
}

fn bind_tags(columns: Columns<'_>, rows: &[TagRow<'_>]) {
    tag_keys(columns, rows)
        .bind(rows.iter().map(|tag| i16::from(tag.letter.as_byte())))
        .bind(rows.iter().map(|tag| tag_value(tag.value)));
}
