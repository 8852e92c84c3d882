//! Random acts of the node itself: limits, retention, memory, the floor of the feed, leases.

use kukuri_core::ladder::{Cause, Move, Reason, Step};
use kukuri_core::{
    Act, Allowance, Backfill, Capacity, Fence, Holder, IngestPolicy, OnFull, Priority, Retention,
    Seq, Storage, Task, UnixMillis, UnlinkReason, Usage,
};

use super::{Dice, World};

/// A policy that often has limits, few enough to be reached.
pub(super) fn policy(dice: &mut Dice) -> IngestPolicy {
    IngestPolicy {
        retention_days: *dice.pick(&[None, None, Some(7), Some(90)]),
        max_lag_seconds: *dice.pick(&[None, Some(60)]),
        backfill: dice.weigh(&[(Backfill::On, 80), (Backfill::Off, 20)]),
        priority: dice.weigh(&[(Priority::Normal, 80), (Priority::Low, 20)]),
        on_full: dice.weigh(&[(OnFull::Evict, 50), (OnFull::Refuse, 50)]),
        max_events: dice.weigh(&[(None, 75), (Some(0), 3), (Some(2), 12), (Some(4), 10)]),
        max_bytes: dice.weigh(&[(None, 85), (Some(900), 10), (Some(2000), 5)]),
    }
}

fn capacity(dice: &mut Dice) -> Capacity {
    Capacity {
        max_events: dice.weigh(&[(None, 60), (Some(3), 20), (Some(6), 20)]),
        max_bytes: dice.weigh(&[(None, 80), (Some(2500), 20)]),
    }
}

pub(super) fn allow(dice: &mut Dice) -> Act {
    let steps = [
        (Step::None, 60),
        (Step::StopBackfill, 15),
        (Step::StopLowPriority, 15),
        (Step::EvictOldest, 10),
    ];
    let retention = Retention { regular_days: 3, history_days: 1, deletion_days: 20 };
    Act::Allow(Allowance {
        capacity: capacity(dice),
        on_full: dice.weigh(&[(OnFull::Evict, 60), (OnFull::Refuse, 40)]),
        retention: dice.weigh(&[(Retention::STANDARD, 70), (retention, 30)]),
        step: dice.weigh(&steps),
        storage: storage(dice),
    })
}

fn storage(dice: &mut Dice) -> Storage {
    dice.weigh(&[
        (Storage::Open, 90),
        (Storage::Full { reserve_bytes: 7 }, 7),
        (Storage::Spent { reserve_bytes: 3 }, 3),
    ])
}

pub(super) fn climb(dice: &mut Dice) -> Act {
    let (from, to) = (*dice.pick(Step::ALL), *dice.pick(Step::ALL));
    let reason = match dice.chance(50) {
        true => Reason::Relief,
        false => {
            let beyond_help = dice.chance(50);
            Reason::Pressure(Cause::Disk { free_bytes: 3, free_bytes_min: 7, beyond_help })
        }
    };
    Act::Climb(Move { from, to, at: World::now(), reason })
}

pub(super) fn set_storage(dice: &mut Dice) -> Act {
    Act::SetStorage(storage(dice))
}

pub(super) fn unlink(world: &World, dice: &mut Dice) -> Act {
    let events = match dice.chance(50) {
        true => world.ids(),
        false => dice.some(&world.ids(), 3),
    };
    let before = UnixMillis(World::now().0 + dice.range(0..20_000));
    let reasons = [
        UnlinkReason::Retention,
        UnlinkReason::Capacity,
        UnlinkReason::Topic,
        UnlinkReason::Before(before),
    ];
    Act::Unlink { topic: dice.pick(&world.topics).clone(), events, reason: *dice.pick(&reasons) }
}

pub(super) fn evict(world: &World, dice: &mut Dice) -> Act {
    let mut events = world.ids();
    dice.shuffle(&mut events);
    let to = Usage {
        events: dice.weigh(&[(0, 20), (2, 40), (u64::MAX, 40)]),
        bytes: dice.weigh(&[(0, 10), (1500, 40), (u64::MAX, 50)]),
    };
    Act::Evict { events, to }
}

pub(super) fn forget(world: &World, dice: &mut Dice) -> Act {
    let keys = world.keys();
    Act::Forget {
        events: keys.events.into_iter().collect(),
        tombstones: keys.tombstones.into_iter().collect(),
        before: UnixMillis(World::now().0 + dice.range(-1_000..20_000)),
    }
}

/// Scripts do not know how far the feed has come: some cut nothing, some all of it.
pub(super) fn trim(dice: &mut Dice) -> Act {
    Act::Trim(Seq(dice.range(0..300)))
}

pub(super) fn hold(dice: &mut Dice) -> Act {
    let (task, holder) = (Task::Upkeep, Holder(dice.below(2) as u64));
    match dice.chance(70) {
        true => Act::Hold { task, holder, lease_ms: *dice.pick(&[0, 1_000, 60_000]) },
        false => Act::Release { task, holder },
    }
}

/// As its holder does it, or one who was the holder once.
pub(super) fn fenced(act: Act, dice: &mut Dice) -> Act {
    let fence = Fence(1 + dice.below(3) as u64);
    Act::Fenced { task: Task::Upkeep, fence, act: Box::new(act) }
}
