//! What a query costs, from filter to JSON, in wall time with a warm cache. Each filter counts with the
//! best of a few rounds, and so does the verification it is compared with, measured between them: what
//! else runs on the machine only ever adds.

use std::time::{Duration, Instant};

use kukuri_event::{Event, Filter};
use kukuri_store::{Query, Store};
use kukuri_testkit::generate::bulk::Bulk;

use crate::NOW;
use crate::meter::{Percentiles, Verify};

const ROUNDS: usize = 30;
const FILTERS: usize = 200;
/// No case finds more.
const BODIES_MAX: usize = 100;

pub async fn measure(store: &dyn Store, bulk: &Bulk, lines: &[String]) -> anyhow::Result<()> {
    let popular: Vec<String> = (0..FILTERS).map(|nth| bulk.topic(nth)).collect();
    let top = &popular[0];
    let sample: Vec<Event> = lines
        .iter()
        .step_by((lines.len() / FILTERS).max(1))
        .map(|line| Event::parse(line))
        .collect::<Result<_, _>>()?;
    let of_top = |event: &&Event| event.tags().values("t").any(|topic| topic == top);
    let week = NOW.0 - 7 * 24 * 60 * 60;
    let cases: Vec<(&'static str, Vec<String>)> = vec![
        (
            "100 newest of a topic",
            popular.iter().map(|t| format!(r##"{{"#t":["{t}"],"limit":100}}"##)).collect(),
        ),
        (
            "topic, kind and since, 50",
            popular
                .iter()
                .map(|t| format!(r##"{{"#t":["{t}"],"kinds":[1],"since":{week},"limit":50}}"##))
                .collect(),
        ),
        (
            "an author's 20 newest in a topic",
            sample
                .iter()
                .map(|e| format!(r##"{{"#t":["{top}"],"authors":["{}"],"limit":20}}"##, e.pubkey()))
                .collect(),
        ),
        (
            "#e in a topic, 20",
            lines
                .iter()
                .filter_map(|line| Event::parse(line).ok())
                .filter(|event| of_top(&event))
                .filter_map(|event| event.tags().values("e").next().map(str::to_owned))
                .step_by(50)
                .take(FILTERS)
                .map(|id| format!(r##"{{"#t":["{top}"],"#e":["{id}"],"limit":20}}"##))
                .collect(),
        ),
        (
            "by id",
            sample
                .iter()
                .map(|e| {
                    let topic = e.tags().values("t").next().unwrap_or_default();
                    format!(r##"{{"#t":["{topic}"],"ids":["{}"]}}"##, e.id())
                })
                .collect(),
        ),
    ];
    let mut cases = cases
        .into_iter()
        .map(|(what, filters)| Case::new(what, &filters))
        .collect::<anyhow::Result<Vec<_>>>()?;
    // Rounds of one case lie apart, so that a slow moment of the machine does not take all of them.
    for round in 0..=ROUNDS {
        for case in &mut cases {
            case.round(store, round, Verify::now(lines)?).await?;
        }
    }
    cases.into_iter().for_each(Case::print);
    Ok(())
}

struct Case {
    what: &'static str,
    filters: Vec<Filter>,
    best: Vec<Duration>,
    all: Vec<Duration>,
    rows: usize,
    verify: Option<Verify>,
}

impl Case {
    fn new(what: &'static str, filters: &[String]) -> anyhow::Result<Self> {
        let filters = filters.iter().map(|f| Filter::parse(f)).collect::<Result<Vec<_>, _>>()?;
        let best = vec![Duration::MAX; filters.len()];
        Ok(Self { what, filters, best, all: Vec::new(), rows: 0, verify: None })
    }

    async fn round(
        &mut self,
        store: &dyn Store,
        round: usize,
        verify: Verify,
    ) -> anyhow::Result<()> {
        self.verify = Some(self.verify.map_or(verify, |before| before.min(verify)));
        for (filter, best) in self.filters.iter().zip(&mut self.best) {
            let (filters, bodies_max) = (vec![filter.clone()], BODIES_MAX);
            let query = Query {
                filters,
                after: None,
                now: NOW,
                limit_max: 500,
                rows_max: 50_000,
                bodies_max,
            };
            let start = Instant::now();
            let hits = store.query(query).await?;
            let took = start.elapsed();
            // The first round warms the cache.
            if round > 0 {
                *best = took.min(*best);
                self.all.push(took);
                self.rows += hits.bodies.len();
            }
        }
        Ok(())
    }

    fn print(self) {
        let count = self.all.len();
        let (best, all) = (Percentiles::of(self.best), Percentiles::of(self.all));
        println!(
            "{}: {:.0} µs = {:.1}× a verification (of all rounds: median {:.0} µs, p99 {:.0} µs), {:.0} events",
            self.what,
            best.p50,
            best.p50 / self.verify.unwrap_or_default().micros(),
            all.p50,
            all.p99,
            self.rows as f64 / count as f64
        );
    }
}
