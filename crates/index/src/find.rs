//! Finds candidates: documents that have all terms, newest first. Segments are looked through from the
//! newest on, and only as many as it takes: a question reads so many documents as it needs, however many
//! there are.

use kukuri_core::Seq;
use kukuri_event::{EventId, UnixSeconds};
use kukuri_feed::{Desk, DeskError, Row};

use crate::block::{PostingKey, read};
use crate::document::Number;
use crate::search::{Ask, CANDIDATES_MAX, Candidate, Page, Ranking, TopicKey};
use crate::segments::Segment;
use crate::tables::{Tables, list};
use crate::text::Term;

/// Documents that are read at a time. As a rule all match, and the first read is the last.
const READ_ROWS_MAX: usize = CANDIDATES_MAX;
/// Segments with so many postings are looked through at first, of some 16 000 notes; then with eight times
/// as many, and so on. What is common is found in few, and what is rare is not looked for in many steps.
const POSTINGS_FIRST: i64 = 1024 * 1024;
const POSTINGS_GROWTH: i64 = 8;
/// Lookups of one statement, its keys in each of its segments, so that what many words have in many
/// documents is not in memory at once. One segment is always looked through.
const LOOKUPS_PER_STATEMENT: usize = 128;
/// Up to so many topics are looked up one by one. Of more, a term is read in all topics there are.
const TOPICS_APART_MAX: usize = 16;

impl Tables {
    /// `head` is up to where the documents have followed the feed.
    pub(crate) async fn search(
        &self,
        desk: &mut Desk,
        ask: &Ask,
        head: Seq,
    ) -> Result<Page, DeskError> {
        let (first, last) = ask.numbers();
        let mut segments = self.segments(desk).await?;
        segments.retain(|segment| segment.newest >= first && segment.oldest <= last);
        segments.sort_unstable_by_key(|segment| segment.newest);
        let mut ranking = Ranking::new(ask);
        let lookup = Lookup::new(ask);
        // Those that are found and not looked at yet, the newest last.
        let mut found: Vec<Number> = Vec::new();
        let mut postings_max = POSTINGS_FIRST;
        while !ranking.is_full() && (!segments.is_empty() || !found.is_empty()) {
            let these = lookup.next(&mut segments, postings_max);
            postings_max = postings_max.saturating_mul(POSTINGS_GROWTH);
            for numbers in self.look_up(desk, &these, &lookup).await? {
                found.extend(numbers.into_iter().filter(|number| (first..=last).contains(number)));
            }
            found.sort();
            found.dedup();
            // Those that the segments which are left may have come after these.
            let left = segments.last().map(|next| next.newest);
            let later = left.map_or(0, |left| found.partition_point(|number| *number <= left));
            let mut ready = found.split_off(later);
            if ready.len() >= READ_ROWS_MAX || segments.is_empty() {
                while !ready.is_empty() && !ranking.is_full() {
                    let these = ready.split_off(ready.len().saturating_sub(READ_ROWS_MAX));
                    self.look_at(desk, ask, &these, &mut ranking).await?;
                }
            }
            found.append(&mut ready);
        }
        Ok(ranking.page(head))
    }

    /// The documents with all terms, segment by segment.
    async fn look_up(
        &self,
        desk: &mut Desk,
        segments: &[Segment],
        lookup: &Lookup,
    ) -> Result<Vec<Vec<Number>>, DeskError> {
        if segments.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = segments.iter().map(|segment| segment.id).collect();
        let rows = self.blocks_of(desk, &ids, &lookup.firsts, lookup.span).await?;
        let mut lists = vec![vec![Vec::new(); lookup.terms.len()]; segments.len()];
        for row in &rows {
            let id = row.int(0)?;
            if let Some(place) = segments.iter().position(|segment| segment.id == id) {
                lookup.read(row, &mut lists[place])?;
            }
        }
        Ok(lists.into_iter().map(common).collect())
    }

    /// Lets some documents be ranked.
    async fn look_at(
        &self,
        desk: &mut Desk,
        ask: &Ask,
        numbers: &[Number],
        ranking: &mut Ranking<'_>,
    ) -> Result<(), DeskError> {
        let these: Vec<i64> = numbers.iter().map(|number| number.0).collect();
        let (table, these) = list(desk.dialect(), 1, &these);
        let sql = format!(
            "SELECT number, event_id, topic, created_at, popularity, trail FROM {}
                 WHERE number IN {table} AND seq <= $2 ORDER BY number DESC",
            self.documents
        );
        for row in desk.rows(&sql, vec![these.into(), ask.seq_max().0.into()]).await? {
            let (candidate, trail) = candidate(&row)?;
            ranking.look(&candidate, &trail);
            // Long texts take a while, and others wait for this thread.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }
}

/// What is looked for in every segment.
struct Lookup {
    /// Where the keys that are wanted begin, and how far they reach.
    firsts: Vec<i64>,
    span: i64,
    last: PostingKey,
    terms: Vec<PostingKey>,
    topics: Vec<TopicKey>,
}

impl Lookup {
    fn new(ask: &Ask) -> Self {
        let topics: Vec<TopicKey> = ask.topics.iter().map(TopicKey::of).collect();
        let mut terms: Vec<PostingKey> =
            ask.query.terms().iter().map(|term| PostingKey::first(Term::of(term))).collect();
        terms.sort_unstable();
        terms.dedup();
        let apart = topics.len() <= TOPICS_APART_MAX;
        let firsts: Vec<i64> = terms
            .iter()
            .flat_map(|term| match apart {
                true => topics.iter().map(|topic| term.within(*topic).0).collect(),
                false => vec![term.0],
            })
            .collect();
        let span = if apart { 0 } else { PostingKey::TOPICS - 1 };
        let mut topics: Vec<TopicKey> = topics.into_iter().map(PostingKey::topic).collect();
        topics.sort_unstable();
        let last = firsts.iter().max().map_or(PostingKey::MAX, |first| PostingKey(first + span));
        Self { firsts, span, last, terms, topics }
    }

    /// Takes the segments that are looked through next from the end, at least one.
    fn next(&self, segments: &mut Vec<Segment>, postings_max: i64) -> Vec<Segment> {
        let most = (LOOKUPS_PER_STATEMENT / self.firsts.len()).max(1);
        let mut postings = 0;
        let fits = |segment: &&Segment| {
            postings += segment.postings;
            postings <= postings_max
        };
        let count = segments.iter().rev().take(most).take_while(fits).count();
        segments.split_off(segments.len().saturating_sub(count.max(1)))
    }

    /// Which term a key is of, if it is wanted.
    fn term(&self, key: PostingKey) -> Option<usize> {
        let (term, topic) = key.parts();
        self.topics.binary_search(&topic).ok()?;
        self.terms.binary_search(&term).ok()
    }

    /// Adds what a block has to the documents of each term.
    fn read(&self, row: &Row, lists: &mut [Vec<Number>]) -> Result<(), DeskError> {
        let (key, bytes) = (PostingKey(row.int(1)?), row.blob(2)?);
        let found = |term: usize, number| lists[term].push(number);
        read((key, &bytes), self.last, |key| self.term(key), found)
    }
}

/// The numbers that are in all lists.
fn common(mut lists: Vec<Vec<Number>>) -> Vec<Number> {
    for list in &mut lists {
        // Of parts that are sorted; a block that two terms share has come twice.
        list.sort();
        list.dedup();
    }
    lists.sort_unstable_by_key(Vec::len);
    let mut lists = lists.into_iter();
    let mut common = lists.next().unwrap_or_default();
    for list in lists {
        common.retain(|number| list.binary_search(number).is_ok());
    }
    common
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
