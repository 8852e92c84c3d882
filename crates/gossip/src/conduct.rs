//! How neighbours behave, and who is not listened to for a while. Pure: the time is an argument.
//!
//! Joining a swarm proves nothing, and a swarm passes messages on before anyone has looked at them. So the
//! neighbour that delivers a message need not be who sent it first: a fault of a message that says it has come
//! further weighs next to nothing, and less the further, strictly so. Whoever lets a flood in notices it, cuts it
//! off, and is spared by those who only hear of it through them, even if the library has passed on all of it by
//! then. Who lies about it gains little: what is over its rate is not looked at.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

use kukuri_core::UnixMillis;
use kukuri_core::admission::Rate;
use kukuri_core::rate::{Allowance, Meter};
use lru::LruCache;

/// At so many points a neighbour is muted: so many that a small part of a fault is still some. They wear off
/// within a minute.
const POINTS_MAX: u64 = 1 << 34;
const WEAR_OFF_MS: u64 = 60_000;
/// A fault that has come further weighs this part of one that has not, divided by how far: a flood that is
/// let in within the burst of a neighbour's rate is no reason to mute who passes it on.
const PASSED_ON_PART: u64 = 4096;
const HOPS_MAX: u16 = 31;
/// A message counts once more for every so many bytes.
const WEIGHED_BYTES: usize = 8 * 1024;
/// Messages over its rate that any neighbour may send within a minute, if the rate itself is lower.
const TOO_FAST_MIN: u32 = 64;
/// Each further mute within a day is twice as long, up to this.
const MUTE_MAX: Duration = Duration::from_secs(60 * 60);
const MUTES_REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// What a neighbour is blamed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    BadSignature,
    TooLarge,
    TooFast,
    /// It takes nothing any more, and holds up all others.
    Stalled,
}

impl Fault {
    /// Eight bad signatures or sizes from next door mute, or as many messages over the rate as are within it:
    /// a neighbour whose clients are busy sends more than we want to look at, and means no harm.
    fn points(self, each: Allowance) -> u64 {
        match self {
            Self::BadSignature | Self::TooLarge => POINTS_MAX / 8,
            Self::TooFast => POINTS_MAX / u64::from(each.per_minute.max(TOO_FAST_MIN)),
            Self::Stalled => POINTS_MAX,
        }
    }
}

/// Whether a message is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Open,
    /// Its neighbour is muted.
    Muted,
    /// Its neighbour sends more than it may, and may be muted for it from now on.
    TooFast(Option<Muted>),
    /// All neighbours together send more than the node wants to look at.
    Busy,
}

/// Until when somebody is not listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Muted {
    pub until: UnixMillis,
}

/// What is remembered of all neighbours, a bounded number of them.
pub struct Conduct<K: Hash + Eq + Clone> {
    each: Meter<K>,
    each_allowance: Allowance,
    all: Meter<()>,
    records: LruCache<K, Record>,
    mute: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    points: u64,
    at: UnixMillis,
    muted_until: Option<UnixMillis>,
    mutes: u32,
}

impl<K: Hash + Eq + Clone> Conduct<K> {
    pub fn new(each: Allowance, all: Allowance, mute: Duration, remembered_max: usize) -> Self {
        let remembered = NonZeroUsize::new(remembered_max).unwrap_or(NonZeroUsize::MIN);
        Self {
            each: Meter::new(each, remembered_max),
            each_allowance: each,
            all: Meter::new(all, 1),
            records: LruCache::new(remembered),
            mute,
        }
    }

    /// Judges a message before anything of it is looked at but how far it has come.
    pub fn pass(&mut self, who: &K, hops: impl FnOnce() -> u16, now: UnixMillis) -> Passage {
        if self.is_muted(who, now) {
            return Passage::Muted;
        }
        if self.each.take(who.clone(), now) == Rate::Exceeded {
            return Passage::TooFast(self.blame(who, Fault::TooFast, hops(), now));
        }
        match self.all.take((), now) {
            Rate::Within => Passage::Open,
            Rate::Exceeded => Passage::Busy,
        }
    }

    /// Counts a large message that has passed as often as many small ones: what is passed on before anyone looks at
    /// it is kept for a while by everyone.
    pub fn weigh(&mut self, who: &K, bytes: usize, now: UnixMillis) {
        for _ in 0..bytes / WEIGHED_BYTES {
            self.each.take(who.clone(), now);
            self.all.take((), now);
        }
    }

