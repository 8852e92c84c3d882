//! A store that fails on command, and short words for what tests do to a lane.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kukuri_core::{
    Act, Admitted, Command, Decision, Dedupe, FeedRow, ReadSet, TopicId, UnixMillis,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store, StoreError};
use tokio::sync::{Semaphore, watch};

pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

/// When a try of a batch fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing was written.
    Before(StoreError),
    /// Everything was written, and the caller is not told: the outcome is unknown.
    After(StoreError),
}

/// A model whose `apply` can be held back and made to fail.
pub struct Rig {
    model: Model,
    /// By the number of the call, from nought.
    faults: Mutex<HashMap<u64, Fault>>,
    reopen_faults: Mutex<Vec<StoreError>>,
    /// One permit lets one call through.
    gate: Semaphore,
    calls: watch::Sender<u64>,
    batches: Mutex<Vec<Arc<[Command]>>>,
    /// Set by an `Io` error until the store is opened again: a lane must not ask before.
    failed: Mutex<bool>,
}

impl Rig {
    pub fn open() -> Arc<Self> {
        let rig = Self::closed();
        rig.let_through(Semaphore::MAX_PERMITS / 2);
        rig
    }

    /// Every `apply` waits until it is let through.
    pub fn closed() -> Arc<Self> {
        Arc::new(Self {
            model: Model::default(),
            faults: Mutex::default(),
            reopen_faults: Mutex::default(),
            gate: Semaphore::new(0),
            calls: watch::Sender::new(0),
            batches: Mutex::default(),
            failed: Mutex::default(),
        })
    }

    pub fn let_through(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    pub fn fail(&self, call: u64, fault: Fault) {
        self.faults.lock().unwrap().insert(call, fault);
    }

    pub fn fail_reopen(&self, error: StoreError) {
        self.reopen_faults.lock().unwrap().push(error);
    }

    /// How many tries have begun.
    pub fn calls(&self) -> u64 {
        *self.calls.borrow()
    }

    /// The batches that were tried, in order.
    pub fn batches(&self) -> Vec<Arc<[Command]>> {
        self.batches.lock().unwrap().clone()
    }

    pub fn batch_sizes(&self) -> Vec<usize> {
        self.batches().iter().map(|batch| batch.len()).collect()
    }

    /// Waits until a try has begun and is held back.
    pub async fn called(&self, calls: u64) {
        let begun = |count: &u64| *count >= calls;
        self.calls.subscribe().wait_for(begun).await.unwrap();
    }

    pub async fn rows(&self) -> Vec<FeedRow> {
        let start = self.model.bounds().await.unwrap().start();
        self.model.feed(start, usize::MAX).await.unwrap()
    }

    pub async fn dedupe(&self, event: &Admitted) -> Option<Dedupe> {
        let id = event.event().id();
        let mut needs = ReadSet::default();
        needs.events.insert(id);
        self.model.facts(needs).await.unwrap().dedupe[&id]
    }
}

#[async_trait]
impl Double for Rig {
    fn behind(&self) -> &dyn Store {
        &self.model
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.batches.lock().unwrap().push(Arc::clone(&batch));
        let call = self.calls();
        self.calls.send_replace(call + 1);
        self.gate.acquire().await.unwrap().forget();
        assert!(!*self.failed.lock().unwrap(), "a failed store was asked to write");
        let fault = self.faults.lock().unwrap().remove(&call);
        if let Some(Fault::Before(StoreError::Io(_)) | Fault::After(StoreError::Io(_))) = fault {
            *self.failed.lock().unwrap() = true;
        }
        match fault {
            None => self.model.apply(batch).await,
            Some(Fault::Before(error)) => Err(error),
            Some(Fault::After(error)) => {
                let _unheard = self.model.apply(batch).await?;
                Err(error)
            }
        }
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        match self.reopen_faults.lock().unwrap().pop() {
            Some(error) => Err(error),
            None => {
                *self.failed.lock().unwrap() = false;
                Ok(())
            }
        }
    }
}

pub fn clock() -> kukuri_store::Clock {
    Arc::new(|| UnixMillis::from(NOW))
}

/// A lane on a model that carries `kukuri:global`. Setting that up is not counted as a call.
pub async fn lane(rig: &Arc<Rig>, config: LaneConfig) -> Lane {
    let at = UnixMillis::from(NOW);
    let act = carry();
    rig.model.apply([Command { at, act }].into()).await.unwrap();
    let store: Arc<dyn Store> = rig.clone();
    Lane::start(store, clock(), config)
}

pub fn carry() -> Act {
    Act::carry(TopicId::global(), "global")
}

pub fn event(kind: u16, nth: i64) -> Admitted {
    let draft = Draft::new(kind, UnixSeconds(NOW.0 - 3600))
        .tag("t", TopicId::global())
        .content(nth.to_string());
    Author::numbered(1).admit(&draft, NOW)
}

pub fn note(nth: i64) -> Admitted {
    event(1, nth)
}

pub fn notes(count: i64) -> Vec<Admitted> {
    (0..count).map(note).collect()
}

pub fn publish(event: &Admitted) -> Act {
    Act::Publish(event.clone())
}

pub fn publish_all(events: &[Admitted]) -> Vec<Act> {
    events.iter().map(publish).collect()
}

pub fn ids(events: &[Admitted]) -> Vec<EventId> {
    events.iter().map(|event| event.event().id()).collect()
}

pub fn away() -> StoreError {
    StoreError::Unavailable("away".into())
}
