//! What messages are taken for events, and which events go out, by the rules alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use kukuri_core::admission::{Age, Door, Topicless, Verdict};
use kukuri_core::{Admitted, FeedRow, Limits, Op, Rejection, Seq, Source, TopicId, UnixMillis};
use kukuri_event::{Body, Kind, UnixSeconds};
use kukuri_gossip::message::{Refusal, Unreadable, WRAPPING_BYTES_MAX, read};
use kukuri_gossip::outgoing::{EVENT_BYTES_MAX, Kept, of_body, of_ephemeral, of_row};
use kukuri_store::conformance::signing::{Author, Draft, check};
use proptest::prelude::*;

const NOW: UnixSeconds = UnixSeconds(1_773_100_900);
/// The same as 1 773 100 800.
const DATE: &str = "2026-03-10T00:00:00Z";
const DATE_SECONDS: UnixSeconds = UnixSeconds(1_773_100_800);

fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

fn draft(kind: u16) -> Draft {
    Draft::new(kind, DATE_SECONDS).tag("t", topic('a'))
}

fn sign(draft: &Draft) -> String {
    Author::numbered(1).sign(draft)
}

/// The earlier client's envelope, as bincode 2 writes it.
fn envelope(subject: u8, payload: &[u8]) -> Vec<u8> {
    fn number(n: usize) -> Vec<u8> {
        match n {
            0..251 => vec![n as u8],
            251..0x1_0000 => [&[251][..], &(n as u16).to_le_bytes()].concat(),
            _ => [&[252][..], &(n as u32).to_le_bytes()].concat(),
        }
    }
    let (id, stamp, sender) = ([7; 32], number(1000), b"an endpoint id");
    [
        &id[..],
        &[subject],
        &number(payload.len()),
        payload,
        &stamp,
        &number(sender.len()),
        sender,
        &[0],
    ]
    .concat()
}

fn taken(bytes: &[u8], swarm: &TopicId) -> Result<String, Refusal> {
    let door = Door {
        limits: &Limits::STANDARD,
        topicless: Topicless::Reject,
        age: Age::Bounded,
        now: UnixMillis::from(NOW),
        handles: &|_| true,
    };
    let screened = read(bytes, swarm, &door)?;
    let checked = screened.verify().map_err(Refusal::Rejected)?;
    Ok(checked.event().id().to_hex())
}

fn id_of(json: &str) -> String {
    check(json, NOW).unwrap().event().id().to_hex()
}

#[test]
fn an_event_is_taken_in_every_form_that_was_ever_sent() {
    let json = sign(&draft(1).content("「こんにちは」\n\"you\""));
    let seconds = format!("\"created_at\":{DATE_SECONDS}");
    assert!(json.contains(&seconds));
    let dated = |date: &str| json.replace(&seconds, &format!("\"created_at\": \"{date}\""));
    let (zone, parts) = (dated("2026-03-10T09:00:00+09:00"), dated("2026-03-10T00:00:00.123Z"));
    for text in [json.clone(), dated(DATE), zone, parts] {
        assert_eq!(taken(text.as_bytes(), &topic('a')), Ok(id_of(&json)), "{text}");
        let wrapped = envelope(0, text.as_bytes());
        assert_eq!(taken(&wrapped, &topic('a')), Ok(id_of(&json)), "{text}");
    }
    // The id was made with the seconds: another date is another event.
    let other = dated("2026-03-10T00:00:01Z");
    let refused = Err(Refusal::Rejected(Rejection::IdMismatch));
    assert_eq!(taken(other.as_bytes(), &topic('a')), refused);
}

#[test]
fn what_is_no_event_of_the_swarm_is_refused() {
    let json = sign(&draft(1));
    let unreadable = |why| Err(Refusal::Unreadable(why));
    assert_eq!(taken(json.as_bytes(), &topic('b')), Err(Refusal::ForeignTopic));
    for other in 1..=3 {
        let bytes = envelope(other, json.as_bytes());
        assert_eq!(taken(&bytes, &topic('a')), unreadable(Unreadable::OtherSubject));
    }
    assert_eq!(taken(b"{\xff}", &topic('a')), unreadable(Unreadable::NotText));
    assert!(matches!(taken(b"", &topic('a')), Err(Refusal::Unreadable(Unreadable::Envelope(_)))));
    assert!(matches!(
        taken(b"hello", &topic('a')),
        Err(Refusal::Unreadable(Unreadable::Envelope(_)))
    ));
    assert!(matches!(taken(b"{}", &topic('a')), Err(Refusal::Rejected(Rejection::Malformed(_)))));
    let protected = Draft {
        tags: vec![vec!["-".to_owned()], vec!["t".to_owned(), topic('a').to_string()]],
        ..draft(1)
    };
    assert_eq!(taken(sign(&protected).as_bytes(), &topic('a')), Err(Refusal::Protected));
    for kind in [39020, 39021, 39022] {
        let refused = Err(Refusal::Rejected(Rejection::P2pOnly));
        assert_eq!(taken(sign(&draft(kind)).as_bytes(), &topic('a')), refused);
    }
    let other = sign(&draft(1).content("other"));
    let sig = |json: &str| json.split("\"sig\":\"").nth(1).unwrap()[..128].to_owned();
    let forged = json.replace(&sig(&json), &sig(&other));
    let refused = Err(Refusal::Rejected(Rejection::BadSignature));
    assert_eq!(taken(forged.as_bytes(), &topic('a')), refused);
}