    pub fn is_muted(&self, who: &K, now: UnixMillis) -> bool {
        self.records.peek(who).is_some_and(|record| record.is_muted(now))
    }

    /// Notes a fault; says until when its neighbour is muted, if it is from now on.
    pub fn blame(&mut self, who: &K, fault: Fault, hops: u16, now: UnixMillis) -> Option<Muted> {
        let mute = self.mute;
        let record =
            self.records.get_or_insert_mut(who.clone(), || Record { at: now, ..Record::default() });
        record.wear_off(now);
        if record.is_muted(now) {
            return None;
        }
        let passed_on = PASSED_ON_PART * u64::from(hops.min(HOPS_MAX));
        record.points += fault.points(self.each_allowance) / passed_on.max(1);
        (record.points >= POINTS_MAX).then(|| record.mute(mute, now))
    }

    /// Those that are muted now.
    pub fn muted(&self, now: UnixMillis) -> impl Iterator<Item = (&K, UnixMillis)> {
        let muted = self.records.iter().filter(move |(_, record)| record.is_muted(now));
        muted.filter_map(|(who, record)| Some((who, record.muted_until?)))
    }
}

impl Record {
    fn is_muted(&self, now: UnixMillis) -> bool {
        // A clock that was set back must not mute anyone for longer than a mute lasts.
        self.muted_until.is_some_and(|until| until > now && now.until(until) <= MUTE_MAX)
    }

    fn wear_off(&mut self, now: UnixMillis) {
        let passed = self.at.until(now);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.points =
            self.points.saturating_sub(passed_ms.saturating_mul(POINTS_MAX) / WEAR_OFF_MS);
        if passed > MUTES_REMEMBERED {
            self.mutes = 0;
        }
        self.at = now;
    }

