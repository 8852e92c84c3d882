use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use kukuri_core::Outcome;
use tokio::sync::oneshot;

use crate::LaneError;

/// What became of one command.
pub type Answer = Result<Outcome, LaneError>;

/// The claim to one answer: a future that resolves once the command is durable or has failed.
/// Dropping it gives up the answer, not the command.
#[must_use = "the command is durable only when its ticket has resolved"]
#[derive(Debug)]
pub struct Ticket(Tickets);

/// The claim to the answers of commands that were submitted together, in their order.
#[must_use = "the commands are durable only when their tickets have resolved"]
#[derive(Debug)]
pub struct Tickets {
    answers: oneshot::Receiver<Vec<Answer>>,
    size: usize,
}

impl Tickets {
    pub(crate) fn new(answers: oneshot::Receiver<Vec<Answer>>, size: usize) -> Self {
        Self { answers, size }
    }
}

impl Ticket {
    pub(crate) fn new(answers: oneshot::Receiver<Vec<Answer>>) -> Self {
        Self(Tickets::new(answers, 1))
    }
}

impl Future for Tickets {
    type Output = Vec<Answer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let size = self.size;
        // A lane that ended without an answer may have committed or not: that is an error, too.
        Pin::new(&mut self.answers)
            .poll(context)
            .map(|answers| answers.unwrap_or_else(|_| vec![Err(LaneError::Closed); size]))
    }
}

impl Future for Ticket {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|mut answers| answers.pop().expect("one command has one answer"))
    }
}
