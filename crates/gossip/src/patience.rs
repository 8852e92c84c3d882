//! Who reads the feed for all swarms waits for one that is slow, and for none that has stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kukuri_core::TopicId;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

/// A swarm that takes nothing for so long holds up the others this once. What is not given to it is dropped,
/// and others ask for it.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Swarms that are not waited for until they take something again.
    stopped: BTreeSet<TopicId>,
}

impl Patience {
    /// Whether it was taken.
    pub async fn give(&mut self, topic: &TopicId, out: &Sender<Bytes>, bytes: Bytes) -> bool {
        let taken = match out.try_send(bytes) {
            Err(TrySendError::Full(bytes)) if !self.stopped.contains(topic) => {
                matches!(timeout(ROOM_WAIT_MAX, out.send(bytes)).await, Ok(Ok(())))
            }
            tried => tried.is_ok(),
        };
        if taken {
            self.stopped.remove(topic);
        } else if !out.is_closed() {
            self.stopped.insert(topic.clone());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;
    use tokio::time::Instant;

    use super::*;

    fn topic(digit: char) -> TopicId {
        TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_swarm_that_has_stopped_is_waited_for_once() {
        let (mut patience, t) = (Patience::default(), topic('a'));
        let (out, mut waiting) = channel(1);
        let bytes = || Bytes::from_static(b"x");
        assert!(patience.give(&t, &out, bytes()).await);
        let start = Instant::now();
        for _ in 0..100 {
            assert!(!patience.give(&t, &out, bytes()).await);
        }
        assert_eq!(start.elapsed(), ROOM_WAIT_MAX);
        // Another one is not touched.
        let (other, _kept) = channel(1);
        assert!(patience.give(&topic('b'), &other, bytes()).await);
        assert_eq!(start.elapsed(), ROOM_WAIT_MAX);
        // It takes something again: then it is waited for as before.
        waiting.recv().await.unwrap();
        assert!(patience.give(&t, &out, bytes()).await);
        assert!(!patience.give(&t, &out, bytes()).await);
        assert_eq!(start.elapsed(), 2 * ROOM_WAIT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_swarm_gets_everything() {
        let (mut patience, t) = (Patience::default(), topic('a'));
        let (out, mut waiting) = channel(2);
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while waiting.recv().await.is_some() {
                read += 1;
                tokio::time::sleep(ROOM_WAIT_MAX / 2).await;
            }
            read
        });
        for _ in 0..50 {
            assert!(patience.give(&t, &out, Bytes::from_static(b"x")).await);
        }
        drop(out);
        assert_eq!(reader.await.unwrap(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn a_swarm_that_was_left_is_forgotten() {
        let (mut patience, t) = (Patience::default(), topic('a'));
        let (out, waiting) = channel(1);
        drop(waiting);
        assert!(!patience.give(&t, &out, Bytes::from_static(b"x")).await);
        assert!(patience.stopped.is_empty());
    }
}
