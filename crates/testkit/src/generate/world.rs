//! A small world in which everything meets everything: few authors, few topics, few seconds, and
//! events that name each other.

use kukuri_core::admission::{Age, Checked, Verdict};
use kukuri_core::{
    Admitted, NodeKey, ReadSet, Source, TombstoneKey, TopicId, UnixMillis, VersionKey,
};
use kukuri_event::{EventId, Kind, UnixSeconds};
use kukuri_store::conformance::signing::{self, Author};

use super::draft;
use super::{Dice, Seed};

const AUTHORS: u32 = 3;
const TOPICS: usize = 4;
/// One in so many events comes by a door that takes nothing that may have been forgotten.
const BOUNDED_STRIDE: usize = 4;

/// A pool of signed events, made in one order and used in any.
pub struct World {
    pub authors: Vec<Author>,
    pub topics: Vec<TopicId>,
    pub events: Vec<Checked>,
}

impl World {
    /// When events of the world pass their doors: after the last `created_at`, before the first
    /// expiration.
    pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

    /// When the last event of the world has expired.
    pub const END: UnixSeconds = UnixSeconds(Self::NOW.0 + draft::EXPIRES_WITHIN + 1);

    /// Worlds of different `lot`s share no author and no topic, so that many of them can live in one
    /// store without knowing of each other.
    pub fn new(seed: Seed, lot: u32, events: usize) -> World {
        let mut dice = seed.dice();
        let mut world = World {
            authors: (0..AUTHORS).map(|nth| Author::numbered(lot * AUTHORS + nth)).collect(),
            topics: (0..TOPICS).map(|_| topic(&mut dice)).collect(),
            events: Vec::with_capacity(events),
        };
        for nth in 0..events {
            let (author, draft) = draft::draft(&world, &mut dice);
            let text = world.authors[author].sign(&draft);
            // In a store that has forgotten something, all are too old to be taken in but by import.
            let age = if nth.is_multiple_of(BOUNDED_STRIDE) { Age::Bounded } else { Age::Any };
            let event = signing::check_by(&text, Self::NOW, age);
            world.events.push(event.unwrap_or_else(|no| panic!("{draft:?}: {no}")));
        }
        world
    }

    pub fn ids(&self) -> Vec<EventId> {
        self.events.iter().map(|event| event.event().id()).collect()
    }

    /// One of the events, as it comes through one of the doors.
    pub fn admitted(&self, nth: usize, dice: &mut Dice) -> Admitted {
        let source = *dice.pick(Source::ALL);
        let via = (source == Source::Gossip).then(|| dice.pick(&self.topics).clone());
        let admitted = self.events[nth].clone().admit(Verdict::Admit, source, via);
        admitted.expect("the verdict is to admit")
    }

    pub fn now() -> UnixMillis {
        UnixMillis::from(Self::NOW)
    }

    /// Every key that the world's commands can touch.
    pub fn keys(&self) -> ReadSet {
        let mut keys = ReadSet::default();
        keys.topics.extend(self.topics.iter().cloned());
        keys.node = Some(NodeKey);
        for event in self.events.iter().map(Checked::event) {
            keys.add_lookup(event);
            if event.kind() == Kind::DELETION {
                let targets = event.tags().event_ids();
                let pubkey = event.pubkey();
                keys.tombstones.extend(targets.map(|target| TombstoneKey { target, pubkey }));
                keys.versions.extend(event.tags().addresses().map(VersionKey::from));
            }
        }
        keys
    }
}

fn topic(dice: &mut Dice) -> TopicId {
    let digits = EventId::from_bytes(dice.bytes()).to_hex();
    TopicId::parse(&format!("kukuri:{digits}")).expect("64 hex digits make a topic")
}
