//! Answering filters: by the cheapest index, then by the same conditions the matcher tests.

mod check;
mod plan;
mod scan;
mod tail_cursor;

use kukuri_core::Seq;
use kukuri_event::Filter;
use kukuri_store::{Hits, Query, QueryError, StoreError, merge_hits};
use rusqlite::Connection;

use crate::desk::{Desk, Snapshot};
use crate::error::corrupt;
use crate::page;
use crate::tail::TailAt;
use check::{Check, Found, Scene};
use plan::{Bring, Plan};

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
    let found = merge_hits(answers);
    let hits = found.iter().map(|found| found.hit).collect();
    let bodies = bodies(&conn, found, query.bodies_max)?;
    Ok(Hits { head: bounds.head, hits, bodies })
}

/// The bodies of the first hits: those that came with the hits, and the others from their rows.
fn bodies(
    conn: &Connection,
    mut found: Vec<Found>,
    bodies_max: usize,
) -> Result<Vec<String>, StoreError> {
    found.truncate(bodies_max);
    let without = found.iter().filter(|found| found.body.is_none());
    let missing: Vec<Seq> = without.map(|found| found.hit.event).collect();
    let mut read = page::bodies(conn, &missing)?.into_iter();
    let bodies = found.into_iter().map(|found| match found.body {
        Some(body) => Ok(body),
        None => read.next().flatten().ok_or_else(|| corrupt("a hit that is not there")),
    });
    bodies.collect()
}

fn answer(
    scene: &mut Scene<'_>,
    filter: &Filter,
    query: &Query,
    budget: &mut Budget,
) -> Result<Vec<Found>, QueryError> {
    let limit = query.limit(filter);
    if limit == 0 || filter.matches_nothing() {
        return Ok(Vec::new());
    }
    let topics = plan::topics(scene, filter)?;
    // A body that is beyond those asked for would be read for nothing. Whoever goes on somewhere wants none.
    let bring = match query.after {
        None if limit <= query.bodies_max => Bring::Bodies,
        _ => Bring::Hits,
    };
    let plans = plan::plans(filter, &topics, bring);
    let last = plans.len() - 1;
    for (nth, plan) in plans.iter().enumerate() {
        // A plan that turns out badly leaves half of the rows for the next.
        let share = if nth == last { budget.rows_left } else { budget.rows_left / 2 };
        let mut part = Budget { rows_left: share };
        let check = Check {
            conn: scene.conn,
            tail: scene.tail,
            query,
            filter,
            now: scene.now,
            topics: filter.topics().map(|_| &topics.numbers[..]),
            bring,
        };
        let result = match plan {
            Plan::Ids(ids) => scan::ids(&check, ids, &mut part),
            Plan::Ordered(streams) => scan::ordered(&check, streams, limit, &mut part),
        };
        budget.rows_left -= share - part.rows_left;
        if let Some(mut found) = result? {
            found.sort_unstable_by_key(|found| found.hit.order());
            found.truncate(limit);
            return Ok(found);
        }
    }
    Err(QueryError::TooBroad { rows_max: query.rows_max })
}
