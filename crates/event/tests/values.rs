//! The small values: kinds, prefixes, addresses, tags.

use std::cmp::Ordering;

use kukuri_event::{Address, Class, EventId, Kind, Pubkey, Tag, TagLetter, Tags, UnixSeconds};
use proptest::prelude::*;

#[test]
fn every_kind_has_the_class_that_nip_01_gives_it() {
    for (kind, class) in [
        (0, Class::Replaceable),
        (1, Class::Regular),
        (2, Class::Regular),
        (3, Class::Replaceable),
        (4, Class::Regular),
        (5, Class::Regular),
        (44, Class::Regular),
        (45, Class::Regular),
        (999, Class::Regular),
        (1_000, Class::Regular),
        (9_999, Class::Regular),
        (10_000, Class::Replaceable),
        (19_999, Class::Replaceable),
        (20_000, Class::Ephemeral),
        (29_999, Class::Ephemeral),
        (30_000, Class::Addressable),
        (39_999, Class::Addressable),
        (40_000, Class::Regular),
        (65_535, Class::Regular),
    ] {
        assert_eq!(Kind(kind).class(), class, "{kind}");
    }
}

fn tags(tags: &[&[&str]]) -> Tags {
    let tag = |fields: &&[&str]| Tag::new(fields.iter().map(ToString::to_string).collect());
    Tags::new(tags.iter().map(|fields| tag(fields).expect("it has a name")).collect())
}

#[test]
fn the_first_d_tag_counts() {
    assert_eq!(tags(&[]).d(), None);
    assert_eq!(tags(&[&["D", "x"]]).d(), None);
    assert_eq!(tags(&[&["d"]]).d(), Some(""));
    assert_eq!(tags(&[&["e", "y"], &["d", "x"], &["d", "z"]]).d(), Some("x"));
    assert_eq!(tags(&[&["d"], &["d", "z"]]).d(), Some(""));
}

/// A tag that says nothing does not hide one that does.
#[test]
fn the_first_expiration_that_is_a_number_counts() {
    let end = |values: &[&[&str]]| tags(values).expiration();
    assert_eq!(end(&[&["expiration", "soon"], &["expiration", "7"]]), Some(UnixSeconds(7)));
    assert_eq!(end(&[&["expiration"], &["expiration", "7"]]), Some(UnixSeconds(7)));
    assert_eq!(end(&[&["expiration", "9"], &["expiration", "7"]]), Some(UnixSeconds(9)));
    assert_eq!(end(&[&["expiration"]]), None);
    assert_eq!(end(&[&["expirations", "7"]]), None);
    assert_eq!(end(&[&["expiration", "９"]]), None);
}

#[test]
fn targets_that_name_nothing_are_left_out() {
    let (id, key) = ("0a".repeat(32), "0b".repeat(32));
    let address = format!("30023:{key}:x");
    let upper = id.to_uppercase();
    let tags = tags(&[
        &["e", &id, "wss://relay"],
        &["e", &upper],
        &["e", "x"],
        &["e"],
        &["a", &address],
        &["a", "30023::x"],
        &["a"],
    ]);
    assert_eq!(tags.event_ids().collect::<Vec<_>>(), [EventId::from_bytes([0x0a; 32])]);
    let addresses: Vec<Address> = tags.addresses().collect();
    assert_eq!(addresses.len(), 1);
    assert_eq!((addresses[0].kind, addresses[0].d.as_str()), (Kind(30_023), "x"));
}

#[test]
fn filters_can_ask_for_ascii_letters() {
    for name in ["a", "z", "A", "Z"] {
        assert_eq!(
            TagLetter::parse(name).map(|letter| letter.as_char().to_string()),
            Some(name.into())
        );
    }
    for name in ["", "1", "-", "é", "ab", " a", "#"] {
        assert_eq!(TagLetter::parse(name), None, "{name:?}");
    }
}

proptest! {
    /// Indexes sort by the prefix, answers by the bytes; the two must never disagree.
    #[test]
    fn prefixes_sort_as_their_values_do(one in any::<[u8; 32]>(), two in any::<[u8; 32]>(), share in 0..33_usize) {
        let mut two = two;
        two[..share].copy_from_slice(&one[..share]);
        let (one_id, two_id) = (EventId::from_bytes(one), EventId::from_bytes(two));
        let by_prefix = one_id.prefix().cmp(&two_id.prefix());
        prop_assert!(by_prefix == one_id.cmp(&two_id) || by_prefix == Ordering::Equal);
        prop_assert_eq!(by_prefix == Ordering::Equal, one[..8] == two[..8]);
        prop_assert_eq!(Pubkey::from_bytes(one).prefix(), one_id.prefix());
    }

    #[test]
    fn hex_is_read_as_it_is_written(bytes in any::<[u8; 32]>()) {
        let id = EventId::from_bytes(bytes);
        prop_assert_eq!(EventId::parse(&id.to_hex()), Ok(id));
        prop_assert_eq!(EventId::from_slice(id.as_bytes()), Some(id));
        prop_assert_eq!(EventId::from_slice(&bytes[1..]), None);
    }
}
