//! One random event of a world: what it says, and whom it names.

use kukuri_core::VersionKey;
use kukuri_core::admission::Checked;
use kukuri_event::{Event, EventId, Kind, UnixSeconds};
use kukuri_store::conformance::signing::Draft;

use super::{Dice, World};

/// Few kinds, of every class, so that keys and targets meet often.
const KINDS: &[(u16, u32)] =
    &[(1, 6), (5, 8), (0, 2), (3, 1), (10_002, 2), (30_023, 7), (7, 3), (20_001, 1)];

/// Few seconds, so that ties are common.
const SECONDS: i64 = 6;

pub(super) const EXPIRES_WITHIN: i64 = 12;

pub(super) const D_VALUES: [&str; 4] = ["", "a", "a\0b", "ü名"];

/// Values that index and matcher must agree on: short, empty, around the indexed length, and two
/// that share a beginning of that length.
pub(super) fn tag_values() -> Vec<String> {
    let long = "r".repeat(255);
    let tails = ["", "1", "2"].map(|tail| format!("{long}{tail}"));
    let short = ["x", "X", "", "x\0", "é"].map(str::to_owned);
    short.into_iter().chain(tails).collect()
}

/// The number of the author, and what the event says.
pub(super) fn draft(world: &World, dice: &mut Dice) -> (usize, Draft) {
    let author = dice.below(world.authors.len());
    let kind = dice.weigh(KINDS);
    let created_at = World::NOW.saturating_sub(dice.range(1..1 + SECONDS));
    let mut draft = Draft::new(kind, created_at).content(format!("{}", dice.below(1000)));
    for topic in dice.some(&world.topics, 3) {
        draft = draft.tag("t", topic);
    }
    if dice.chance(10) {
        draft = draft.tag("t", "hashtag");
    }
    draft = match kind {
        5 => targets(draft, author, world, dice),
        30_023 => d(draft, dice),
        _ => mentions(draft, world, dice),
    };
    if dice.chance(20) {
        draft = expiration(draft, dice);
    }
    dice.shuffle(&mut draft.tags);
    (author, draft)
}

fn d(mut draft: Draft, dice: &mut Dice) -> Draft {
    if dice.chance(10) {
        draft.tags.push(vec!["d".to_owned()]);
        return draft;
    }
    draft.tag("d", dice.pick(&D_VALUES))
}

fn expiration(draft: Draft, dice: &mut Dice) -> Draft {
    if dice.chance(10) {
        return draft.tag("expiration", dice.pick(&["soon", "", "-1", "1e9"]));
    }
    let end = World::NOW.saturating_add(dice.range(1..1 + EXPIRES_WITHIN));
    draft.tag("expiration", end)
}

fn mentions(mut draft: Draft, world: &World, dice: &mut Dice) -> Draft {
    for _ in 0..dice.below(4) {
        draft = match dice.below(5) {
            0 => draft.tag("p", dice.pick(&world.authors).pubkey()),
            1 => draft.tag("e", any_id(world, dice)),
            2 => draft.tag("E", dice.pick(&tag_values())),
            3 => draft.tag("emoji", "x"),
            _ => draft.tag("r", dice.pick(&tag_values())),
        };
    }
    if dice.chance(5) {
        draft.tags.push(vec!["e".to_owned()]);
    }
    draft
}

/// Mostly one's own events, and a bit of everything that must have no effect.
fn targets(mut draft: Draft, author: usize, world: &World, dice: &mut Dice) -> Draft {
    let pubkey = world.authors[author].pubkey();
    let events = || world.events.iter().map(Checked::event);
    let own: Vec<&Event> = events().filter(|event| event.pubkey() == pubkey).collect();
    for _ in 0..1 + dice.below(3) {
        let target = if own.is_empty() || dice.chance(20) { None } else { Some(*dice.pick(&own)) };
        let address = target.and_then(VersionKey::of).filter(|_| dice.chance(50));
        draft = match (address, target) {
            (Some(key), _) => draft.tag("a", key.to_text()),
            (None, Some(event)) => draft.tag("e", event.id()),
            (None, None) => draft.tag(["a", "e"][dice.below(2)], odd_target(world, dice)),
        };
    }
    if dice.chance(30) {
        // A limit for a key of which perhaps no version is ever seen.
        let (kind, d) = *dice.pick(&[(0, ""), (10_002, ""), (30_023, "a"), (30_023, "a\0b")]);
        let key = VersionKey { kind: Kind(kind), pubkey, d: d.to_owned() };
        draft = draft.tag("a", key.to_text());
    }
    draft
}

fn odd_target(world: &World, dice: &mut Dice) -> String {
    let pubkey = dice.pick(&world.authors).pubkey();
    match dice.below(6) {
        0 => format!("30023:{pubkey}:a"),
        1 => format!("1:{pubkey}:"),
        2 => format!("10002:{pubkey}:a"),
        3 => format!("30023:{}:a", pubkey.to_hex().to_uppercase()),
        4 => "nonsense".to_owned(),
        _ => any_id(world, dice),
    }
}

/// The id of an event made before, or of one that never comes.
fn any_id(world: &World, dice: &mut Dice) -> String {
    let unknown = EventId::from_bytes(dice.bytes());
    if world.events.is_empty() || dice.chance(10) {
        return unknown.to_hex();
    }
    dice.pick(&world.events).event().id().to_hex()
}

/// A time around those of the world's events.
pub(super) fn second(dice: &mut Dice) -> UnixSeconds {
    World::NOW.saturating_sub(dice.range(0..2 + SECONDS))
}
