//! What those who wait hold.

use crate::report::Report;
use crate::socket::Socket;
use crate::target::Target;

const SUBSCRIPTIONS_PER_CONNECTION: usize = 20;

/// Connections that say nothing, and then subscriptions on them.
pub async fn memory(target: &Target, connections: usize) -> anyhow::Result<Report> {
    // What is made once is made by the first few.
    let mut first = open(target, connections / 10).await?;
    subscribe(target, &mut first, 0).await?;
    let empty = target.memory_bytes();
    let mut sockets = open(target, connections).await?;
    let connected = target.memory_bytes();
    subscribe(target, &mut sockets, first.len()).await?;
    let subscribed = target.memory_bytes();
    let subscriptions = connections * SUBSCRIPTIONS_PER_CONNECTION;
    let each = |more: u64, less: u64, count: usize| more.saturating_sub(less) as f64 / count as f64;
    Ok(Report::new("memory", &target.name)
        .with("connections", connections)
        .with("subscriptions", subscriptions)
        .rounded("bytes_per_connection", each(connected, empty, connections))
        .rounded("bytes_per_subscription", each(subscribed, connected, subscriptions)))
}

/// Subscriptions to an author each, on connections of which so many were there before.
async fn subscribe(target: &Target, sockets: &mut [Socket], before: usize) -> anyhow::Result<()> {
    let topic = &target.topics[0];
    for (nth, socket) in sockets.iter_mut().enumerate() {
        for sub in 0..SUBSCRIPTIONS_PER_CONNECTION {
            let author = format!("{:064x}", (before + nth) * SUBSCRIPTIONS_PER_CONNECTION + sub);
            let filter = format!("{{\"#t\":[\"{topic}\"],\"authors\":[\"{author}\"],\"limit\":1}}");
            socket.request(&format!("s{sub}"), &filter).await?;
        }
    }
    Ok(())
}

async fn open(target: &Target, connections: usize) -> anyhow::Result<Vec<Socket>> {
    let mut sockets = Vec::with_capacity(connections);
    for _ in 0..connections {
        sockets.push(Socket::connect(&target.url).await?);
    }
    Ok(sockets)
}
