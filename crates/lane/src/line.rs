//! What waits, in order: parcels of commands, cut into batches and put together again as answers.
//! Pure but for the answer channels.

use std::collections::VecDeque;
use std::vec;

use kukuri_core::Act;
use tokio::sync::oneshot;

use crate::batch::{BatchLimits, Load};
use crate::room::Room;
use crate::ticket::Answer;

/// Commands that were submitted together and are answered together. They may be committed in
/// several batches, and a batch may hold many parcels.
pub(crate) struct Parcel {
    waiting: vec::IntoIter<Act>,
    answers: Vec<Answer>,
    size: usize,
    /// `None` for commands of the lane itself.
    reply: Option<oneshot::Sender<Vec<Answer>>>,
    /// Given back when the last command has left the queue.
    room: Option<Room>,
}

impl Parcel {
    pub fn new(acts: Vec<Act>, room: Room) -> (Self, oneshot::Receiver<Vec<Answer>>) {
        let (reply, receiver) = oneshot::channel();
        let parcel = Self { reply: Some(reply), room: Some(room), ..Self::unanswered(acts) };
        (parcel, receiver)
    }

    /// A parcel that nobody waits for.
    pub fn unanswered(acts: Vec<Act>) -> Self {
        Self {
            size: acts.len(),
            answers: Vec::with_capacity(acts.len()),
            waiting: acts.into_iter(),
            reply: None,
            room: None,
        }
    }

    fn answered(self) {
        if let Some(reply) = self.reply {
            // Nobody listens when the sender is gone, which is the sender's affair.
            let _ = reply.send(self.answers);
        }
    }
}

/// The parcels that are not answered yet. A batch is formed and then answered before the next one is
/// formed, so the commands in flight are always the first ones here.
#[derive(Default)]
pub(crate) struct Line {
    parcels: VecDeque<Parcel>,
}

impl Line {
    pub fn push(&mut self, parcel: Parcel) {
        if parcel.size == 0 {
            return parcel.answered();
        }
        self.parcels.push_back(parcel);
    }

    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// The next batch: as much of what waits as fits, in order.
    pub fn form(&mut self, limits: BatchLimits) -> Vec<Act> {
        let mut load = Load::new(limits);
        let mut batch = Vec::new();
        for parcel in &mut self.parcels {
            while let Some(act) = parcel.waiting.as_slice().first() {
                if !load.take(act) {
                    return batch;
                }
                batch.extend(parcel.waiting.next());
            }
            parcel.room = None;
        }
        batch
    }

    /// Gives the commands of the batch in flight their answers, in order.
    pub fn answer(&mut self, answers: impl IntoIterator<Item = Answer>) {
        for answer in answers {
            let parcel = self.parcels.front_mut();
            let parcel = parcel.expect("there are no more answers than commands in flight");
            parcel.answers.push(answer);
            if parcel.answers.len() == parcel.size {
                let parcel = self.parcels.pop_front();
                parcel.expect("the front was there").answered();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kukuri_core::Outcome;
    use kukuri_event::EventId;
    use proptest::prelude::*;

    /// An act that can be told from others, with as many keys as its number.
    fn act(keys: usize) -> Act {
        Act::Expire(vec![EventId::from_bytes([7; 32]); keys])
    }

    fn keys(act: &Act) -> usize {
        match act {
            Act::Expire(events) => events.len(),
            _ => unreachable!("the tests queue nothing else"),
        }
    }

    fn limits(commands_max: usize, keys_max: usize) -> BatchLimits {
        BatchLimits { commands_max, bytes_max: usize::MAX, keys_max }
    }

    #[test]
    fn a_command_larger_than_a_batch_goes_alone() {
        let mut line = Line::default();
        line.push(Parcel::unanswered(vec![act(1), act(100), act(1)]));
        let mut sizes = Vec::new();
        while !line.is_empty() {
            let batch = line.form(limits(10, 10));
            sizes.push(batch.len());
            line.answer(batch.iter().map(|_| Ok(Outcome::Done)));
        }
        assert_eq!(sizes, [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn batches_keep_order_and_bounds_and_fill_up(
            parcels in prop::collection::vec(prop::collection::vec(0_usize..9, 0..20), 0..10),
            commands_max in 1_usize..12,
            keys_max in 1_usize..30,
        ) {
            let mut line = Line::default();
            for parcel in &parcels {
                line.push(Parcel::unanswered(parcel.iter().copied().map(act).collect()));
            }
            let mut taken: Vec<usize> = Vec::new();
            let all = parcels.concat();
            while !line.is_empty() {
                let batch: Vec<usize> = line.form(limits(commands_max, keys_max)).iter().map(keys).collect();
                let sum: usize = batch.iter().sum();
                prop_assert!(!batch.is_empty() && batch.len() <= commands_max);
                prop_assert!(sum <= keys_max || batch.len() == 1);
                taken.extend(&batch);
                if let Some(next) = all.get(taken.len()) {
                    prop_assert!(batch.len() == commands_max || sum + next > keys_max, "it could hold more");
                }
                line.answer(batch.iter().map(|_| Ok(Outcome::Done)));
            }
            prop_assert_eq!(taken, all);
        }
    }
}
