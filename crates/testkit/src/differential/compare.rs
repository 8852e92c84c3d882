//! One sequence of commands on two stores.

use std::fmt::Debug;
use std::sync::Arc;

use kukuri_core::{Command, Cursor, Seq, TopicId};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::{Query, QueryError, Store, StoreError};

use crate::generate::{Dice, Seed, World, batches, query};

/// How often a question is asked between batches.
const ASKED_PERCENT: u32 = 40;

/// Hits whose bodies are compared; more of the same would only cost time.
const BODIES_MAX: usize = 12;

/// How often the candidate is closed and opened between batches.
const REOPENED_PERCENT: u32 = 2;

/// A budget so small that a back end may well refuse, and how often it is tried.
const ROWS_FEW: usize = 5;
const FEW_PERCENT: u32 = 25;

/// Two stores differ.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, batch {batch}: {what} differ\nexpected {expected}\nfound    {found}")]
pub struct Mismatch {
    pub seed: Seed,
    pub batch: usize,
    pub what: String,
    pub expected: String,
    pub found: String,
}

/// The two, and where the comparison stands.
struct Pair<'a> {
    reference: &'a dyn Store,
    candidate: &'a dyn Store,
    seed: Seed,
    batch: usize,
}

/// Gives both stores the commands, in the same random batches, and asks both the same random questions
/// on the way. Both must stand at the same seq when it begins.
///
/// # Errors
/// The first difference, and the seed and batch at which it appeared.
pub async fn differential(
    reference: &dyn Store,
    candidate: &dyn Store,
    world: &World,
    commands: &[Command],
    seed: Seed,
) -> Result<(), Mismatch> {
    let mut dice = seed.dice();
    let mut pair = Pair { reference, candidate, seed, batch: 0 };
    let start = pair.bounds().await?;
    for batch in batches(commands, &mut dice) {
        pair.apply(batch).await?;
        if dice.chance(REOPENED_PERCENT) {
            pair.same("reopenings", &Ok(()), &candidate.reopen().await)?;
        }
        while dice.chance(ASKED_PERCENT) {
            pair.ask(world, &mut dice).await?;
        }
        pair.batch += 1;
    }
    pair.ask(world, &mut dice).await?;
    pair.look(world, start).await
}

impl Pair<'_> {
    fn same<T: PartialEq + Debug>(
        &self,
        what: &str,
        expected: &T,
        found: &T,
    ) -> Result<(), Mismatch> {
        if expected == found {
            return Ok(());
        }
        Err(self.mismatch(what, expected, found))
    }

    fn mismatch(&self, what: &str, expected: &dyn Debug, found: &dyn Debug) -> Mismatch {
        Mismatch {
            seed: self.seed,
            batch: self.batch,
            what: what.to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        }
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<(), Mismatch> {
        let expected = self.reference.apply(batch.clone()).await;
        let found = self.candidate.apply(batch).await;
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            (expected, found) => return Err(self.mismatch("commits", &expected, &found)),
        };
        self.same("outcomes", &expected.outcomes, &found.outcomes)?;
        self.same("feed rows", &expected.rows, &found.rows)?;
        self.same("writes", &expected.writes, &found.writes)?;
        self.same("bases", &expected.base, &found.base)
    }

    async fn bounds(&self) -> Result<Seq, Mismatch> {
        let expected = self.reference.bounds().await.map(|bounds| (bounds.floor, bounds.head));
        let found = self.candidate.bounds().await.map(|bounds| (bounds.floor, bounds.head));
        self.same("bounds", &expected, &found)?;
        Ok(expected.map_or(Seq::ZERO, |(_, head)| head))
    }

    /// One random question of one random sort.
    async fn ask(&self, world: &World, dice: &mut Dice) -> Result<(), Mismatch> {
        let (reference, candidate) = (self.reference, self.candidate);
        match dice.below(10) {
            0 => {
                let (topic, most) = (dice.pick(&world.topics).clone(), dice.below(6));
                self.linked(&topic, most).await
            }
            1 => {
                let now = UnixSeconds(World::NOW.0 + dice.range(0..15));
                let most = dice.below(6);
                let expected = reference.expired(now, most).await;
                self.same("expired events", &expected, &candidate.expired(now, most).await)
            }
            2 => {
                let head = self.bounds().await?;
                let after = Seq(dice.range(-1..head.0 + 2));
                self.feed(after, 1 + dice.below(20)).await
            }
            _ => self.answer(query(world, dice), dice).await,
        }
    }

    async fn feed(&self, after: Seq, rows_max: usize) -> Result<(), Mismatch> {
        let read = async |store: &dyn Store| {
            let epoch = store.bounds().await?.epoch;
            store.feed(Cursor { epoch, seq: after }, rows_max).await
        };
        self.same("reads of the feed", &read(self.reference).await, &read(self.candidate).await)
    }

    async fn answer(&self, query: Query, dice: &mut Dice) -> Result<(), Mismatch> {
        let expected = self.reference.query(query.clone()).await;
        let found = self.candidate.query(query.clone()).await;
        let what = format!("answers to {query:?}");
        self.same(&what, &expected, &found)?;
        if dice.chance(FEW_PERCENT) {
            let few = Query { rows_max: ROWS_FEW, ..query };
            match self.candidate.query(few).await {
                Err(QueryError::TooBroad { rows_max: ROWS_FEW }) => {}
                found => self.same(&format!("{what} with a small budget"), &expected, &found)?,
            }
        }
        let hits = expected.map(|hits| hits.hits).unwrap_or_default();
        let mut events: Vec<Seq> = hits.iter().map(|hit| hit.event).collect();
        let head = self.bounds().await?;
        events.extend([Seq(dice.range(0..head.0 + 2)), Seq(dice.range(0..head.0 + 2))]);
        dice.shuffle(&mut events);
        events.truncate(BODIES_MAX);
        let expected = self.reference.bodies(events.clone()).await;
        self.same("bodies", &expected, &self.candidate.bodies(events).await)
    }

    /// Stores choose the order, and with it which ones are among the first so many.
    async fn linked(&self, topic: &TopicId, most: usize) -> Result<(), Mismatch> {
        let sorted = |linked: Result<Vec<EventId>, StoreError>| {
            linked.map(|mut linked| {
                linked.sort_unstable();
                linked
            })
        };
        let expected = sorted(self.reference.linked(topic.clone(), usize::MAX).await);
        let found = sorted(self.candidate.linked(topic.clone(), most).await);
        let part = match (&expected, &found) {
            (Ok(all), Ok(found)) if most < all.len() => {
                let known = found.iter().filter(|id| all.contains(id)).copied().collect();
                self.same("count of linked events", &Ok::<_, StoreError>(most), &Ok(found.len()))?;
                Ok(known)
            }
            _ => expected,
        };
        self.same("linked events", &part, &found)
    }

    /// Everything that the world has left in the stores.
    async fn look(&self, world: &World, start: Seq) -> Result<(), Mismatch> {
        self.bounds().await?;
        self.feed(start, usize::MAX).await?;
        let expected = self.reference.facts(world.keys()).await;
        self.same("facts", &expected, &self.candidate.facts(world.keys()).await)?;
        for topic in &world.topics {
            self.linked(topic, usize::MAX).await?;
        }
        let expected = self.reference.expired(World::END, usize::MAX).await;
        self.same(
            "expired events",
            &expected,
            &self.candidate.expired(World::END, usize::MAX).await,
        )
    }
}
