//! The first message. The library always begins with sixteen ranges and splits by sixteen; how large the
//! last ranges become, whose ids are sent one by one, then depends on how many ids there are, and at worst
//! they are thirty. With the number of first ranges chosen for it they are few: a hundred differences
//! among a hundred thousand ids take a third less.

use negentropy::{Bound, Error, Item, NegentropyStorageBase, PROTOCOL_VERSION};

/// Into how many ranges the library splits one, and below how many ids it lists them.
const SPLIT: usize = 16;
const LISTED_BELOW: usize = 2 * SPLIT;
/// First ranges: few, so that equals find out that they are with a short message.
const RANGES: std::ops::RangeInclusive<usize> = 5..=24;
/// The other side may have a few less: it would list a range that was meant to be split.
const SPARE: usize = LISTED_BELOW / 4;
/// What sixteen fingerprints cost, in ids.
const SPLIT_COST: usize = 10;
const MODE_FINGERPRINT: u64 = 1;
const MODE_LIST: u64 = 2;

/// Begins a reconciliation of what is in the storage, which is sealed.
pub(super) fn message(storage: &impl NegentropyStorageBase) -> Result<Vec<u8>, Error> {
    let count = storage.size()?;
    let mut out = vec![PROTOCOL_VERSION as u8];
    if count < LISTED_BELOW {
        put_bound(&mut out, &mut 0, &Bound::with_timestamp(u64::MAX));
        put_number(&mut out, MODE_LIST);
        put_number(&mut out, count as u64);
        storage.iterate(0, count, &mut |item: Item, _| {
            out.extend(item.id.iter());
            Ok(true)
        })?;
        return Ok(out);
    }
    let ranges = ranges(count);
    let (mut from, mut last_timestamp) = (0, 0);
    for nth in 1..=ranges {
        let to = count * nth / ranges;
        let bound = match storage.get_item(to)? {
            None => Bound::with_timestamp(u64::MAX),
            Some(next) => {
                let before = storage.get_item(to - 1)?.unwrap_or_default();
                between(&before, &next)?
            }
        };
        put_bound(&mut out, &mut last_timestamp, &bound);
        put_number(&mut out, MODE_FINGERPRINT);
        out.extend(storage.fingerprint(from, to)?.iter());
        from = to;
    }
    Ok(out)
}

/// How many first ranges so many ids get.
fn ranges(count: usize) -> usize {
    RANGES.min_by_key(|ranges| cost(count / ranges)).unwrap_or(SPLIT)
}

/// What finding one difference in a range costs in the end, in ids.
fn cost(mut size: usize) -> usize {
    while size >= LISTED_BELOW * SPLIT {
        size /= SPLIT;
    }
    match size {
        0..LISTED_BELOW => size,
        _ if size < LISTED_BELOW + SPARE => LISTED_BELOW + SPARE,
        _ => SPLIT_COST + 2 * size.div_ceil(SPLIT),
    }
}

/// The shortest bound that lies after one item and not after the next.
fn between(before: &Item, next: &Item) -> Result<Bound, Error> {
    if before.timestamp != next.timestamp {
        return Ok(Bound::with_timestamp(next.timestamp));
    }
    let shared = before.id.iter().zip(next.id.iter()).take_while(|(a, b)| a == b).count();
    let prefix: Vec<u8> = next.id.iter().take(shared + 1).copied().collect();
    Bound::with_timestamp_and_id(next.timestamp, prefix)
}

/// Times are told as differences, and the end of all times as zero.
fn put_bound(out: &mut Vec<u8>, last_timestamp: &mut u64, bound: &Bound) {
    let timestamp = bound.item.timestamp;
    match timestamp {
        u64::MAX => put_number(out, 0),
        _ => put_number(out, timestamp.saturating_sub(*last_timestamp).saturating_add(1)),
    }
    *last_timestamp = timestamp;
    put_number(out, bound.id_len as u64);
    out.extend(bound.item.id.iter().take(bound.id_len));
}

/// Seven bits to a byte, the highest first; all but the last have their top bit set.
fn put_number(out: &mut Vec<u8>, number: u64) {
    let bits = u64::BITS - number.leading_zeros();
    for nth in (0..bits.div_ceil(7).max(1)).rev() {
        let part = (number >> (7 * nth)) as u8 & 0x7f;
        out.push(if nth == 0 { part } else { part | 0x80 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_protocol_has_them() {
        for (number, bytes) in [
            (0, &[0][..]),
            (1, &[1]),
            (127, &[127]),
            (128, &[0x81, 0]),
            (300, &[0x82, 0x2c]),
            (u64::MAX, &[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        ] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(out, bytes, "{number}");
        }
    }

    /// Whatever there is to compare, the last ranges are short.
    #[test]
    fn the_last_ranges_are_short() {
        for count in (32..2000).chain((2000..600_000).step_by(997)) {
            assert!(RANGES.contains(&ranges(count)));
            assert!(cost(count / ranges(count)) <= 28, "{count}: {}", cost(count / ranges(count)));
        }
    }
}
