//! Room in the queue, in commands and in bytes.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::Act;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::{LaneConfig, LaneError, batch};

/// The room of the whole queue.
pub(crate) struct Rooms {
    commands: Arc<Semaphore>,
    commands_max: u32,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
    wait_max: Duration,
}

/// The room that one parcel takes; given back when dropped.
pub(crate) struct Room {
    _commands: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Rooms {
    pub fn new(config: &LaneConfig) -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(permits as usize));
        Self {
            commands: semaphore(config.queue_commands_max),
            commands_max: config.queue_commands_max,
            bytes: semaphore(config.queue_bytes_max),
            bytes_max: config.queue_bytes_max,
            wait_max: config.submit_wait_max,
        }
    }

    /// Waits for room, first come, first served. A parcel larger than the queue takes all of it: its
    /// sender holds that memory already.
    pub async fn take(&self, acts: &[Act]) -> Result<Room, LaneError> {
        let bytes: usize = acts.iter().map(batch::bytes).sum();
        let commands = clamp(acts.len(), self.commands_max);
        let bytes = clamp(bytes, self.bytes_max);
        let both = async {
            // Always in this order, so that two senders never wait for each other.
            let commands = self.commands.clone().acquire_many_owned(commands).await?;
            let bytes = self.bytes.clone().acquire_many_owned(bytes).await?;
            Ok::<_, tokio::sync::AcquireError>(Room { _commands: commands, _bytes: bytes })
        };
        match timeout(self.wait_max, both).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) => Err(LaneError::Closed),
            Err(_) => Err(LaneError::Overloaded),
        }
    }

    /// Lets nobody in any more, whoever waits included.
    pub fn close(&self) {
        self.commands.close();
        self.bytes.close();
    }
}

/// At least one, so that the queue's length is bounded by the room for commands.
fn clamp(amount: usize, max: u32) -> u32 {
    u32::try_from(amount).unwrap_or(max).clamp(1, max)
}
