//! One side of a reconciliation, without a socket.

use std::collections::HashSet;

use kukuri_event::{EventId, UnixSeconds};
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::{ReconcileError, first};

/// How many ids are compared at once, and how many may be missing: what is held in memory is bounded by
/// them, whatever a relay says.
pub const IDS_MAX: usize = 500_000;
/// The largest message we make. In hex, and with its envelope, it is one that most relays take.
const FRAME_BYTES: u64 = 60_000;
/// A relay that names all ids that may be missing takes a few hundred.
const ROUNDS_MAX: usize = 4096;

/// An event as a reconciliation knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated {
    pub created_at: UnixSeconds,
    pub id: EventId,
}

/// What an answer of the relay tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What we have and the relay has not.
    pub have: Vec<EventId>,
    /// What the relay has and we have not. However often it names an id, it is here once.
    pub need: Vec<EventId>,
    /// What to say next; nothing when all is said.
    pub next: Option<Vec<u8>>,
}

/// Who asks. The other side only answers.
pub struct Reconciler {
    library: Negentropy<'static, NegentropyStorageVector>,
    first: Vec<u8>,
    rounds: usize,
    needed: HashSet<EventId>,
}

impl Reconciler {
    pub fn new(own: impl IntoIterator<Item = Dated>) -> Result<Self, ReconcileError> {
        let mut storage = NegentropyStorageVector::new();
        for (nth, Dated { created_at, id }) in own.into_iter().enumerate() {
            if nth >= IDS_MAX {
                return Err(ReconcileError::TooMany);
            }
            let created_at = u64::try_from(created_at.0).unwrap_or(0);
            storage.insert(created_at, Id::from_byte_array(*id.as_bytes())).map_err(unreadable)?;
        }
        storage.seal().map_err(unreadable)?;
        let first = first::message(&storage).map_err(unreadable)?;
        let mut library = Negentropy::owned(storage, FRAME_BYTES).map_err(unreadable)?;
        library.set_initiator();
        Ok(Self { library, first, rounds: 0, needed: HashSet::new() })
    }

    /// What to open the reconciliation with.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    pub fn answered(&mut self, answer: &[u8]) -> Result<Step, ReconcileError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(ReconcileError::Endless);
        }
        let (mut have, mut need) = (Vec::new(), Vec::new());
        let next = self.library.reconcile_with_ids(answer, &mut have, &mut need);
        let next = next.map_err(unreadable)?;
        let event_id = |id: Id| EventId::from_bytes(id.to_bytes());
        let need = need.into_iter().map(event_id).filter(|id| self.needed.insert(*id)).collect();
        if self.needed.len() > IDS_MAX {
            return Err(ReconcileError::TooMany);
        }
        Ok(Step { have: have.into_iter().map(event_id).collect(), need, next })
    }
}

