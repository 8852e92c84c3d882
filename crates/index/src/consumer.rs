//! The index as a consumer of the feed. State-based: a document is there while its event is visible in
//! its topic.

use async_trait::async_trait;
use kukuri_core::Seq;
use kukuri_event::Kind;
use kukuri_feed::{
    Consumer, ConsumerName, Desk, DeskError, Digest, Generation, Poison, Sample, Update, What,
};

use crate::document::Target;
use crate::effects::{Departure, Effects, Projection};
use crate::kinds::Kinds;
use crate::search::{Ask, Page};
use crate::tables::Tables;

/// Changes with every change of what is kept of a text, its words, its trail, its numbers, and of the tables
/// in which it is kept.
const VERSION: u32 = 4;
/// Other kinds than the standard ones make other documents of the same events, which is another version:
/// a digest of them stands in so many bits beside the number.
const KINDS_BITS: u32 = 24;

/// Follows the feed, and answers questions from what it has kept of it.
#[derive(Clone, Debug, Default)]
pub struct Index {
    kinds: Kinds,
}

impl Index {
    pub const NAME: ConsumerName = ConsumerName::new("search");

    pub fn new(kinds: Kinds) -> Self {
        Self { kinds }
    }

    /// Whether the words of this program lead to what is in a generation of some version, whichever kinds
    /// of events it was made of.
    pub fn reads(version: u32) -> bool {
        let of_kinds = version >> KINDS_BITS;
        VERSION == if of_kinds == 0 { version } else { of_kinds }
    }

    /// The answer of a generation. `head` is up to where it has followed the feed.
    pub async fn search(
        &self,
        desk: &mut Desk,
        generation: Generation,
        ask: &Ask,
        head: Seq,
    ) -> Result<Page, DeskError> {
        Tables::of(generation).search(desk, ask, head).await
    }
}

#[async_trait]
impl Consumer for Index {
    type Effects = Effects;

    fn name(&self) -> ConsumerName {
        Self::NAME
    }

    fn version(&self) -> u32 {
        if self.kinds == Kinds::default() {
            return VERSION;
        }
        let kinds = self.kinds.digest() as u32 & ((1 << KINDS_BITS) - 1);
        VERSION << KINDS_BITS | kinds
    }

    fn wants(&self, kind: Kind) -> bool {
        Projection::wants(&self.kinds, kind)
    }

    fn project(&self, updates: &[Update]) -> Result<Effects, Poison> {
        let mut projection = Projection::new(&self.kinds);
        for update in updates {
            match &update.what {
                What::Upsert { body, .. } => {
                    projection.arrive(body.event(), &update.topic_id, update.seq);
                }
                What::Gone => {}
                What::Delete { .. } => projection.leave(Departure {
                    event_id: update.event_id,
                    topic_id: update.topic_id.clone(),
                    kind: update.kind,
                    target: Target::of(update.event_id, update.effective_key.as_ref()),
                    remaining: update.prior.len(),
                }),
            }
        }
        Ok(projection.finish())
    }

    async fn create(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        Tables::of(generation).create(desk).await
    }

    async fn apply(
        &self,
        desk: &mut Desk,
        generation: Generation,
        effects: Effects,
    ) -> Result<(), DeskError> {
        Tables::of(generation).apply(desk, effects).await
    }

    async fn digest(
        &self,
        desk: &mut Desk,
        generation: Generation,
        sample: Sample,
    ) -> Result<Digest, DeskError> {
        Tables::of(generation).digest(desk, sample).await
    }

    async fn discard(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        Tables::of(generation).discard(desk).await
    }
}
