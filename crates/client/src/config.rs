use std::sync::Arc;
use std::time::Duration;

use crate::Backoff;

/// How many events may wait for their OK. A publish beyond that waits for its turn.
pub const PUBLISHES_MAX: usize = 256;
/// How many subscriptions may be open. One more is refused.
pub const SUBSCRIPTIONS_MAX: usize = 256;
/// How many ids of shown events each subscription remembers. The oldest are forgotten first.
pub const SEEN_IDS_MAX: usize = 16_384;
/// How far before the newest known event a relay without cursors is asked again.
pub const OVERLAP_SECONDS: i64 = 600;
/// The largest message that is received. A larger one ends the connection.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Which received events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Only those whose id and signature hold.
    Signatures,
    /// All that have the right shape: the relay is trusted to have looked.
    Shape,
}

/// What a relay asks in order to know who is there (NIP-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// For the tag `challenge`.
    pub text: &'a str,
    /// For the tag `relay`: the address that was given to [`crate::Client::connect`].
    pub url: &'a str,
}

/// Makes the signed event of kind 22242 that answers a challenge, as JSON; `None` to stay unknown.
/// Called by the client's task: it must not block.
pub type Signer = Arc<dyn Fn(Challenge<'_>) -> Option<String> + Send + Sync>;

/// How a client behaves.
#[derive(Clone)]
pub struct ClientConfig {
    /// For one attempt, from the name's lookup to the upgrade.
    pub connect_wait_max: Duration,
    /// From the call to the answer, however many connections it takes.
    pub publish_wait_max: Duration,
    /// The pauses between attempts to connect.
    pub backoff: Backoff,
    /// A relay that was silent for so long is pinged; after twice that it counts as gone.
    pub ping_interval: Duration,
    /// How many events may wait for the reader of one subscription.
    pub items_max: usize,
    pub check: Check,
    pub signer: Option<Signer>,
}

/// Longer waits are no waits, and times far beyond cannot be told.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl ClientConfig {
    /// With waits that can be added to any time.
    pub(crate) fn bounded(self) -> Self {
        Self {
            connect_wait_max: self.connect_wait_max.min(WAIT_MAX),
            publish_wait_max: self.publish_wait_max.min(WAIT_MAX),
            ping_interval: self.ping_interval.min(WAIT_MAX),
            ..self
        }
    }

    pub const STANDARD: Self = Self {
        connect_wait_max: Duration::from_secs(10),
        publish_wait_max: Duration::from_secs(30),
        backoff: Backoff::STANDARD,
        ping_interval: Duration::from_secs(30),
        items_max: 1024,
        check: Check::Signatures,
        signer: None,
    };
}
