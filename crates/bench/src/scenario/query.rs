//! Asking.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::meter::Percentiles;
use crate::report::Report;
use crate::socket::Socket;
use crate::target::Target;

/// The newest 100 of the first topic, one question after the other on each connection.
pub async fn query(target: &Target, connections: usize, requests: usize) -> anyhow::Result<Report> {
    let filter = format!("{{\"#t\":[\"{}\"],\"limit\":100}}", target.topics[0]);
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let mut socket = Socket::connect(&target.url).await?;
        socket.request("warm", &filter).await?;
        sockets.push(socket);
    }
    let (cpu, start) = (target.cpu(), Instant::now());
    let mut tasks = JoinSet::new();
    for socket in sockets {
        tasks.spawn(ask(socket, filter.clone(), requests / connections));
    }
    let (mut times, mut events) = (Vec::with_capacity(requests), 0);
    while let Some(done) = tasks.join_next().await {
        let (took, found) = done??;
        times.extend(took);
        events += found;
    }
    let (cpu, wall, asked) = (target.cpu().saturating_sub(cpu), start.elapsed(), times.len());
    let times = Percentiles::of(times);
    Ok(Report::new("query", &target.name)
        .with("connections", connections)
        .with("requests", asked)
        .rounded("events_per_request", events as f64 / asked as f64)
        .rounded("requests_per_second", asked as f64 / wall.as_secs_f64())
        .rounded("eose_p50_us", times.p50)
        .rounded("eose_p99_us", times.p99)
        .rounded("cpu_us_per_request", cpu.as_secs_f64() * 1e6 / asked as f64))
}

/// How long each answer took, and how many events there were in all.
async fn ask(
    mut socket: Socket,
    filter: String,
    requests: usize,
) -> anyhow::Result<(Vec<Duration>, usize)> {
    let (mut times, mut events) = (Vec::with_capacity(requests), 0);
    for _ in 0..requests {
        let start = Instant::now();
        events += socket.request("q", &filter).await?;
        times.push(start.elapsed());
        // It leaves with the next question, and some relays have no answer without it.
        socket.feed("[\"CLOSE\",\"q\"]".to_owned()).await?;
    }
    Ok((times, events))
}
