//! A reconciliation under way, window by window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kukuri_client::Prefix;
use kukuri_client::sync::{Differences, Peer, ReconcileError, SyncError};
use kukuri_core::NodeTopic;
use kukuri_core::backfill::{Covered, Window};
use kukuri_event::EventId;
use tokio::time::{Instant, sleep, sleep_until};

use super::fault::Fault;
use super::known;
use super::pulled::{Ended, Pulled};
use super::puller::{Puller, Watch};

/// The pause after which a relay that wants it slower is asked again, about less. Where there is no less, it
/// doubles so many times, and the relay may want it so often in a row.
const SLOWER_PAUSE: Duration = Duration::from_secs(1);
const SLOWER_DOUBLINGS_MAX: u32 = 4;
const SLOWER_TRIES_MAX: u32 = 12;
/// How often one reconciliation is made smaller for the relay. A relay that finds everything too big would be
/// asked about every second there was.
pub(super) const HALVINGS_MAX: u32 = 1024;

pub(super) struct Errand<'a> {
    pub puller: &'a Puller,
    pub peer: Peer,
    pub from: Arc<str>,
    pub topic: &'a NodeTopic,
    pub watch: &'a Watch,
    /// `None` is never.
    pub ends_at: Option<Instant>,
    /// How often the relay has found a window too big. Those that we find too big ourselves are not its fault.
    pub halvings: u32,
    /// How often in a row the relay has wanted it slower when there was no less to ask for.
    pub slower: u32,
}

/// What a comparison came to.
struct Compared {
    /// The ids that the other node has and we have not, as far as they are known.
    needed: Vec<EventId>,
    rest: Rest,
}

/// What has to be done about a window yet.
enum Rest {
    Nothing,
    Again,
    Parts([Window; 2]),
    /// It can neither be compared nor be made smaller.
    LeftOut,
}

impl Rest {
    fn parts(parts: Option<[Window; 2]>) -> Self {
        parts.map_or(Self::LeftOut, Self::Parts)
    }
}

