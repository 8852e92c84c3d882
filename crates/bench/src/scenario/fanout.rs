//! Publishing to many who listen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::ears::Ears;
use crate::load::{Load, number};
use crate::meter::Percentiles;
use crate::report::Report;
use crate::socket::{SILENCE_MAX, Socket, accepted};
use crate::target::Target;

/// Who listens, and to what.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub subscribers: usize,
    /// Of these, who do not read.
    pub stalled: usize,
    pub events: usize,
    /// 0 is as fast as it goes.
    pub per_second: u32,
}

impl Crowd {
    /// How long listeners leave the machine to the relay: half of the time between two events, so that
    /// no two are read at once.
    fn rest(&self) -> Duration {
        match self.per_second {
            0 => Duration::ZERO,
            rate => Duration::from_secs(1) / (2 * rate),
        }
    }
}

/// What those ask for who do not read: more than a socket and all that waits before it can hold.
const UNREAD_REQUESTS: usize = 30;

/// How many are in flight when it goes as fast as it goes.
const IN_FLIGHT: usize = 64;

/// When each event was sent, in nanoseconds since the beginning, by the clock of the machine: arrivals
/// are told by it.
struct Sent {
    start: SystemTime,
    nanos: Vec<AtomicU64>,
}

impl Sent {
    fn now(&self) -> u64 {
        let since = self.start.elapsed().unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// `first` is the number of the first event, which no other load of the run has.
pub async fn fanout(
    target: &Target,
    listen_at: &str,
    crowd: Crowd,
    first: usize,
) -> anyhow::Result<Report> {
    let topic = &target.topics[..1];
    let load = Load::of(topic, crowd.events, first);
    let nanos = (0..crowd.events).map(|_| AtomicU64::new(0)).collect();
    let sent = Arc::new(Sent { start: SystemTime::now(), nanos });
    let filter = format!("{{\"#t\":[\"{}\"],\"limit\":1}}", topic[0]);
    let (mut listening, mut stalled) = (Vec::new(), Vec::new());
    for nth in 0..crowd.subscribers {
        let mut socket = Socket::connect(listen_at).await?;
        socket.request("s", &filter).await?;
        if nth >= crowd.stalled {
            listening.push(socket.into_listener()?);
            continue;
        }
        for unread in 0..UNREAD_REQUESTS {
            let filter = format!("{{\"#t\":[\"{}\"],\"limit\":500}}", topic[0]);
            socket.send(format!("[\"REQ\",\"{unread}\",{filter}]")).await?;
        }
        stalled.push(socket);
    }
    if crowd.stalled > 0 {
        // Until the relay has noticed that nobody reads.
        target.quiet().await;
    }
    let listeners = {
        let sent = Arc::clone(&sent);
        let ears = Ears::of(listening)?;
        spawn_blocking(move || listen(ears, crowd.rest(), &sent, first))
    };
    let publisher = Socket::connect(&target.url).await?;
    let (cpu, start) = (target.cpu(), Instant::now());
    publish(publisher, load.lines, crowd.per_second, &sent).await?;
    let times = listeners.await??;
    let (cpu, wall) = (target.cpu().saturating_sub(cpu), start.elapsed());
    drop(stalled);
    let (deliveries, times) = (times.len(), Percentiles::of(times));
    Ok(Report::new("fanout", &target.name)
        .with("subscribers", crowd.subscribers)
        .with("stalled", crowd.stalled)
        .with("events", crowd.events)
        .with("per_second", crowd.per_second)
        .with("deliveries", deliveries)
        .rounded("deliveries_per_second", deliveries as f64 / wall.as_secs_f64())
        .rounded("live_p50_us", times.p50)
        .rounded("live_p99_us", times.p99)
        .rounded("live_max_us", times.max)
        .with("cpu_us_per_delivery", cpu.as_secs_f64() * 1e6 / deliveries.max(1) as f64))
}

async fn publish(
    mut socket: Socket,
    lines: Vec<String>,
    per_second: u32,
    sent: &Sent,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / per_second.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = 0;
    for (nth, line) in lines.into_iter().enumerate() {
        if per_second > 0 {
            ticks.tick().await;
        }
        sent.nanos[nth].store(sent.now(), Ordering::Release);
        socket.send(format!("[\"EVENT\",{line}]")).await?;
        waiting += 1;
        while waiting > 0 && (per_second > 0 || waiting >= IN_FLIGHT) {
            accepted(&socket.next().await?)?;
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        accepted(&socket.next().await?)?;
    }
    Ok(())
}

/// Returns how long after it was sent each event arrived, over all who listen.
fn listen(ears: Ears, rest: Duration, sent: &Sent, first: usize) -> anyhow::Result<Vec<Duration>> {
    let wanted = sent.nanos.len() * ears.len();
    let mut times = Vec::with_capacity(wanted);
    ears.listen(wanted, rest, SILENCE_MAX, |message, arrived| {
        let nth = number(message).and_then(|number| number.checked_sub(first));
        let Some(at) = nth.and_then(|nth| sent.nanos.get(nth)) else { return false };
        let sent_at = sent.start + Duration::from_nanos(at.load(Ordering::Acquire));
        times.push(arrived.duration_since(sent_at).unwrap_or_default());
        true
    })?;
    Ok(times)
}
