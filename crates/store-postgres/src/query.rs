//! Answering filters. Each filter is driven along one index by its most selective condition; the
//! other conditions are checked on what that finds. The answer is exact: what an index abbreviates
//! is compared in full.

mod check;
mod plan;
mod scan;

use kukuri_event::{EventId, Filter, TagLetter, UnixSeconds};
use kukuri_store::{Hit, Hits, Query, merge_hits};

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::readers::Snapshot;
use plan::{Plan, Source};

/// More index rows would be read than the query may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBroad;

/// Orders events of one second as the answer does, last first: it is greater for smaller ids.
pub(crate) fn tie(id: EventId) -> i64 {
    !id.prefix()
}

/// Stands for a tag and its value in the index.
pub(crate) fn tag_key(letter: TagLetter, value: &str) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[letter.as_byte()]).update(value.as_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    i64::from_be_bytes(first)
}

/// What is left of the rows that a query may cost.
struct Budget {
    rows: usize,
}

impl Budget {
    fn spend(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows);
    }
}

/// All filters, as of the snapshot.
pub(crate) async fn answer(
    snapshot: &mut Snapshot,
    numbers: &TopicNumbers,
    query: &Query,
) -> Result<Result<Hits, TooBroad>, Fault> {
    let mut budget = Budget { rows: query.rows_max };
    let mut answers = Vec::with_capacity(query.filters.len());
    for filter in &query.filters {
        let wanted = Wanted { filter, now: query.now, limit: query.limit(filter) };
        match wanted.find(snapshot, numbers, &mut budget).await? {
            Ok(hits) => answers.push(hits),
            Err(TooBroad) => return Ok(Err(TooBroad)),
        }
    }
    Ok(Ok(Hits { head: snapshot.bounds.feed.head, hits: merge_hits(answers) }))
}

/// What one filter asks for.
struct Wanted<'a> {
    filter: &'a Filter,
    now: UnixSeconds,
    limit: usize,
}

impl Wanted<'_> {
    async fn find(
        &self,
        snapshot: &mut Snapshot,
        numbers: &TopicNumbers,
        budget: &mut Budget,
    ) -> Result<Result<Vec<Hit>, TooBroad>, Fault> {
        let connection = snapshot.connection();
        let mut hits = match plan::plan(connection, numbers, self).await? {
            Plan::Nothing => return Ok(Ok(Vec::new())),
            Plan::Ids(ids) => {
                if ids.len() > budget.rows {
                    return Ok(Err(TooBroad));
                }
                budget.spend(ids.len());
                check::by_id(connection, numbers, self, ids).await?
            }
            Plan::Scan(source) => match scan::run(connection, numbers, self, source, budget).await?
            {
                Ok(hits) => hits,
                Err(TooBroad) => return Ok(Err(TooBroad)),
            },
            Plan::AuthorsOrTopics { authors, topics, topic_rows } => {
                // Authors as a rule have written less than topics hold. Where that turns out to be
                // wrong, the topics are read after all, at twice their cost.
                let mut tried = Budget { rows: budget.rows.min(topic_rows) };
                let allowed = tried.rows;
                let found = scan::run(connection, numbers, self, authors, &mut tried).await?;
                budget.spend(allowed - tried.rows);
                match found {
                    Ok(hits) => hits,
                    Err(TooBroad) => {
                        match scan::run(connection, numbers, self, topics, budget).await? {
                            Ok(hits) => hits,
                            Err(TooBroad) => return Ok(Err(TooBroad)),
                        }
                    }
                }
            }
        };
        hits.sort_unstable_by_key(Hit::order);
        hits.truncate(self.limit);
        Ok(Ok(hits))
    }
}
