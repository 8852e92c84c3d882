//! Reconciliations (NIP-77): which are open on a connection, and whose turn it is in each.

use kukuri_core::admission::Rate;
use kukuri_core::{Rejection, TopicId, UnixMillis};
use kukuri_event::{Filter, Values};

use super::{Charge, Output, Session, Surroundings, check_shape, name_global};
use crate::limits::RelayLimits;
use crate::message::{NegMessage, SubId};
use crate::reply;

/// What is to be done for a reconciliation. The answer is for [`Session::reconciled`].
#[derive(Debug, PartialEq, Eq)]
pub enum Reconcile {
    /// Compare what matches the filter now.
    Open { sub: SubId, filter: Box<Filter>, query: Vec<u8> },
    /// Go on with what was found when it was opened.
    Further { sub: SubId, query: Vec<u8> },
    /// Nothing more is wanted of it.
    Forget(SubId),
}

/// One that is open.
pub(super) struct Neg {
    topics: Values<TopicId>,
    opened_at: UnixMillis,
    turn: Turn,
}

enum Turn {
    /// The client waits for us.
    Ours,
    Theirs {
        since: UnixMillis,
    },
}

/// Why one is closed when its time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Overdue {
    Silent,
    Old,
}

impl Overdue {
    fn text(self) -> &'static str {
        match self {
            Self::Silent => "closed: you took too long to respond!",
            Self::Old => "closed: this reconciliation has lasted too long, open another one",
        }
    }
}

impl Neg {
    /// When its time has come, and why then. Our own turn is never the longer one.
    fn closes_at(&self, limits: &RelayLimits) -> Option<(UnixMillis, Overdue)> {
        let Turn::Theirs { since } = self.turn else { return None };
        let silent_at = since.saturating_add(limits.neg_idle_max);
        let old_at = self.opened_at.saturating_add(limits.neg_lifetime_max);
        Some((silent_at, Overdue::Silent).min((old_at, Overdue::Old)))
    }
}

impl Session {
    pub(super) fn neg(&mut self, message: NegMessage, around: &Surroundings<'_>) -> Vec<Output> {
        match message {
            NegMessage::Open { sub, filter, query } => self.neg_open(sub, *filter, query, around),
            NegMessage::Msg { sub, query } => self.neg_further(sub, query, around),
            NegMessage::Close(sub) => self.neg_forget(&sub),
        }
    }

    /// The work on a reconciliation has its answer; it is the client's turn.
    pub fn reconciled(&mut self, sub: &str, now: UnixMillis) {
        if let Some(neg) = self.negs.get_mut(sub) {
            neg.turn = Turn::Theirs { since: now };
        }
    }

    /// A reconciliation cannot go on, and nothing is left of it.
    pub fn neg_failed(&mut self, sub: &str) {
        self.negs.remove(sub);
    }

    fn neg_open(
        &mut self,
        sub: SubId,
        filter: Filter,
        query: Vec<u8>,
        around: &Surroundings<'_>,
    ) -> Vec<Output> {
        // As with subscriptions, a new one under an old name takes its place.
        let mut outputs = self.neg_forget(&sub);
        let mut filters = vec![filter];
        let shape = check_shape(&sub, &filters, None, around);
        name_global(&mut filters, around);
        let checked = shape.and_then(|()| self.neg_check(&filters, around));
        match (checked, filters.pop()) {
            (Ok(topics), Some(filter)) => {
                self.negs
                    .insert(sub.clone(), Neg { topics, opened_at: around.now, turn: Turn::Ours });
                let filter = Box::new(filter);
                outputs.push(Output::Reconcile(Reconcile::Open { sub, filter, query }));
            }
            (Err(why), _) => {
                outputs.extend(self.challenge_if(&why));
                outputs.push(Output::Send(reply::neg_err(&sub, &why)));
            }
            (Ok(_), None) => unreachable!("there is one filter"),
        }
        outputs
    }

    fn neg_check(
        &self,
        filters: &[Filter],
        around: &Surroundings<'_>,
    ) -> Result<Values<TopicId>, String> {
        let max = around.limits.neg_sessions_max;
        if self.negs.len() >= max {
            return Err(format!("error: too many reconciliations, at most {max} are open at once"));
        }
        self.check(filters, None, around).map(|(topics, _)| topics)
    }

    fn neg_further(
        &mut self,
        sub: SubId,
        query: Vec<u8>,
        around: &Surroundings<'_>,
    ) -> Vec<Output> {
        if (around.charge)(Charge::Request) == Rate::Exceeded {
            return self.neg_end(&sub, &Rejection::RateLimited.to_string());
        }
        match self.negs.get_mut(&sub) {
            None => vec![Output::Send(reply::neg_err(&sub, "closed: no such reconciliation"))],
            Some(Neg { turn: Turn::Ours, .. }) => {
                self.neg_end(&sub, "invalid: the last message has no answer yet")
            }
            Some(neg) => {
                neg.turn = Turn::Ours;
                vec![Output::Reconcile(Reconcile::Further { sub, query })]
            }
        }
    }

    fn neg_forget(&mut self, sub: &str) -> Vec<Output> {
        let forget = |_| Output::Reconcile(Reconcile::Forget(sub.to_owned()));
        self.negs.remove(sub).map(forget).into_iter().collect()
    }

    /// Ends one, if it is open, and says why.
    pub(super) fn neg_end(&mut self, sub: &str, why: &str) -> Vec<Output> {
        let said = Output::Send(reply::neg_err(sub, why));
        self.neg_forget(sub).into_iter().chain([said]).collect()
    }

    /// Ends those that something is to be said against.
    pub(super) fn neg_end_if(
        &mut self,
        against: impl Fn(&Self, &Values<TopicId>) -> Option<String>,
    ) -> Vec<Output> {
        let ended = self.negs.iter().map(|(sub, neg)| (sub.clone(), against(self, &neg.topics)));
        let ended: Vec<_> = ended.filter_map(|(sub, why)| Some((sub, why?))).collect();
        ended.iter().flat_map(|(sub, why)| self.neg_end(sub, why)).collect()
    }

    /// Ends those whose time has come: their clients are silent, or do not come to an end.
    pub(super) fn neg_end_overdue(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        let overdue = |neg: &Neg| {
            neg.closes_at(around.limits).filter(|(at, _)| *at <= around.now).map(|(_, why)| why)
        };
        let overdue: Vec<(SubId, Overdue)> =
            self.negs.iter().filter_map(|(sub, neg)| Some((sub.clone(), overdue(neg)?))).collect();
        overdue.iter().flat_map(|(sub, why)| self.neg_end(sub, why.text())).collect()
    }

    /// When the time of the next one will have come.
    pub(super) fn neg_wake_at(&self, around: &Surroundings<'_>) -> Option<UnixMillis> {
        self.negs.values().filter_map(|neg| neg.closes_at(around.limits)).map(|(at, _)| at).min()
    }
}
