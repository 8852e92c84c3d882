use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kukuri_core::{Act, Admitted, Seq};
use kukuri_event::EventId;
use kukuri_store::{Clock, Store};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::counters::Counters;
use crate::line::Parcel;
use crate::room::Rooms;
use crate::shared::Shared;
use crate::sightings::Tally;
use crate::worker::Worker;
use crate::{
    Answer, DrainError, Ephemerals, Health, LaneConfig, LaneError, LaneStats, Ticket, Tickets,
};

/// The way into a store. Shared by all doors of a process; one task behind it does the writing.
/// Dropping it stops that task at once: what is not answered then is answered with
/// [`LaneError::Closed`].
pub struct Lane {
    rooms: Rooms,
    queue: mpsc::Sender<Parcel>,
    shared: Arc<Shared>,
    ephemerals: broadcast::Sender<Admitted>,
    health: watch::Receiver<Health>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Lane {
    /// Starts the lane's task on the current runtime.
    pub fn start(store: Arc<dyn Store>, clock: Clock, config: LaneConfig) -> Self {
        // A parcel takes room for one command at least, so the channel never has to refuse one.
        let (queue, parcels) = mpsc::channel(config.queue_commands_max as usize);
        let ephemerals = broadcast::Sender::new(config.ephemerals_max);
        let (health_sender, health) = watch::channel(Health::Running);
        let shared = Arc::new(Shared {
            store,
            clock,
            counters: Arc::new(Counters::default()),
            sightings: Mutex::new(Tally::new(config.sightings_max)),
            closing: CancellationToken::new(),
        });
        let worker =
            Worker::new(Arc::clone(&shared), config, parcels, ephemerals.clone(), health_sender);
        Self {
            rooms: Rooms::new(&config),
            queue,
            shared,
            ephemerals,
            health,
            worker: Mutex::new(Some(tokio::spawn(worker.run()))),
        }
    }

    /// Queues a command. Waits for room, and gives up with [`LaneError::Overloaded`].
    pub async fn submit(&self, act: Act) -> Result<Ticket, LaneError> {
        let (parcel, answers) = self.parcel(vec![act]).await?;
        self.push(parcel)?;
        Ok(Ticket::new(answers))
    }

    /// Queues commands that will run in this order, with one answer channel for all of them. They
    /// share batches with whatever else waits; other senders' commands may come between them only
    /// where a batch is full.
    pub async fn submit_all(&self, acts: Vec<Act>) -> Result<Tickets, LaneError> {
        let size = acts.len();
        let (parcel, answers) = self.parcel(acts).await?;
        self.push(parcel)?;
        Ok(Tickets::new(answers, size))
    }

    /// Queues a command and waits for its answer.
    pub async fn run(&self, act: Act) -> Answer {
        self.submit(act).await?.await
    }

    async fn parcel(
        &self,
        acts: Vec<Act>,
    ) -> Result<(Parcel, tokio::sync::oneshot::Receiver<Vec<Answer>>), LaneError> {
        let room = self.rooms.take(&acts).await?;
        Ok(Parcel::new(acts, room))
    }

    fn push(&self, parcel: Parcel) -> Result<(), LaneError> {
        self.queue.try_send(parcel).map_err(|error| match error {
            mpsc::error::TrySendError::Closed(_) => LaneError::Closed,
            mpsc::error::TrySendError::Full(_) => {
                unreachable!("who has room for a command has a place in the queue")
            }
        })
    }

    /// Counts arrivals of events that a door answered by itself because they were known.
    pub fn sighted(&self, events: impl IntoIterator<Item = EventId>) {
        self.shared.sight(events, (self.shared.clock)());
    }

    /// The head of the feed as it grows, whoever writes.
    pub fn heads(&self) -> watch::Receiver<Seq> {
        self.shared.store.heads()
    }

    /// Ephemeral events from now on, each after its batch, in order.
    pub fn ephemerals(&self) -> Ephemerals {
        let counters = Arc::clone(&self.shared.counters);
        Ephemerals::new(self.ephemerals.subscribe(), counters)
    }

    /// Whether the lane can commit. The channel closes when the lane's task has ended.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    pub fn stats(&self) -> LaneStats {
        self.shared.counters.stats()
    }

    /// Takes nothing more, finishes what is queued, writes the sightings, and ends. What is left
    /// after `wait_max` is answered with [`LaneError::Closed`].
    pub async fn drain(&self, wait_max: Duration) -> Result<LaneStats, DrainError> {
        self.rooms.close();
        self.shared.closing.cancel();
        if let Some(mut worker) = self.take_worker() {
            match timeout(wait_max, &mut worker).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(DrainError::Panicked),
                Err(_) => {
                    worker.abort();
                    return Err(DrainError::Late(wait_max));
                }
            }
        }
        Ok(self.stats())
    }

    fn take_worker(&self) -> Option<JoinHandle<()>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(worker) = self.take_worker() {
            worker.abort();
        }
    }
}
