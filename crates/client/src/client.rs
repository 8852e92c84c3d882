use std::sync::Arc;
use std::time::Duration;

use kukuri_event::{Event, EventId, Filter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{PUBLISHES_MAX, SUBSCRIPTIONS_MAX};
use crate::state::ITEMS_RESERVED;
use crate::task::{Command, Task};
use crate::{ClientConfig, ConnectError, Item, PublishError, Published, SubscribeError, socket};

/// How many calls may wait for the task to take them. One more waits for its turn.
const COMMANDS_MAX: usize = 64;
/// How long [`Client::close`] lets the socket take what is queued.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);

/// A relay, over a connection that mends itself. Dropping it ends its task and its subscriptions.
pub struct Client {
    commands: mpsc::Sender<Command>,
    publishes: Arc<Semaphore>,
    subscriptions: Arc<Semaphore>,
    publish_wait_max: Duration,
    items_max: usize,
    task: JoinHandle<()>,
}

impl Client {
    /// Connects to a relay on the current runtime. A relay that cannot be reached in the beginning
    /// is an error; later the client tries until it is closed.
    pub async fn connect(url: &str, config: ClientConfig) -> Result<Self, ConnectError> {
        let config = config.bounded();
        let socket = socket::dial(url.to_owned(), config.connect_wait_max).await?;
        let (commands, orders) = mpsc::channel(COMMANDS_MAX);
        let (publish_wait_max, items_max) = (config.publish_wait_max, config.items_max.max(1));
        let task = tokio::spawn(Task::new(url.to_owned(), config, orders).run(socket));
        Ok(Self {
            commands,
            publishes: Arc::new(Semaphore::new(PUBLISHES_MAX)),
            subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
            publish_wait_max,
            items_max,
            task,
        })
    }

    /// Publishes an event, and waits for the relay's answer.
    pub async fn publish(&self, event: &Event) -> Result<Published, PublishError> {
        self.send(event.id(), event.to_json()).await
    }

    /// Publishes a signed event as it is written.
    pub async fn publish_json(&self, json: &str) -> Result<Published, PublishError> {
        self.send(Event::parse(json)?.id(), json.to_owned()).await
    }

    /// Asks for everything that matches one of the filters, stored and to come.
    pub async fn subscribe(&self, filters: Vec<Filter>) -> Result<Subscription, SubscribeError> {
        if filters.is_empty() {
            return Err(SubscribeError::NoFilters);
        }
        let permit = Arc::clone(&self.subscriptions).try_acquire_owned();
        let permit = permit.map_err(|_| SubscribeError::TooMany)?;
        let (sender, items) = mpsc::channel(self.items_max.saturating_add(ITEMS_RESERVED));
        let command = Command::Subscribe { filters, sender, permit };
        // The task takes commands whatever the relay does, so this waits for nobody else.
        self.commands.send(command).await.map_err(|_| SubscribeError::ClientClosed)?;
        Ok(Subscription { items })
    }

    /// Says farewell to the relay. Publishes without an answer fail, and subscriptions end.
    pub async fn close(mut self) {
        let (done, is_done) = oneshot::channel();
        let farewell = async {
            if self.commands.send(Command::Close { done }).await.is_ok() {
                let _ = is_done.await;
            }
            let _ = (&mut self.task).await;
        };
        // Whatever is left after that is aborted.
        let _ = timeout(CLOSE_WAIT_MAX, farewell).await;
    }

    async fn send(&self, id: EventId, json: String) -> Result<Published, PublishError> {
        let (begun, wait_max) = (Instant::now(), self.publish_wait_max);
        let queued = timeout_at(begun + wait_max, self.enqueue(id, json, begun)).await;
        let answer = queued.map_err(|_| PublishError::Unanswered { id, waited: wait_max })?;
        // The task answers in time, by itself if the relay does not.
        let gone = PublishError::ClientClosed { id };
        answer.ok_or_else(|| gone.clone())?.await.map_err(|_| gone)?
    }

    /// `None` if the task has ended.
    async fn enqueue(&self, id: EventId, json: String, begun: Instant) -> Option<Answer> {
        let permit: OwnedSemaphorePermit =
            Arc::clone(&self.publishes).acquire_owned().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let command = Command::Publish { id, json, begun, answer, permit };
        self.commands.send(command).await.ok()?;
        Some(answered)
    }
}

type Answer = oneshot::Receiver<Result<Published, PublishError>>;

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What matches some filters, in order. Dropping it closes it on the relay.
pub struct Subscription {
    items: mpsc::Receiver<Item>,
}

impl Subscription {
    /// The next item; `None` after [`Item::Closed`], or when the client has ended. Cancelling it
    /// loses nothing.
    pub async fn next(&mut self) -> Option<Item> {
        let item = self.items.recv().await;
        if let Some(Item::Closed(_)) = item {
            self.items.close();
        }
        item
    }

    /// How many items wait to be taken.
    pub fn waiting(&self) -> usize {
        self.items.len()
    }

    /// Ends it. The same as dropping it.
    pub fn close(self) {}
}
