//! How far each generation of a consumer is, and whose work it is: rows beside the effects, changed in
//! their transactions.

mod acts;
mod hold;
mod overview;
mod schema;
mod view;

use std::time::Duration;

use crate::{ConsumerName, DeskError, Home};

pub(crate) use hold::{CAREFUL_ROWS, Care, FEED_WINDOW, Hold, Mark, STATE_WINDOW};
pub(crate) use schema::is_there;
pub use view::{Active, GenerationState, Parked, Role, Wish};
pub(crate) use view::{View, digest_of_row};

/// The ledger of one consumer.
#[derive(Clone)]
pub(crate) struct Ledger {
    pub home: Home,
    name: ConsumerName,
    lease_ms: i64,
}

impl Ledger {
    /// Makes the tables that are missing. For the time of a lease nobody else works on a generation after the
    /// last word of who does, on the database's clock.
    pub async fn open(home: Home, lease: Duration) -> Result<Self, DeskError> {
        let name = home.name();
        let mut writing = home.write().await?;
        let desk = writing.desk();
        schema::lock(desk).await?;
        schema::migrate(desk).await?;
        desk.execute(
            "INSERT INTO consumer_states (consumer, active, wish) VALUES ($1, NULL, 1)
             ON CONFLICT (consumer) DO NOTHING",
            vec![name.as_str().into()],
        )
        .await?;
        writing.commit().await?;
        if let Err(error) = overview::show(&home).await {
            tracing::warn!(consumer = %name, %error, "cn_relay.consumer_offsets does not show this consumer");
        }
        Ok(Self::of(home, lease))
    }

    /// The ledger of tables that are there; changes nothing.
    pub async fn existing(home: Home, lease: Duration) -> Result<Self, DeskError> {
        let mut snapshot = home.read().await?;
        schema::check(snapshot.desk()).await?;
        snapshot.end().await?;
        Ok(Self::of(home, lease))
    }

    fn of(home: Home, lease: Duration) -> Self {
        let lease_ms = lease.as_millis().try_into().unwrap_or(i64::MAX);
        Self { name: home.name(), home, lease_ms }
    }
}

/// A number that a column holds and the program cannot make sense of.
fn strange(what: &str, value: i64) -> DeskError {
    DeskError::Broken(format!("a column says {what} {value}: run the program that wrote it"))
}
