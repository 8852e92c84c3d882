//! Reconciliations (NIP-77): which are open on a connection, and whose turn it is in each.

use std::time::Duration;

use kukuri_core::admission::Rate;
use kukuri_core::{Rejection, TopicId, UnixMillis};
use kukuri_event::{Filter, Values};

use super::{Charge, Output, Session, Surroundings, check_shape, name_global};
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
    turn: Turn,
}

enum Turn {
    /// The client waits for us.
    Ours,
    Theirs {
        since: UnixMillis,
    },
}

impl Neg {
    /// When it has been silent for too long.
    fn closes_at(&self, idle_max: Duration) -> Option<UnixMillis> {
        match self.turn {
            Turn::Ours => None,
            Turn::Theirs { since } => Some(since.saturating_add(idle_max)),
        }
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
                self.negs.insert(sub.clone(), Neg { topics, turn: Turn::Ours });
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

    /// Ends those whose clients have been silent for too long.
    pub(super) fn neg_end_idle(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        let idle = |neg: &Neg| {
            neg.closes_at(around.limits.neg_idle_max).is_some_and(|at| at <= around.now)
        };
        let idle: Vec<SubId> =
            self.negs.iter().filter(|(_, neg)| idle(neg)).map(|(sub, _)| sub.clone()).collect();
        let why = "closed: you took too long to respond!";
        idle.iter().flat_map(|sub| self.neg_end(sub, why)).collect()
    }

    /// When the next one will have been silent for too long.
    pub(super) fn neg_wake_at(&self, around: &Surroundings<'_>) -> Option<UnixMillis> {
        let idle_max = around.limits.neg_idle_max;
        self.negs.values().filter_map(|neg| neg.closes_at(idle_max)).min()
    }
}
