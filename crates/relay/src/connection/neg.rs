//! The reconciliations of one connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable};

use super::{Connection, Done};
use crate::neg::{Ids, NegEnded};
use crate::relay::add_one;
use crate::reply;
use crate::request::Ended;
use crate::session::Reconcile;

/// What was compared, and the answer; or why it cannot be.
pub(super) type Compared = Result<(Arc<Ids>, Vec<u8>), NegEnded>;

pub(super) struct RunningNeg {
    /// Names it, also when another one has taken its name on the wire.
    key: NegKey,
    /// None while they are being compared.
    ids: Option<Arc<Ids>>,
    pub(super) task: AbortHandle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NegKey(u64);

impl Connection {
    pub(super) fn reconcile(&mut self, work: Reconcile) {
        let (relay, reads) = (Arc::clone(&self.relay), Arc::clone(&self.reads));
        let sender = self.sender;
        match work {
            Reconcile::Forget(name) => {
                if let Some(running) = self.negs.remove(name.as_str()) {
                    running.task.abort();
                }
            }
            Reconcile::Open { sub, filter, query } => {
                self.negs_begun += 1;
                let key = NegKey(self.negs_begun);
                let work = async move { Ids::open(&relay, &reads, sender, *filter, query).await };
                self.compare(&sub, key, work);
            }
            Reconcile::Further { sub, query } => {
                let running = self.negs.get_mut(sub.as_str());
                let found = running.and_then(|running| Some((running.key, running.ids.take()?)));
                // It is the client's turn only when there is something to compare.
                let Some((key, ids)) = found else { return };
                self.compare(&sub, key, async move { ids.further(&relay, query).await });
            }
        }
    }

    /// Works for a reconciliation. However it ends, the client hears of it.
    fn compare(
        &mut self,
        name: &str,
        key: NegKey,
        work: impl Future<Output = Compared> + Send + 'static,
    ) {
        add_one(&self.relay.counters.neg_messages);
        let (work, task) = abortable(AssertUnwindSafe(work).catch_unwind());
        let panicked = Err(NegEnded::Failed(Ended::Panicked));
        let answered: Box<str> = name.into();
        let done = work.map(move |ended| match ended {
            Ok(ended) => Done::Reconciled(answered, key, ended.unwrap_or(panicked)),
            Err(_aborted) => Done::Settled,
        });
        self.work.push(done.boxed());
        self.negs.insert(name.into(), RunningNeg { key, ids: None, task });
    }

    /// What one is about has been compared, or cannot be.
    pub(super) fn reconciled(&mut self, name: &str, key: NegKey, answer: Compared) {
        let Some(running) = self.negs.get_mut(name).filter(|running| running.key == key) else {
            return;
        };
        match answer {
            Ok((ids, answer)) => {
                running.ids = Some(ids);
                self.session.reconciled(name, self.relay.now());
                self.outbox.reply(reply::neg_msg(name, &answer));
            }
            Err(why) => {
                self.negs.remove(name);
                self.session.neg_failed(name);
                self.outbox.reply(reply::neg_err(name, &why.to_string()));
            }
        }
    }
}