fn unreadable(error: negentropy::Error) -> ReconcileError {
    ReconcileError::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn dated(nth: u32) -> Dated {
        // Ids in an order of their own, several to a second.
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&nth.wrapping_mul(2_654_435_761).to_be_bytes());
        bytes[28..].copy_from_slice(&nth.to_be_bytes());
        Dated {
            created_at: UnixSeconds(1_700_000_000 + i64::from(nth / 5)),
            id: EventId::from_bytes(bytes),
        }
    }

    fn ids(of: impl IntoIterator<Item = u32>) -> BTreeSet<EventId> {
        of.into_iter().map(|nth| dated(nth).id).collect()
    }

    /// Speaks with the library's responder: what was learnt, and how many bytes it took.
    fn reconcile(
        own: impl IntoIterator<Item = u32>,
        theirs: impl IntoIterator<Item = u32>,
    ) -> (BTreeSet<EventId>, BTreeSet<EventId>, usize) {
        let mut storage = NegentropyStorageVector::new();
        for Dated { created_at, id } in theirs.into_iter().map(dated) {
            let id = Id::from_byte_array(*id.as_bytes());
            storage.insert(created_at.0.try_into().unwrap(), id).unwrap();
        }
        storage.seal().unwrap();
        let mut responder = Negentropy::owned(storage, FRAME_BYTES).unwrap();
        let mut reconciler = Reconciler::new(own.into_iter().map(dated)).unwrap();
        let mut said = reconciler.first().to_vec();
        let (mut have, mut need, mut bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
        loop {
            let answer = responder.reconcile(&said).unwrap();
            assert!(said.len() <= FRAME_BYTES as usize && answer.len() <= FRAME_BYTES as usize);
            bytes += said.len() + answer.len();
            let step = reconciler.answered(&answer).unwrap();
            have.extend(step.have);
            need.extend(step.need);
            match step.next {
                Some(next) => said = next,
                None => return (have, need, bytes),
            }
        }
    }

    #[test]
    fn the_differences_of_any_two_sets_are_found() {
        for (own, theirs) in [
            (0..0, 0..0),
            (0..0, 0..5000),
            (0..5000, 0..0),
            (0..31, 1..33),
            (0..3000, 1000..4000),
            (500..501, 0..1000),
            (0..70_000, 10..70_020),
        ] {
            let (have, need, _) = reconcile(own.clone(), theirs.clone());
            assert_eq!(have, &ids(own.clone()) - &ids(theirs.clone()), "{own:?} {theirs:?}");
            assert_eq!(need, &ids(theirs.clone()) - &ids(own.clone()), "{own:?} {theirs:?}");
        }
    }

    /// The messages are written in hex, which doubles them.
    #[test]
    fn few_differences_take_few_bytes() {
        let all = 100_000;
        let (have, need, bytes) = reconcile(0..all, 0..all);
        assert_eq!((have.len(), need.len()), (0, 0));
        assert!(2 * bytes < 1500, "{bytes}");
        let (_, need, bytes) = reconcile((0..all).filter(|nth| nth % 1000 != 500), 0..all);
        assert_eq!(need.len(), 100);
        assert!(2 * bytes < 190_000, "{bytes}");
        let (_, need, bytes) = reconcile(0..all - 100, 0..all);
        assert_eq!(need.len(), 100);
        assert!(2 * bytes < 25_000, "{bytes}");
    }

    /// A relay that named one id half a million times, each time in another range, made the node hold the
    /// event as often.
    #[test]
    fn what_is_named_again_is_needed_once() {
        let id = [7; 32];
        let range = |bound: &[u8]| [bound, b"\x02\x01", &id].concat();
        // Up to a time, up to a later one, and up to the end of all times.
        let ranges = [range(b"\x05\x00"), range(b"\x05\x00"), range(b"\x00\x00")].concat();
        let answer = [&b"\x61"[..], &ranges].concat();
        let mut reconciler = Reconciler::new([]).unwrap();
        let step = reconciler.answered(&answer).unwrap();
        assert_eq!(step.need, [EventId::from_bytes(id)]);
        assert_eq!(reconciler.answered(&answer).unwrap().need, []);
    }

    #[test]
    fn nonsense_is_an_error() {
        let mut reconciler = Reconciler::new((0..100).map(dated)).unwrap();
        for answer in [&b""[..], b"\x00", b"\x62", b"\x61\x00\x00\x05", b"\x61\x00\x00\x02\xff\x7f"]
        {
            assert!(reconciler.answered(answer).is_err(), "{answer:?}");
        }
    }

    /// A relay that says that everything differs, again and again, is not listened to for ever.
    #[test]
    fn it_comes_to_an_end() {
        let mut reconciler = Reconciler::new((0..100).map(dated)).unwrap();
        let differs = [&b"\x61\x00\x00\x01"[..], &[7; 16]].concat();
        let ended = (0..=ROUNDS_MAX).find_map(|_| reconciler.answered(&differs).err());
        assert_eq!(ended, Some(ReconcileError::Endless));
    }
}
