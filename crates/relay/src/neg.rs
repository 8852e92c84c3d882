//! The work of a reconciliation (NIP-77). What matches is read in pages, of which each is charged for as
//! a question is; the ids are held within bounds that all connections share; and they are compared on
//! threads of their own, a few at a time, so that neither sockets nor live delivery wait for it.

mod share;

use std::sync::Arc;

use kukuri_core::Rejection;
use kukuri_core::admission::Rate;
use kukuri_event::Filter;
use kukuri_store::{Hit, QueryError, Walk};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{spawn_blocking, yield_now};

use crate::address::Sender;
use crate::limits::RelayLimits;
use crate::relay::Relay;
use crate::request::{Ended, refusal};
use share::{Share, Shares};

/// How many comparisons run at once. Each goes through the ids a few times at most: milliseconds.
const COMPARISONS_MAX: usize = 2;
/// A message in hex, with its name and that of the reconciliation, is no larger than what we take
/// ourselves.
const FRAME_BYTES_MAX: usize = 64_000;
/// The library makes none that are smaller.
const FRAME_BYTES_MIN: usize = 4096;
/// What a message has besides: its name, and that of the reconciliation.
const ENVELOPE_BYTES: usize = 512;

/// Why a reconciliation ends by itself. The text is what its client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NegEnded {
    #[error("blocked: this query is too big")]
    TooBig,
    #[error("error: too many reconciliations at once, try again later")]
    Busy,
    #[error("{}", Rejection::RateLimited)]
    RateLimited,
    #[error("invalid: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Failed(Ended),
}

/// What all reconciliations share.
pub(crate) struct NegRoom {
    sessions: Arc<Semaphore>,
    ids: Arc<Semaphore>,
    shares: Arc<Shares>,
    comparisons: Arc<Semaphore>,
    sessions_max: usize,
    frame_bytes: u64,
}

impl NegRoom {
    pub fn new(limits: &RelayLimits) -> Self {
        let frame = limits.message_bytes_max.saturating_sub(ENVELOPE_BYTES) / 2;
        let frame = frame.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX);
        let bounded = |max: usize| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self {
            sessions: bounded(limits.neg_sessions_all_max),
            ids: bounded(limits.neg_ids_all_max),
            shares: Shares::new(limits.neg_ids_per_ip_max),
            comparisons: bounded(COMPARISONS_MAX),
            sessions_max: limits.neg_sessions_all_max.min(Semaphore::MAX_PERMITS),
            frame_bytes: u64::try_from(frame).unwrap_or(u64::MAX),
        }
    }

    /// How many reconciliations are open now.
    pub fn sessions(&self) -> usize {
        self.sessions_max - self.sessions.available_permits()
    }
}

/// What one reconciliation compares, in its order.
#[derive(Debug)]
pub(crate) struct Ids {
    storage: NegentropyStorageVector,
    /// Given back with them, the share first: who sees room in all has room of its own.
    _share: Share,
    _room: [OwnedSemaphorePermit; 2],
}

impl Ids {
    /// Reads what matches now, and gives the first answer.
    pub async fn open(
        relay: &Relay,
        reads: &Semaphore,
        sender: Sender,
        filter: Filter,
        query: Vec<u8>,
    ) -> Result<(Arc<Self>, Vec<u8>), NegEnded> {
        let (room, limits) = (&relay.neg, &relay.config.limits);
        let busy = |_| NegEnded::Busy;
        let place = Arc::clone(&room.sessions).try_acquire_owned().map_err(busy)?;
        let mut held = Arc::clone(&room.ids).try_acquire_many_owned(0).map_err(busy)?;
        let mut share = Share::of(&room.shares, sender);
        let mut walk = Walk::new(filter, relay.now().seconds(), limits.scan_rows_max);
        let (mut storage, mut count) = (NegentropyStorageVector::new(), 0);
        while let Some(page) = next_page(&mut walk, relay, reads).await? {
            // The first page was paid for with the question.
            if count > 0 && relay.may_look(sender) == Rate::Exceeded {
                return Err(NegEnded::RateLimited);
            }
            count += page.len();
            if count > limits.neg_ids_max {
                return Err(NegEnded::TooBig);
            }
            share.grow(page.len()).map_err(|_| NegEnded::Busy)?;
            let more = u32::try_from(page.len()).map_err(|_| NegEnded::TooBig)?;
            held.merge(Arc::clone(&room.ids).try_acquire_many_owned(more).map_err(busy)?);
            page.iter().try_for_each(|hit| insert(&mut storage, hit)).map_err(unreadable)?;
            yield_now().await;
        }
        let unsorted = Self { storage, _share: share, _room: [place, held] };
        compare(room, move |frame_bytes| {
            let mut ids = unsorted;
            ids.storage.seal()?;
            let answer = Negentropy::borrowed(&ids.storage, frame_bytes)?.reconcile(&query)?;
            Ok((Arc::new(ids), answer))
        })
        .await
    }

    pub async fn further(
        self: Arc<Self>,
        relay: &Relay,
        query: Vec<u8>,
    ) -> Result<(Arc<Self>, Vec<u8>), NegEnded> {
        compare(&relay.neg, move |frame_bytes| {
            let answer = Negentropy::borrowed(&self.storage, frame_bytes)?.reconcile(&query)?;
            Ok((self, answer))
        })
        .await
    }
}

async fn next_page(
    walk: &mut Walk,
    relay: &Relay,
    reads: &Semaphore,
) -> Result<Option<Vec<Hit>>, NegEnded> {
    let _permit = reads.acquire().await;
    walk.next(&*relay.store).await.map_err(|error| match error {
        QueryError::TooBroad { .. } => NegEnded::TooBig,
        error => NegEnded::Failed(refusal(&error)),
    })
}

fn insert(storage: &mut NegentropyStorageVector, hit: &Hit) -> Result<(), negentropy::Error> {
    // What is older than time itself is as old as it.
    let created_at = u64::try_from(hit.created_at.0).unwrap_or(0);
    storage.insert(created_at, Id::from_byte_array(*hit.id.as_bytes()))
}

/// Works on a thread of its own when it is its turn. What fails there is what the client has sent.
async fn compare<T: Send + 'static>(
    room: &NegRoom,
    work: impl FnOnce(u64) -> Result<T, negentropy::Error> + Send + 'static,
) -> Result<T, NegEnded> {
    let turn = Arc::clone(&room.comparisons).acquire_owned().await;
    let frame_bytes = room.frame_bytes;
    let done = spawn_blocking(move || {
        // The turn lasts as long as the work does, whether or not anybody waits for it.
        let _turn = turn;
        work(frame_bytes)
    })
    .await;
    done.map_err(|_| NegEnded::Failed(Ended::Panicked))?.map_err(unreadable)
}

fn unreadable(error: negentropy::Error) -> NegEnded {
    NegEnded::Unreadable(error.to_string())
}