/// An event whose JSON has so many bytes.
fn sized(bytes: usize) -> String {
    let empty = sign(&draft(1)).len();
    let json = sign(&draft(1).content("x".repeat(bytes - empty)));
    assert_eq!(json.len(), bytes);
    json
}

#[test]
fn the_largest_event_fits_and_one_byte_more_does_not() {
    let max = Limits::STANDARD.event_bytes_max;
    assert_eq!(max, EVENT_BYTES_MAX);
    for bytes in [max - 1, max] {
        let json = sized(bytes);
        assert_eq!(taken(json.as_bytes(), &topic('a')), Ok(id_of(&json)));
        assert_eq!(taken(&envelope(0, json.as_bytes()), &topic('a')), Ok(id_of(&json)));
        let seconds = format!("\"created_at\":{DATE_SECONDS}");
        let dated = json.replace(&seconds, &format!("\"created_at\":\"{DATE}\""));
        assert_eq!(taken(dated.as_bytes(), &topic('a')), Ok(id_of(&json)), "a date is longer");
    }
    let large = sized(max + 1);
    let refused = Err(Refusal::Rejected(Rejection::TooLarge));
    assert_eq!(taken(large.as_bytes(), &topic('a')), refused);
    let any = vec![b'{'; max + WRAPPING_BYTES_MAX];
    assert!(matches!(taken(&any, &topic('a')), Err(Refusal::Rejected(_))));
    let more = vec![b'{'; max + WRAPPING_BYTES_MAX + 1];
    assert_eq!(taken(&more, &topic('a')), Err(Refusal::Unreadable(Unreadable::TooLarge)));
    let body = |json: &str| Body::restore(json.to_owned()).unwrap();
    assert_eq!(of_body(&body(&sized(max))), Ok(&sized(max)[..]));
    assert_eq!(of_body(&body(&large)), Err(Kept::TooLarge));
}

fn admitted(draft: &Draft, source: Source, via: Option<TopicId>) -> Admitted {
    let checked = check(&sign(draft), NOW).unwrap();
    checked.admit(Verdict::Admit, source, via).unwrap()
}

fn row(op: Op, kind: u16, source: Source, via: Option<char>) -> FeedRow {
    let event = admitted(&draft(1), Source::Ws, None);
    FeedRow {
        seq: Seq(1),
        op,
        event_id: event.event().id(),
        topic_id: topic('a'),
        prior: Vec::new(),
        kind: Kind(kind),
        pubkey: event.event().pubkey(),
        created_at: event.event().created_at(),
        ingested_at: UnixMillis(0),
        effective_key: None,
        reason: None,
        source,
        via: via.map(topic),
    }
}

#[test]
fn protected_events_and_those_for_peers_alone_stay_here() {
    let tags = vec![vec!["-".to_owned()], vec!["t".to_owned(), topic('a').to_string()]];
    let protected = admitted(&Draft { tags, ..draft(1) }, Source::Ws, None);
    assert_eq!(of_body(protected.body()), Err(Kept::Protected));
    for kind in [39020, 39021, 39022] {
        let body = Body::restore(sign(&draft(kind))).unwrap();
        assert_eq!(of_body(&body), Err(Kept::P2pOnly));
        assert_eq!(of_row(&row(Op::Upsert, kind, Source::Ws, None)), Err(Kept::P2pOnly));
    }
}

#[test]
fn an_ephemeral_event_goes_to_its_swarms_and_not_back() {
    let both = Draft::new(20_001, DATE_SECONDS).tag("t", topic('a')).tag("t", topic('b'));
    let carried = BTreeSet::from([topic('a'), topic('b'), topic('c')]);
    let out = |source, via: Option<char>, carried: &BTreeSet<TopicId>| {
        of_ephemeral(&admitted(&both, source, via.map(topic)), carried)
    };
    assert_eq!(out(Source::Ws, None, &carried), [topic('a'), topic('b')]);
    assert_eq!(out(Source::Gossip, Some('a'), &carried), [topic('b')]);
    assert_eq!(out(Source::Ws, None, &BTreeSet::from([topic('b')])), [topic('b')]);
    assert_eq!(out(Source::Import, None, &carried), Vec::<TopicId>::new());
}

proptest! {
    /// The rule of the design, said the other way round: a row goes out iff it is a new event that came by
    /// a client, paid or not, or through another swarm.
    #[test]
    fn what_goes_out(
        upsert in any::<bool>(),
        source in prop::sample::select(Source::ALL),
        via in prop::sample::select(vec![None, Some('a'), Some('b')]),
    ) {
        let op = if upsert { Op::Upsert } else { Op::Delete };
        let by_client = matches!(source, Source::Ws | Source::Paid);
        let bridged = source == Source::Gossip && via == Some('b');
        let goes = of_row(&row(op, 1, source, via)).is_ok();
        prop_assert_eq!(goes, upsert && (by_client || bridged));
    }

    #[test]
    fn no_message_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..400), json in any::<bool>()) {
        let bytes = if json { [&b"{"[..], &bytes].concat() } else { bytes };
        prop_assert!(taken(&bytes, &topic('a')).is_err());
    }
}
