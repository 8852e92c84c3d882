//! `export`: what is visible now, one event per line.

use std::collections::BTreeMap;

use anyhow::Context;
use kukuri_core::{Record, Seq, TopicId};
use kukuri_event::{Filter, UnixSeconds, matches};
use kukuri_store::{Entry, Hit, Order, Place, Query, QueryError, Store};

use crate::cli::{Common, ExportArgs};
use crate::exit::Exit;
use crate::open::open_existing;
use crate::output::Output;

/// Events per read.
const PAGE_EVENTS_MAX: usize = 500;
/// How many index rows a query may cost before everything is walked instead.
const QUERY_ROWS_MAX: usize = 1_000_000;

pub async fn run(common: &Common, args: ExportArgs) -> anyhow::Result<Exit> {
    let opened = open_existing(common).await?;
    let filter = args.filter.unwrap_or_default();
    let export = Export {
        store: &*opened.store,
        now: (opened.clock)().seconds(),
        after: args.after.map(Seq),
        filter: &filter,
    };
    let mut out = Output::stdout();
    let exported = match filter.limit {
        None => export.everything(&mut out).await,
        Some(limit) => export.newest(limit, &mut out).await,
    };
    exported.with_context(|| format!("cannot export from {}", opened.place))?;
    out.flush()?;
    Ok(Exit::Done)
}

struct Export<'a> {
    store: &'a dyn Store,
    now: UnixSeconds,
    after: Option<Seq>,
    filter: &'a Filter,
}

impl Export<'_> {
    /// All events that match, in the order they were taken in.
    async fn everything(&self, out: &mut Output) -> anyhow::Result<()> {
        let mut place = self.after;
        loop {
            let records = self.page(&mut place).await?;
            let Some(records) = records else { return Ok(()) };
            for record in records.iter().filter(|record| self.wants(record)) {
                out.line(record.body.json())?;
            }
        }
    }

    /// The newest events that match, newest first.
    async fn newest(&self, limit: usize, out: &mut Output) -> anyhow::Result<()> {
        let hits = match self.after {
            None => self.query(limit).await?,
            Some(_) => None,
        };
        let events = match hits {
            Some(hits) => hits.iter().map(|hit| hit.event).collect(),
            None => self.walk(limit).await?,
        };
        for events in events.chunks(PAGE_EVENTS_MAX) {
            // What was hidden since then is not there any more.
            for json in self.store.bodies(events.to_vec()).await?.iter().flatten() {
                out.line(json)?;
            }
        }
        Ok(())
    }

    /// By index; `None` when that would cost more than a walk.
    async fn query(&self, limit: usize) -> anyhow::Result<Option<Vec<Hit>>> {
        let query = Query {
            filters: vec![self.filter.clone()],
            after: None,
            now: self.now,
            limit_max: limit,
            rows_max: QUERY_ROWS_MAX,
            bodies_max: 0,
        };
        match self.store.query(query).await {
            Ok(answer) => Ok(Some(answer.hits)),
            Err(QueryError::TooBroad { .. }) => Ok(None),
            Err(QueryError::Store(error)) => Err(error.into()),
        }
    }

    /// By looking at everything, and keeping no more than was asked for.
    async fn walk(&self, limit: usize) -> anyhow::Result<Vec<Seq>> {
        let mut newest: BTreeMap<Order, Seq> = BTreeMap::new();
        let mut place = self.after;
        while let Some(records) = self.page(&mut place).await? {
            for record in records.iter().filter(|record| self.wants(record)) {
                let hit = Hit {
                    event: record.seq,
                    created_at: record.event().created_at(),
                    id: record.event().id(),
                };
                newest.insert(hit.order(), hit.event);
                if newest.len() > limit {
                    newest.pop_last();
                }
            }
        }
        Ok(newest.into_values().collect())
    }

    /// The next records, and the place after them; `None` at the end.
    async fn page(&self, place: &mut Option<Seq>) -> anyhow::Result<Option<Vec<Record>>> {
        let page = self.store.page(Place::Records(*place), PAGE_EVENTS_MAX).await;
        let page =
            page.with_context(|| format!("events after number {}", place.unwrap_or(Seq::ZERO)))?;
        let record = |entry| match entry {
            Entry::Record(record) => Some(record),
            _ => None,
        };
        let records: Vec<Record> = page.into_iter().filter_map(record).collect();
        let Some(last) = records.last() else { return Ok(None) };
        *place = Some(last.seq);
        Ok(Some(records))
    }

    fn wants(&self, record: &Record) -> bool {
        let links: Vec<&TopicId> = record.topics().collect();
        record.is_effective()
            && record.expires_at().is_none_or(|end| end > self.now)
            && matches(self.filter, record.event(), &links)
    }
}
