//! One sequence of commands on two stores.

use std::fmt::Debug;
use std::sync::Arc;

use std::time::Duration;

use kukuri_core::{Command, Cursor, Cutoffs, Seq, TopicId, UnixMillis, needs};
use kukuri_event::UnixSeconds;
use kukuri_store::{Query, QueryError, Scope, Store, StoreError, Tidied};

use crate::generate::{Dice, Seed, World, batches, query};

/// How often a question is asked between batches.
const ASKED_PERCENT: u32 = 40;

/// Hits whose bodies are compared; more of the same would only cost time.
const BODIES_MAX: usize = 12;

/// How often the candidate is closed and opened between batches.
const REOPENED_PERCENT: u32 = 2;

/// How often space is given back between batches, which nobody may notice.
const TIDIED_PERCENT: u32 = 2;
/// How often a batch is foreseen, and how soon it comes.
const FORESEEN_PERCENT: u32 = 50;
const FORESEEN_BATCHES: usize = 3;

/// A budget so small that a back end may well refuse, and how often it is tried.
const ROWS_FEW: usize = 5;
const FEW_PERCENT: u32 = 25;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// So far a clock of the world may have come.
fn leap(dice: &mut Dice) -> Duration {
    let days = dice.weigh(&[(0, 40), (8, 20), (31, 20), (182, 20)]);
    DAY * days + Duration::from_secs(dice.below(20) as u64)
}

fn cutoffs(dice: &mut Dice) -> Cutoffs {
    let mut cutoff = || {
        let cutoff = World::now().saturating_add(leap(dice));
        dice.chance(80).then_some(cutoff)
    };
    Cutoffs { regular: cutoff(), deletion: cutoff(), history: cutoff(), current: cutoff() }
}

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
    let batches = batches(commands, &mut dice);
    for (nth, batch) in batches.iter().enumerate() {
        // What is foreseen may change before its turn comes.
        if dice.chance(FORESEEN_PERCENT)
            && let Some(soon) = batches.get(nth + dice.below(FORESEEN_BATCHES))
        {
            candidate.foresee(needs(soon).records).await;
        }
        pair.apply(Arc::clone(batch)).await?;
        if dice.chance(REOPENED_PERCENT) {
            pair.same("reopenings", &Ok(()), &candidate.reopen().await)?;
        }
        if dice.chance(TIDIED_PERCENT) {
            pair.tidy().await?;
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

    async fn tidy(&self) -> Result<(), Mismatch> {
        loop {
            match self.candidate.tidy().await {
                Ok(Tidied::More) => {}
                Ok(Tidied::Done | Tidied::Blocked(_)) => return Ok(()),
                Err(error) => return Err(self.mismatch("tidying", &Tidied::Done, &error)),
            }
        }
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
        match dice.below(13) {
            10 => {
                let topic = dice.pick(&world.topics).clone();
                let cutoffs = cutoffs(dice);
                self.aged(&topic, &cutoffs, dice.below(6)).await
            }
            11 => {
                let of = match dice.chance(70) {
                    true => Scope::Topic(dice.pick(&world.topics).clone()),
                    false => Scope::Node,
                };
                let most = dice.below(9);
                let expected = reference.oldest(of.clone(), most).await;
                self.same("oldest events", &expected, &candidate.oldest(of, most).await)
            }
            12 => {
                let before = World::now().saturating_add(leap(dice));
                self.forgettable(before, dice.below(9)).await
            }
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
        let (expected, found) = (read(self.reference).await, read(self.candidate).await);
        self.same("reads of the feed", &expected, &found)?;
        let Ok(epoch) = self.candidate.bounds().await.map(|bounds| bounds.epoch) else {
            return Ok(());
        };
        // What a store remembers is a beginning of what it would read.
        let recent = self.candidate.recent(Cursor { epoch, seq: after }, rows_max);
        match (expected, recent) {
            (Ok(all), Some(some)) => {
                let part = all.get(..some.len()).unwrap_or(&all);
                self.same("remembered rows of the feed", &part, &some.as_slice())
            }
            _ => Ok(()),
        }
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

    async fn linked(&self, topic: &TopicId, most: usize) -> Result<(), Mismatch> {
        let expected = self.reference.linked(topic.clone(), usize::MAX).await;
        let found = self.candidate.linked(topic.clone(), most).await;
        self.some("linked events", expected, found, most)
    }

    async fn aged(&self, topic: &TopicId, cutoffs: &Cutoffs, most: usize) -> Result<(), Mismatch> {
        let expected = self.reference.aged(topic.clone(), *cutoffs, usize::MAX).await;
        let found = self.candidate.aged(topic.clone(), *cutoffs, most).await;
        self.some("aged events", expected, found, most)
    }

    async fn forgettable(&self, before: UnixMillis, most: usize) -> Result<(), Mismatch> {
        let expected = self.reference.forgettable(before, usize::MAX).await;
        let found = self.candidate.forgettable(before, most).await;
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            (expected, found) => return self.same("memories", &expected, &found),
        };
        self.some("forgettable ids", Ok(expected.events), Ok(found.events), most)?;
        self.some("forgettable deletions", Ok(expected.tombstones), Ok(found.tombstones), most)
    }

    /// Stores choose the order, and with it which ones are among the first so many of all.
    fn some<T: Ord + Copy + Debug>(
        &self,
        what: &str,
        mut all: Result<Vec<T>, StoreError>,
        mut found: Result<Vec<T>, StoreError>,
        most: usize,
    ) -> Result<(), Mismatch> {
        all.iter_mut().chain(&mut found).for_each(|list| list.sort_unstable());
        let part = match (&all, &found) {
            (Ok(all), Ok(found)) if most < all.len() => {
                let mut known: Vec<T> =
                    found.iter().filter(|one| all.contains(one)).copied().collect();
                known.dedup();
                self.same(&format!("count of {what}"), &most, &found.len())?;
                Ok(known)
            }
            _ => all,
        };
        self.same(what, &part, &found)
    }

    /// Everything that the world has left in the stores.
    async fn look(&self, world: &World, start: Seq) -> Result<(), Mismatch> {
        self.bounds().await?;
        self.feed(start, usize::MAX).await?;
        let expected = self.reference.facts(world.keys()).await;
        self.same("facts", &expected, &self.candidate.facts(world.keys()).await)?;
        let late = World::now().saturating_add(DAY * 1000);
        for topic in &world.topics {
            self.linked(topic, usize::MAX).await?;
            self.aged(topic, &Cutoffs::all(late), usize::MAX).await?;
        }
        self.forgettable(late, usize::MAX).await?;
        let expected = self.reference.expired(World::END, usize::MAX).await;
        self.same(
            "expired events",
            &expected,
            &self.candidate.expired(World::END, usize::MAX).await,
        )
    }
}
