//! Publishing while many wait for something else.

use crate::load::Load;
use crate::report::Report;
use crate::scenario::ingest;
use crate::socket::Socket;
use crate::target::Target;

/// As many as relays commonly allow.
const SUBSCRIPTIONS_PER_CONNECTION: usize = 20;
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 64;
/// Measured in turns of which the best counts, since a shared machine has better and worse moments.
const TURNS: usize = 3;

/// The cost of an event without and with so many subscriptions to other topics than that of the load.
pub async fn idle(target: &Target, subscriptions: usize, events: usize) -> anyhow::Result<Report> {
    anyhow::ensure!(target.topics.len() > 1, "subscriptions need another topic: --topics A,B");
    let load = Load::of(&target.topics[..1], 2 * TURNS * events, 10_000_000);
    let mut parts = load.lines.chunks(events);
    let (mut without, mut with) = (f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        without = without.min(cost(target, parts.next()).await?);
        let sockets = open(target, subscriptions).await?;
        with = with.min(cost(target, parts.next()).await?);
        drop(sockets);
    }
    Ok(Report::new("idle", &target.name)
        .with("subscriptions", subscriptions)
        .rounded("cpu_us_per_event_without", without)
        .rounded("cpu_us_per_event_with", with)
        .with("ratio", with / without))
}

async fn cost(target: &Target, lines: Option<&[String]>) -> anyhow::Result<f64> {
    let lines = lines.unwrap_or_default().to_vec();
    target.quiet().await;
    let report = ingest(target, lines, CONNECTIONS, IN_FLIGHT).await?;
    Ok(report.number("cpu_us_per_event"))
}

async fn open(target: &Target, subscriptions: usize) -> anyhow::Result<Vec<Socket>> {
    let others = &target.topics[1..];
    let mut sockets = Vec::new();
    let mut nth = 0;
    while nth < subscriptions {
        let mut socket = Socket::connect(&target.url).await?;
        for _ in 0..SUBSCRIPTIONS_PER_CONNECTION.min(subscriptions - nth) {
            let (topic, author) = (&others[nth % others.len()], format!("{nth:064x}"));
            let filter = format!("{{\"#t\":[\"{topic}\"],\"authors\":[\"{author}\"],\"limit\":1}}");
            socket.request(&format!("s{nth}"), &filter).await?;
            nth += 1;
        }
        sockets.push(socket);
    }
    Ok(sockets)
}
