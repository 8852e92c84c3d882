//! Answering filters: by the cheapest index, then by the same conditions the matcher tests.

mod check;
mod plan;
mod scan;
mod tail_cursor;

use kukuri_core::Seq;
use kukuri_event::Filter;
use kukuri_store::{Hit, Hits, Query, QueryError, merge_hits};

use crate::desk::{Desk, Snapshot};
use crate::error::corrupt;
use crate::page;
use crate::tail::TailAt;
use check::{Check, Scene};
use plan::Plan;

/// How many more index rows may be read. Shared by all filters of a query.
pub(crate) struct Budget {
    pub rows_left: usize,
}

/// The budget of a scan ran out.
pub(crate) struct Spent;

impl Budget {
    fn spend(&mut self, rows: usize) -> Result<(), Spent> {
        self.rows_left = self.rows_left.checked_sub(rows).ok_or(Spent)?;
        Ok(())
    }
}

pub(crate) fn run(desk: &mut Desk, query: &Query) -> Result<Hits, QueryError> {
    // One read transaction: the head and every answer belong to the same moment.
    let Snapshot { conn, numbers, segment, bounds } = desk.snapshot()?;
    let mut budget = Budget { rows_left: query.rows_max };
    let tail = TailAt { segment: &segment, head: bounds.head };
    let mut scene = Scene { conn: &conn, numbers, tail, now: query.now };
    let mut answers = Vec::with_capacity(query.filters.len());
    for filter in &query.filters {
        answers.push(answer(&mut scene, filter, query, &mut budget)?);
    }
    let hits = merge_hits(answers);
    let first: Vec<Seq> = hits.iter().take(query.bodies_max).map(|hit| hit.event).collect();
    let bodies = page::bodies(&conn, &first)?
        .into_iter()
        .map(|body| body.ok_or_else(|| corrupt("a hit that is not there")));
    Ok(Hits { head: bounds.head, hits, bodies: bodies.collect::<Result<_, _>>()? })
}

fn answer(
    scene: &mut Scene<'_>,
    filter: &Filter,
    query: &Query,
    budget: &mut Budget,
) -> Result<Vec<Hit>, QueryError> {
    let limit = query.limit(filter);
    if limit == 0 || filter.matches_nothing() {
        return Ok(Vec::new());
    }
    let topics = plan::topics(scene, filter)?;
    let plans = plan::plans(filter, &topics);
    let last = plans.len() - 1;
    for (nth, plan) in plans.iter().enumerate() {
        // A plan that turns out badly leaves half of the rows for the next.
        let share = if nth == last { budget.rows_left } else { budget.rows_left / 2 };
        let mut part = Budget { rows_left: share };
        let check = Check {
            conn: scene.conn,
            tail: scene.tail,
            filter,
            now: scene.now,
            topics: filter.topics().map(|_| &topics.numbers[..]),
        };
        let result = match plan {
            Plan::Ids(ids) => scan::ids(&check, ids, &mut part),
            Plan::Ordered(streams) => scan::ordered(&check, streams, limit, &mut part),
        };
        budget.rows_left -= share - part.rows_left;
        if let Some(mut hits) = result? {
            hits.sort_unstable_by_key(Hit::order);
            hits.truncate(limit);
            return Ok(hits);
        }
    }
    Err(QueryError::TooBroad { rows_max: query.rows_max })
}