    fn mute(&mut self, first: Duration, now: UnixMillis) -> Muted {
        let doubled = first.saturating_mul(1 << self.mutes.min(16));
        let until = now.saturating_add(doubled.min(MUTE_MAX));
        *self = Self { points: 0, at: now, muted_until: Some(until), mutes: self.mutes + 1 };
        Muted { until }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MUTE: Duration = Duration::from_secs(60);
    const NOW: UnixMillis = UnixMillis(1_000_000_000);

    fn free() -> Conduct<u8> {
        Conduct::new(Allowance::UNBOUNDED, Allowance::UNBOUNDED, MUTE, 4)
    }

    fn faults_until_muted(fault: Fault, hops: u16) -> usize {
        let mut conduct = free();
        1 + (0..10_000_000).take_while(|_| conduct.blame(&1, fault, hops, NOW).is_none()).count()
    }

    #[test]
    fn some_faults_are_borne_and_one_more_is_not() {
        assert_eq!(faults_until_muted(Fault::BadSignature, 0), 8);
        assert_eq!(faults_until_muted(Fault::TooLarge, 0), 8);
        assert_eq!(faults_until_muted(Fault::TooFast, 0), 64);
        // A burst of forgeries that somebody has passed on before it could look is not held against it.
        assert_eq!(faults_until_muted(Fault::BadSignature, 1), 8 * 4096);
    }

    #[test]
    fn a_mute_ends_and_the_next_one_is_twice_as_long() {
        let (mut conduct, mut now) = (free(), NOW);
        for expected in [60, 120, 240] {
            let muted =
                (0..8).find_map(|_| conduct.blame(&1, Fault::BadSignature, 0, now)).unwrap();
            assert_eq!(now.until(muted.until).as_secs(), expected);
            assert_eq!(conduct.pass(&1, || 0, now), Passage::Muted);
            assert_eq!(conduct.pass(&2, || 0, now), Passage::Open, "others are listened to");
            assert_eq!(conduct.muted(now).count(), 1);
            now = muted.until;
            assert_eq!(conduct.pass(&1, || 0, now), Passage::Open);
        }
        // A day later it is as if nothing had been.
        now = now.saturating_add(MUTES_REMEMBERED + MUTE_MAX);
        let muted = (0..8).find_map(|_| conduct.blame(&1, Fault::BadSignature, 0, now)).unwrap();
        assert_eq!(now.until(muted.until), MUTE);
        // And a clock that goes back does not hold anyone.
        assert!(!conduct.is_muted(&1, UnixMillis(0)));
    }

    #[test]
    fn a_fault_now_and_then_mutes_nobody() {
        let mut conduct = free();
        let at = |nth: i64| UnixMillis(NOW.0 + nth * 8_000);
        assert!((0..1000).all(|nth| conduct.blame(&1, Fault::BadSignature, 0, at(nth)).is_none()));
    }

    #[test]
    fn a_burst_passes_then_what_is_over_it_is_counted_against_its_sender() {
        let each = Allowance { per_minute: 60, burst: 10 };
        let mut conduct: Conduct<u8> = Conduct::new(each, Allowance::UNBOUNDED, MUTE, 4);
        assert!((0..10).all(|_| conduct.pass(&1, || 0, NOW) == Passage::Open));
        assert!((0..63).all(|_| conduct.pass(&1, || 0, NOW) == Passage::TooFast(None)));
        assert!(matches!(conduct.pass(&1, || 0, NOW), Passage::TooFast(Some(_))));
        assert_eq!(conduct.pass(&1, || 0, NOW), Passage::Muted);
        assert_eq!(conduct.pass(&2, || 0, NOW), Passage::Open);
    }

    /// Clients of a neighbour that publish a lot at once are no flood.
    #[test]
    fn a_busy_neighbour_is_not_muted() {
        let each = Allowance { per_minute: 30_000, burst: 10_000 };
        let mut conduct: Conduct<u8> = Conduct::new(each, Allowance::UNBOUNDED, MUTE, 4);
        assert!((0..10_000).all(|_| conduct.pass(&1, || 0, NOW) == Passage::Open));
        assert!((0..29_999).all(|_| conduct.pass(&1, || 0, NOW) == Passage::TooFast(None)));
        assert!((0..2).any(|_| matches!(conduct.pass(&1, || 0, NOW), Passage::TooFast(Some(_)))));
    }

    #[test]
    fn a_large_message_counts_as_many_small_ones() {
        let each = Allowance { per_minute: 60, burst: 100 };
        let mut conduct: Conduct<u8> = Conduct::new(each, Allowance::UNBOUNDED, MUTE, 4);
        let mut passed = 0;
        while conduct.pass(&1, || 0, NOW) == Passage::Open {
            conduct.weigh(&1, 64 * 1024, NOW);
            passed += 1;
        }
        assert_eq!(passed, 12);
        conduct.weigh(&2, 1000, NOW);
        assert!((0..100).all(|_| conduct.pass(&2, || 0, NOW) == Passage::Open));
    }

    #[test]
    fn nobody_is_blamed_for_what_all_send_together() {
        let all = Allowance { per_minute: 60, burst: 10 };
        let mut conduct: Conduct<u8> = Conduct::new(Allowance::UNBOUNDED, all, MUTE, 4);
        assert!((0..10).all(|nth| conduct.pass(&nth, || 0, NOW) == Passage::Open));
        assert!((0..200).all(|nth| conduct.pass(&nth, || 0, NOW) == Passage::Busy));
    }

    #[test]
    fn few_are_remembered() {
        let mut conduct = free();
        for who in 0..100 {
            conduct.blame(&who, Fault::TooLarge, 0, NOW);
        }
        assert_eq!(conduct.records.len(), 4);
    }

    proptest! {
        /// Whoever passes a flood on is muted later than who sends it, however far it says it has come.
        #[test]
        fn who_passes_a_flood_on_outlasts_who_sends_it(hops in 0..HOPS_MAX, bad in any::<bool>()) {
            let fault = if bad { Fault::BadSignature } else { Fault::TooFast };
            let after_one = |hops| {
                let mut conduct = free();
                conduct.blame(&1, fault, hops, NOW);
                conduct.records.peek(&1).map(|record| record.points)
            };
            prop_assert!(after_one(hops + 1) < after_one(hops));
            prop_assert!(after_one(hops + 1) > Some(0));
        }

        /// However faults come, points stay bounded, and a mute is no longer than it may be.
        #[test]
        fn mutes_are_bounded(steps in proptest::collection::vec((0..3_u8, 0..40_u16, 0..100_000_i64), 1..200)) {
            let (mut conduct, mut now) = (free(), NOW);
            for (who, hops, wait) in steps {
                now = UnixMillis(now.0 + wait);
                if let Some(muted) = conduct.blame(&who, Fault::TooLarge, hops, now) {
                    prop_assert!(muted.until > now && now.until(muted.until) <= MUTE_MAX);
                }
            }
        }
    }
}
