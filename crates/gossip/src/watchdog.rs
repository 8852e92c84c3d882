//! Whether the library still listens. Its one task waits for a neighbour that takes nothing any more, and
//! all swarms wait with it: such a neighbour is found and cut off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use iroh_gossip::proto::TopicId as SwarmId;
use kukuri_core::{TopicId, gossip_topic};
use tokio::time::{sleep, timeout};

use crate::conduct::Fault;
use crate::gossip::Shared;

const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A task that has answered nothing for so long waits for somebody.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Once somebody is cut off for whom it has waited, it goes on at once.
const FREED_WAIT_MAX: Duration = Duration::from_millis(500);

/// Never ends by itself.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        // Who has no neighbours waits for nobody.
        let Some(topic) = shared.joined_topic() else { continue };
        if !answers(&shared, &topic, ANSWER_WAIT_MAX).await {
            free(&shared, &topic).await;
        }
    }
}

/// Whether the library says who the neighbours of a swarm are: it does so first of all when it is subscribed to.
async fn answers(shared: &Shared, topic: &TopicId, wait_max: Duration) -> bool {
    let id = SwarmId::from_bytes(gossip_topic(topic));
    let asked = async {
        // Who has ended is noticed elsewhere.
        if let Ok(mut swarm) = shared.gossip.subscribe(id, Vec::new()).await {
            let _said = swarm.next().await;
        }
    };
    // The last neighbour may just have gone: then nothing is said, and nothing is wrong.
    timeout(wait_max, asked).await.is_ok() || shared.joined_topic().as_ref() != Some(topic)
}

/// Cuts one after the other off until it goes on: strangers first, and peers of the operator last. Those that
/// were cut off for nothing come back by themselves; the one for whom it has waited is muted.
async fn free(shared: &Shared, topic: &TopicId) {
    let mut connected = shared.door.connected();
    connected.sort_by_key(|peer| shared.dialler.is_named(peer));
    tracing::warn!(connected = connected.len(), "gossip waits for a neighbour that takes nothing");
    for peer in connected {
        shared.door.cut(&peer, b"stalled");
        if answers(shared, topic, FREED_WAIT_MAX).await {
            shared.door.blame(&peer, Fault::Stalled, 0);
            return;
        }
    }
    // It waits for nobody, and works no more.
    tracing::error!("gossip does not go on; it begins anew");
    shared.broken.cancel();
}
