//! Answering filters. Each filter is driven along one index by its most selective condition; the
//! other conditions are checked on what that finds. The answer is exact: what an index abbreviates
//! is compared in full.

mod check;
mod moment;
mod newest;
mod plan;
mod scan;
mod stretch;

use std::cmp::Reverse;
use std::collections::HashMap;

use kukuri_core::Seq;
use kukuri_event::{EventId, Filter, UnixSeconds};
use kukuri_store::{Hit, Hits, Order, Query, merge_hits};
use sqlx::postgres::PgConnection;

use crate::error::Fault;
use crate::list;
use crate::numbers::TopicNumbers;
use crate::readers::Snapshot;
pub(crate) use moment::Moment;
use plan::{Plan, Source};
use scan::Scan;
use stretch::Place;

/// More index rows would be read than the query may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBroad;

type Found = Result<Vec<Hit>, TooBroad>;

/// The JSON of events.
type Bodies = HashMap<Seq, String>;

/// How many rows are read at first for each hit that is wanted, where not every row is one. What can
/// be answered at once mostly is with few; what cannot had better read more.
const ROWS_PER_HIT_AT_ONCE: usize = 4;
const ROWS_PER_HIT: usize = 16;

/// Orders events of one second as the answer does, last first: it is greater for smaller ids.
pub(crate) fn tie(id: EventId) -> i64 {
    !id.prefix()
}

/// What is left of the rows that a query may cost.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    rows: usize,
}

impl Budget {
    pub fn of(query: &Query) -> Self {
        Self { rows: query.rows_max }
    }

    fn spend(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows);
    }
}

/// Answers a query of one filter with one statement, or two if there are bodies to be read, which
/// costs fewer round trips than a transaction. `None` if it takes more than that, or if the feed was
/// replaced, of which [`answer`] complains.
pub(crate) async fn answer_at_once(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    query: &Query,
    known: Moment,
    budget: &mut Budget,
) -> Result<Option<Hits>, Fault> {
    let [filter] = query.filters.as_slice() else {
        return Ok(None);
    };
    let wanted = Wanted::new(query, filter);
    let (now, hits, mut bodies) = match plan::at_once(numbers, &wanted) {
        Some(Plan::Ids(ids)) if ids.len() <= budget.rows => {
            budget.spend(ids.len());
            check::by_id(connection, numbers, &wanted, ids, known.head).await?
        }
        Some(Plan::Scan(Source::Topics(topics)))
            if topics.len() == 1 && wanted.limit <= query.bodies_max && newest::suits(&wanted) =>
        {
            let head = known.head;
            match newest::read(connection, &wanted, topics[0], head, budget).await? {
                (now, Some((hits, bodies))) => (now, hits, bodies),
                (_, None) => return Ok(None),
            }
        }
        Some(Plan::Scan(source)) => {
            let mut scan = Scan::new(&wanted, source, ROWS_PER_HIT_AT_ONCE);
            if scan.in_full {
                return Ok(None);
            }
            let (now, _) = scan.read(connection, known.head, budget).await?;
            if !scan.complete() {
                return Ok(None);
            }
            (now, scan.into_hits(), Bodies::new())
        }
        _ => return Ok(None),
    };
    if !now.follows(known) {
        return Ok(None);
    }
    let hits = wanted.cut(hits);
    let first = hits.iter().take(query.bodies_max).map(|hit| hit.event);
    let missing: Vec<Seq> = first.clone().filter(|seq| !bodies.contains_key(seq)).collect();
    let more = list::bodies(connection, &missing).await?;
    bodies.extend(missing.into_iter().zip(more).filter_map(|(seq, body)| Some((seq, body?))));
    // What was hidden since then has no body to be read any more.
    let bodies = first.map(|seq| bodies.remove(&seq)).collect::<Option<Vec<String>>>();
    Ok(bodies.map(|bodies| Hits { head: now.head, hits, bodies }))
}

