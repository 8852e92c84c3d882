//! Ids, signatures and texts agree with another implementation, the `nostr` crate; and what is stored is
//! what was verified.

use kukuri_event::{BadSignature, Body, Event, IdMismatch};
use nostr::event::{Event as Theirs, Kind, Tag, UnsignedEvent};
use nostr::key::Keys;
use nostr::types::time::Timestamp;
use proptest::prelude::*;
use secp256k1::SECP256K1;

/// An event that the other implementation made and signed.
fn signed(secret: u8, created_at: u64, kind: u16, tags: &[Vec<String>], content: &str) -> Theirs {
    let keys = Keys::parse(&format!("{:064x}", u64::from(secret) + 1)).expect("a small key");
    let tags: Vec<Tag> = tags.iter().map(|tag| Tag::parse(tag).expect("it has a name")).collect();
    let created_at = Timestamp::from(created_at);
    let unsigned =
        UnsignedEvent::new(keys.public_key(), created_at, Kind::from(kind), tags, content);
    let id = unsigned.compute_id();
    let sig = keys.sign_schnorr_with_aux_rand(SECP256K1, id.as_bytes(), &[secret; 32]);
    unsigned.add_signature(sig).expect("it has just been signed")
}

/// Strings of every sort of character that JSON treats in its own way.
fn text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "\0",
        "\u{1}",
        "\u{8}",
        "\t",
        "\n",
        "\u{b}",
        "\u{c}",
        "\r",
        "\u{1b}",
        "\u{1f}",
        " ",
        "\"",
        "\\",
        "/",
        "\u{7f}",
        "\u{80}",
        "é",
        "括り",
        "🦊",
        "\u{2028}",
        "\u{2029}",
        "\u{feff}",
        "\u{ffff}",
        "\\u0000",
        "</script>",
    ]);
    let pieces = prop_oneof![odd.prop_map(str::to_owned), any::<String>(), "[a-z]{1,8}"];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

fn tags() -> impl Strategy<Value = Vec<Vec<String>>> {
    prop::collection::vec(prop::collection::vec(text(), 1..4), 0..5)
}

fn event() -> impl Strategy<Value = Theirs> {
    let created_at = prop_oneof![0..=i64::MAX.unsigned_abs(), 0..10_u64];
    (any::<u8>(), created_at, any::<u16>(), tags(), text())
        .prop_map(|(secret, at, kind, tags, content)| signed(secret, at, kind, &tags, &content))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_it_signs_is_verified_here(theirs in event()) {
        let ours = Event::parse(&theirs.as_json()).expect("it is an event");
        prop_assert_eq!(ours.id().to_hex(), theirs.id.to_hex());
        prop_assert_eq!(ours.content(), theirs.content.as_str());
        let verified = ours.clone().identify().expect("the id is right").verify();
        prop_assert!(verified.is_ok());
        prop_assert_eq!(ours.to_json(), theirs.as_json(), "one canonical text");
    }

    /// The text that is stored is an event with the same id and a valid signature to anyone who reads it,
    /// however the text was spelt that came in.
    #[test]
    fn what_is_stored_is_what_was_verified(theirs in event()) {
        let spelt = theirs.as_json().replace('/', "\\/").replace("\"kind\":", "\"more\":[0] , \"kind\" :");
        let verified = Event::parse(&spelt).expect("it is an event").identify().expect("right").verify();
        let body = verified.expect("the signature holds").into_body();
        let stored = Theirs::from_json(body.json()).expect("it is an event");
        prop_assert!(stored.verify().is_ok());
        prop_assert_eq!(&stored, &theirs);
        prop_assert_eq!(body.json(), theirs.as_json());
        let restored = Body::restore(body.json().to_owned()).expect("what is stored can be read");
        prop_assert_eq!(&restored, &*body);
    }

    #[test]
    fn the_canonical_text_is_stable(theirs in event()) {
        let event = Event::parse(&theirs.as_json()).expect("it is an event");
        let text = event.to_json();
        let again = Event::parse(&text).expect("it is an event");
        prop_assert_eq!(&again, &event);
        prop_assert_eq!(again.to_json(), text);
    }

    /// Any change to a value breaks the id, and a new id breaks the signature: for both implementations.
    #[test]
    fn what_was_changed_is_noticed(theirs in event(), other in event()) {
        prop_assume!(theirs.id != other.id);
        let parse = |text: &str| Event::parse(text).expect("it is an event");
        let mut values: serde_json::Value = serde_json::from_str(&theirs.as_json()).expect("JSON");
        let others: serde_json::Value = serde_json::from_str(&other.as_json()).expect("JSON");
        for field in ["pubkey", "created_at", "kind", "tags", "content"] {
            if values[field] == others[field] {
                continue;
            }
            let kept = values[field].clone();
            values[field] = others[field].clone();
            prop_assert_eq!(parse(&values.to_string()).identify().err(), Some(IdMismatch), "{}", field);
            values[field] = kept;
        }
        values["sig"] = others["sig"].clone();
        let forged = parse(&values.to_string()).identify().expect("the id is right");
        prop_assert_eq!(forged.verify().err(), Some(BadSignature));
        let forged = Theirs::from_json(values.to_string()).expect("it is an event");
        prop_assert!(!forged.verify_signature());
    }
}

/// Bytes that are no key and no signature at all are refused like wrong ones.
#[test]
fn nonsense_keys_and_signatures_are_refused() {
    let theirs = signed(1, 1, 1, &[], "");
    for (pubkey, sig) in [("ff", "00"), ("00", "00"), ("ff", "ff")] {
        let (pubkey, sig) = (pubkey.repeat(32), sig.repeat(64));
        let array = format!("[0,\"{pubkey}\",1,1,[],\"\"]");
        let id = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(array.as_bytes()));
        let text = format!(
            r#"{{"id":"{id}","pubkey":"{pubkey}","created_at":1,"kind":1,"tags":[],"content":"","sig":"{sig}"}}"#
        );
        let event = Event::parse(&text).expect("it has the shape of an event");
        let identified = event.identify().expect("the id is right");
        assert_eq!(identified.verify().err(), Some(BadSignature));
    }
    let flipped = theirs.as_json().replace("\"sig\":\"", "\"sig\":\"0");
    assert!(Event::parse(&flipped).is_err());
}