impl Errand<'_> {
    /// Goes on where the last one with this relay had to end, and says where this one did.
    pub async fn run(&mut self, pulled: &mut Pulled) -> Result<(), Fault> {
        let Puller { clock, memory, .. } = self.puller;
        let (began_at, topic) = (clock().seconds(), &self.topic.topic_id);
        let windows = self.puller.windows(self.topic).await?;
        let spared = memory.covered(&self.from, topic);
        let mut left: VecDeque<Window> = match spared {
            Some(covered) => covered.spare(windows, began_at).into(),
            None => windows.into(),
        };
        let done = self.go_through(&mut left, pulled).await;
        memory.cover(&self.from, topic, Covered::by(began_at, spared, &left));
        done?;
        self.judge(pulled)
    }

    async fn go_through(
        &mut self,
        left: &mut VecDeque<Window>,
        pulled: &mut Pulled,
    ) -> Result<(), Fault> {
        while let Some(window) = left.front().cloned() {
            let halted = self.halted();
            let Compared { needed, rest } = tokio::select! {
                compared = self.compare(&window, pulled) => compared?,
                why = halted => {
                    pulled.ended = why;
                    return Ok(());
                }
            };
            self.fetch(&window, needed, pulled).await?;
            if pulled.ended != Ended::Done {
                return Ok(());
            }
            left.pop_front();
            match rest {
                Rest::Nothing => pulled.windows += 1,
                Rest::Again => left.push_front(window),
                Rest::Parts(parts) => {
                    parts.into_iter().rev().for_each(|part| left.push_front(part));
                }
                // What is older than a second that is too full is wanted nevertheless.
                Rest::LeftOut => pulled.crowded += 1,
            }
        }
        Ok(())
    }

    /// Whether it has come to what it was for.
    fn judge(&self, pulled: &Pulled) -> Result<(), Fault> {
        let is_late = self.ends_at.is_some_and(|at| at <= Instant::now());
        let &Pulled { ended, accepted, windows, crowded, crowded_here, .. } = pulled;
        match ended {
            Ended::OverBudget if is_late && accepted == 0 && windows == 0 => {
                Err(Fault::Late(self.puller.allowed.time_max))
            }
            Ended::Done if crowded > crowded_here => Err(Fault::Crowded(crowded)),
            Ended::Done if crowded > 0 => Err(Fault::CrowdedHere(crowded)),
            _ => Ok(()),
        }
    }

    /// Waits until it is to end, whatever the relay does.
    pub(super) fn halted(&self) -> impl Future<Output = Ended> + Send + use<> {
        let (stop, ends_at) = (self.watch.stop.clone(), self.ends_at);
        let late = async move {
            match ends_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        async move {
            tokio::select! {
                () = stop.cancelled() => Ended::Interrupted,
                () = late => Ended::OverBudget,
            }
        }
    }

    async fn compare(&mut self, window: &Window, pulled: &mut Pulled) -> Result<Compared, Fault> {
        self.watch.bar.set_message("comparing");
        let Puller { store, clock, own: bounds, .. } = self.puller;
        let (filter, now) = (window.filter(), clock().seconds());
        let own = known::own(&**store, filter.clone(), now, *bounds).await;
        let Some(own) = own.context("cannot read our own events")? else {
            let rest = Rest::parts(window.halves());
            pulled.crowded_here += u64::from(matches!(rest, Rest::LeftOut));
            return Ok(Compared { needed: Vec::new(), rest });
        };
        let (compared, before) = (own.len() as u64, self.peer.traffic().bytes());
        let mut differences = Differences::default();
        let reconciled = self.peer.reconcile(&filter, own, &mut differences).await;
        pulled.comparing_bytes += self.peer.traffic().bytes() - before;
        let rest = match reconciled {
            Ok(()) => {
                self.slower = 0;
                pulled.compared += compared;
                Rest::Nothing
            }
            Err(SyncError::Refused(why)) if why.prefix() == Prefix::RateLimited => {
                self.slower(window, SyncError::Refused(why)).await?
            }
            Err(error) => {
                let needed = Vec::new();
                return Ok(Compared { needed, rest: self.smaller(window, error)? });
            }
        };
        pulled.only_here += differences.have as u64;
        pulled.named += differences.need.len() as u64;
        Ok(Compared { needed: differences.need, rest })
    }

    /// Waits for a relay that wants it slower. How much it tells before it does is its own business: to ask the
    /// same again may be in vain for ever, and so it is asked about less. What it has told by then is known.
    async fn slower(&mut self, window: &Window, error: SyncError) -> Result<Rest, Fault> {
        if let Some(parts) = window.halves() {
            sleep(SLOWER_PAUSE).await;
            return Ok(Rest::Parts(parts));
        }
        if self.slower >= SLOWER_TRIES_MAX {
            return Err(error.into());
        }
        sleep(SLOWER_PAUSE * 2_u32.pow(self.slower.min(SLOWER_DOUBLINGS_MAX))).await;
        self.slower += 1;
        Ok(Rest::Again)
    }

    /// What to ask about in place of a window that the relay finds too big.
    fn smaller(&mut self, window: &Window, error: SyncError) -> Result<Rest, Fault> {
        let rest = match error {
            SyncError::TooBig(_) | SyncError::Reconcile(ReconcileError::TooMany) => {
                Rest::parts(window.halves())
            }
            // A relay may take fewer values in a filter than others do.
            SyncError::Refused(why) if why.prefix() == Prefix::Invalid => {
                let parts = window.half_kinds();
                Rest::Parts(parts.ok_or(SyncError::Refused(why))?)
            }
            error => return Err(error.into()),
        };
        self.halvings += 1;
        if self.halvings >= HALVINGS_MAX {
            return Err(Fault::TooLittle);
        }
        Ok(rest)
    }
}