/// All filters, as of the snapshot.
pub(crate) async fn answer(
    snapshot: &mut Snapshot,
    numbers: &TopicNumbers,
    query: &Query,
    mut budget: Budget,
) -> Result<Result<Hits, TooBroad>, Fault> {
    let head = snapshot.bounds.feed.head;
    let mut answers = Vec::with_capacity(query.filters.len());
    for filter in &query.filters {
        let wanted = Wanted::new(query, filter);
        match find(snapshot.connection(), numbers, &wanted, head, &mut budget).await? {
            Ok(hits) => answers.push(wanted.cut(hits)),
            Err(TooBroad) => return Ok(Err(TooBroad)),
        }
    }
    let hits = merge_hits(answers);
    let first: Vec<Seq> = hits.iter().take(query.bodies_max).map(|hit| hit.event).collect();
    let bodies = list::bodies(snapshot.connection(), &first).await?;
    let bodies = bodies.into_iter().collect::<Option<Vec<String>>>();
    let bodies = bodies.ok_or_else(|| Fault::corrupt("a hit without an event; run doctor"))?;
    Ok(Ok(Hits { head, hits, bodies }))
}

/// What one filter asks for.
struct Wanted<'a> {
    query: &'a Query,
    filter: &'a Filter,
    now: UnixSeconds,
    limit: usize,
}

impl<'a> Wanted<'a> {
    fn new(query: &'a Query, filter: &'a Filter) -> Self {
        Self { query, filter, now: query.now, limit: query.limit(filter) }
    }

    /// Where in the order of the indexes the answer may begin. An index abbreviates ids: there may be rows
    /// that are not ahead.
    fn first_place(&self) -> Place {
        let until = self.query.until(self.filter).map_or(i64::MAX, |until| until.0);
        match self.query.after {
            Some(Order(Reverse(created_at), id)) if created_at.0 == until => (until, tie(id)),
            _ => (until, i64::MAX),
        }
    }

    /// The first of the hits, in order.
    fn cut(&self, mut hits: Vec<Hit>) -> Vec<Hit> {
        hits.sort_unstable_by_key(Hit::order);
        hits.truncate(self.limit);
        hits
    }
}

async fn find(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    head: Seq,
    budget: &mut Budget,
) -> Result<Found, Fault> {
    match plan::plan(connection, numbers, wanted).await? {
        Plan::Nothing => Ok(Ok(Vec::new())),
        Plan::Ids(ids) if ids.len() > budget.rows => Ok(Err(TooBroad)),
        Plan::Ids(ids) => {
            budget.spend(ids.len());
            let (_, hits, _) = check::by_id(connection, numbers, wanted, ids, head).await?;
            Ok(Ok(hits))
        }
        Plan::Scan(source) => scan(connection, numbers, wanted, source, head, budget).await,
        Plan::Everywhere => {
            let source = Source::Topics(numbers.all(connection).await?);
            scan(connection, numbers, wanted, source, head, budget).await
        }
        Plan::AuthorsOrTopics { authors, topics, topic_rows } => {
            // Authors as a rule have written less than topics hold. Where that turns out to be
            // wrong, the topics are read after all, at twice their cost.
            let allowed = (budget.rows / 2).min(topic_rows);
            let mut tried = Budget { rows: allowed };
            let found = scan(connection, numbers, wanted, authors, head, &mut tried).await?;
            budget.spend(allowed - tried.rows);
            match found {
                Ok(hits) => Ok(Ok(hits)),
                Err(TooBroad) => scan(connection, numbers, wanted, topics, head, budget).await,
            }
        }
    }
}

/// Reads on until the answer is complete, or has cost too much.
async fn scan(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    source: Source,
    head: Seq,
    budget: &mut Budget,
) -> Result<Found, Fault> {
    let mut scan = Scan::new(wanted, source, ROWS_PER_HIT);
    while !scan.complete() {
        // A query that needs exactly what it may cost is told apart from one that needs more by
        // reading one row too many.
        if scan.overdrawn {
            return Ok(Err(TooBroad));
        }
        let (_, new) = scan.read(connection, head, budget).await?;
        if scan.in_full {
            check::retain(connection, numbers, &mut scan, &new).await?;
        }
    }
    Ok(Ok(scan.into_hits()))
}
