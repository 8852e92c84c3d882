//! What a query costs, from filter to JSON, in wall time with a warm cache. Each filter counts with the
//! best of a few rounds: what else runs on the machine only ever adds.

use std::time::{Duration, Instant};

use kukuri_event::{Event, Filter};
use kukuri_store::{Query, Store};
use kukuri_testkit::generate::bulk::Bulk;

use crate::NOW;
use crate::meter::{Percentiles, Verify};

const ROUNDS: usize = 5;
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
    let cases: Vec<(&str, Vec<String>)> = vec![
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
    for (what, filters) in cases {
        let filters = filters.iter().map(|f| Filter::parse(f)).collect::<Result<Vec<_>, _>>()?;
        case(store, what, &filters, Verify::best(lines)?).await?;
    }
    Ok(())
}

async fn case(
    store: &dyn Store,
    what: &str,
    filters: &[Filter],
    verify: Verify,
) -> anyhow::Result<()> {
    let mut best = vec![Duration::MAX; filters.len()];
    let (mut all, mut rows) = (Vec::new(), 0);
    for round in 0..=ROUNDS {
        for (filter, best) in filters.iter().zip(&mut best) {
            let (filters, bodies_max) = (vec![filter.clone()], BODIES_MAX);
            let query = Query { filters, now: NOW, limit_max: 500, rows_max: 50_000, bodies_max };
            let start = Instant::now();
            let hits = store.query(query).await?;
            let took = start.elapsed();
            // The first round warms the cache.
            if round > 0 {
                *best = took.min(*best);
                all.push(took);
                rows += hits.bodies.len();
            }
        }
    }
    let count = all.len();
    let (best, all) = (Percentiles::of(best), Percentiles::of(all));
    println!(
        "{what}: {:.0} µs = {:.1}× a verification (of all rounds: median {:.0} µs, p99 {:.0} µs), {:.0} events",
        best.p50,
        best.p50 / verify.micros(),
        all.p50,
        all.p99,
        rows as f64 / count as f64
    );
    Ok(())
}
