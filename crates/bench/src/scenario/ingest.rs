//! Publishing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::meter::Percentiles;
use crate::report::Report;
use crate::socket::{Socket, accepted};
use crate::target::Target;

/// Publishes all lines and waits for every OK. Every connection takes the next line that is left, so that
/// all of them are busy until the end, and events come about in the order in which they were written.
pub async fn ingest(
    target: &Target,
    lines: Vec<String>,
    connections: usize,
    in_flight: usize,
) -> anyhow::Result<Report> {
    let events = lines.len();
    let lines = Arc::new(Mutex::new(VecDeque::from(lines)));
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(Socket::connect(&target.url).await?);
    }
    let (cpu, start) = (target.cpu(), Instant::now());
    let mut tasks = JoinSet::new();
    for socket in sockets {
        tasks.spawn(publish(socket, Arc::clone(&lines), in_flight));
    }
    let mut times = Vec::with_capacity(events);
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    let (wall, cpu) = (start.elapsed(), target.cpu().saturating_sub(cpu));
    let times = Percentiles::of(times);
    Ok(Report::new("ingest", &target.name)
        .with("connections", connections)
        .with("in_flight", in_flight)
        .with("events", events)
        .rounded("events_per_second", events as f64 / wall.as_secs_f64())
        .rounded("ok_p50_us", times.p50)
        .rounded("ok_p99_us", times.p99)
        .rounded("cpu_us_per_event", cpu.as_secs_f64() * 1e6 / events as f64))
}

/// Returns how long each OK took.
async fn publish(
    mut socket: Socket,
    lines: Arc<Mutex<VecDeque<String>>>,
    in_flight: usize,
) -> anyhow::Result<Vec<Duration>> {
    let next = || lines.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (mut waiting, mut times) = (HashMap::new(), Vec::new());
    loop {
        // Half of the window at a time, so that messages share packets in both directions.
        if waiting.len() <= in_flight / 2 {
            while waiting.len() < in_flight
                && let Some(line) = next()
            {
                let id = kukuri_event::Event::parse(&line)?.id().to_hex();
                waiting.insert(id, Instant::now());
                socket.feed(format!("[\"EVENT\",{line}]")).await?;
            }
            socket.flush().await?;
        }
        if waiting.is_empty() {
            return Ok(times);
        }
        let message = socket.next().await?;
        if let Some(sent) = waiting.remove(accepted(&message)?) {
            times.push(sent.elapsed());
        }
    }
}
