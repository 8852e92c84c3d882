//! How processes learn of each other's commits. A notifier tells, beside the transaction and at
//! most 20 times a second; a listener hears, and looks by itself when nobody tells. Neither ever
//! holds up the lane.

use std::time::Duration;

use kukuri_core::{Epoch, Seq};
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::bounds::{self, Expected};
use crate::error::Fault;
use crate::session::{Role, Server, prepare_reader, within};
use crate::store::READ_LIMIT;

const CHANNEL: &str = "cn_relay_feed";
const NOTIFY_INTERVAL: Duration = Duration::from_millis(50);
const NOTIFY_LIMIT: Duration = Duration::from_secs(10);
const RECONNECT_FIRST: Duration = Duration::from_millis(100);

/// What both back ends of the watch need to know.
#[derive(Clone)]
pub(crate) struct Watched {
    pub server: Server,
    pub epoch: Epoch,
    pub heads: watch::Sender<Seq>,
    pub poll_interval: Duration,
}

impl Watched {
    fn expected(&self) -> Expected {
        Expected { epoch: self.epoch, head: *self.heads.borrow() }
    }
}

/// Publishes a head that is durable. Heads come from two sides and never go back.
pub(crate) fn publish(heads: &watch::Sender<Seq>, head: Seq) {
    heads.send_if_modified(|known| {
        let grown = head > *known;
        *known = head.max(*known);
        grown
    });
}

/// Tells other processes of this one's commits: the first at once, then no more often than the
/// interval, and always of the last. A notification that fails costs the listeners a poll.
pub(crate) async fn tell(server: Server, mut commits: watch::Receiver<Seq>) {
    let mut connection = None;
    while commits.changed().await.is_ok() {
        let head = *commits.borrow_and_update();
        let told = within(NOTIFY_LIMIT, "a notification", tell_once(&server, connection, head));
        connection = told.await.ok();
        sleep(NOTIFY_INTERVAL).await;
    }
}

async fn tell_once(
    server: &Server,
    connection: Option<PgConnection>,
    head: Seq,
) -> Result<PgConnection, Fault> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => server.connect(Role::Notifier).await?,
    };
    sqlx::query("SELECT pg_notify($1, $2)")
        .bind(CHANNEL)
        .bind(head.to_string())
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

/// Hears of other processes' commits, for ever. Whatever goes wrong, it begins again at LISTEN:
/// what was said in between is found by looking.
pub(crate) async fn listen(watched: Watched) {
    let mut pause = RECONNECT_FIRST;
    loop {
        if listen_once(&watched, &mut pause).await.is_err() {
            sleep(pause).await;
            pause = (pause * 2).min(watched.poll_interval);
        }
    }
}

async fn listen_once(watched: &Watched, pause: &mut Duration) -> Result<(), Fault> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .after_connect(|connection, _| Box::pin(prepare_reader(connection)))
        .connect_lazy_with(watched.server.options("kukuri listener"));
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    loop {
        look(watched, &mut listener).await?;
        *pause = RECONNECT_FIRST;
        // Most of what is heard is what this process said itself.
        while let Some(head) = hear(watched, &mut listener).await?
            && head <= *watched.heads.borrow()
        {}
    }
}

/// The head that somebody tells of; `None` when nobody did for a while.
async fn hear(watched: &Watched, listener: &mut PgListener) -> Result<Option<Seq>, Fault> {
    match timeout(watched.poll_interval, listener.try_recv()).await {
        Ok(Ok(Some(told))) => Ok(told.payload().parse().ok().map(Seq)),
        // The connection is lost, and with it what was said since.
        Ok(Ok(None)) => Err(Fault::unavailable("the listening connection was lost")),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

async fn look(watched: &Watched, listener: &mut PgListener) -> Result<(), Fault> {
    use sqlx::Acquire;
    let bounds = within(READ_LIMIT, "reading the head", async {
        bounds::begin(listener.acquire().await?, "", watched.expected()).await
    });
    publish(&watched.heads, bounds.await?.feed.head);
    Ok(())
}

/// Looks at regular intervals, where notifications do not arrive.
pub(crate) async fn poll(watched: Watched) {
    let mut connection = None;
    loop {
        connection = poll_once(&watched, connection).await.ok();
        sleep(watched.poll_interval).await;
    }
}

async fn poll_once(
    watched: &Watched,
    connection: Option<PgConnection>,
) -> Result<PgConnection, Fault> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => watched.server.connect(Role::Reader).await?,
    };
    let bounds = bounds::begin(&mut connection, "", watched.expected());
    let bounds = within(READ_LIMIT, "reading the head", bounds).await?;
    publish(&watched.heads, bounds.feed.head);
    Ok(connection)
}
