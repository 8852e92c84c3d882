//! One subscription, step by step.

use std::time::Duration;

use super::rig::{CLOCK, PAUSE, Rig, eose, event, live, ok, send, stored};
use crate::state::subs::ITEMS_RESERVED;
use crate::state::{Input, Output, Signs, SubKey};
use crate::{Closing, Item, OVERLAP_SECONDS, Reason, SEEN_IDS_MAX};

/// The id that no event has.
fn zero() -> String {
    "00".repeat(32)
}

fn probe(question: u64, after: &str) -> Output {
    let nothing = format!(r#""ids":["{}"],"limit":1,"since":1,"until":0"#, zero());
    send(&format!(r#"["REQ","{question}",{{{nothing},"after":"{after}"}}]"#))
}

fn said(question: u64, number: u8, cursor: Option<&str>) -> String {
    let more = cursor.map(|cursor| format!(r#",{{"cursor":"{cursor}"}}"#)).unwrap_or_default();
    format!(r#"["EVENT","{question}",{}{more}]"#, event(number, CLOCK))
}

fn closed(key: u64, why: &str) -> [Output; 2] {
    let closing = Closing::Relay(Reason(why.to_owned()));
    [Output::Show(SubKey(key), Item::Closed(closing)), Output::Forget(SubKey(key))]
}

/// A subscription that follows from the cursor `c1` by its third question.
fn following() -> Rig {
    let mut rig = Rig::up(Signs::No);
    assert_eq!(rig.subscribe(1, r#"{"kinds":[1],"limit":5}"#), [probe(0, "")]);
    let out = rig.hear(r#"["EOSE","0",{"cursor":"c0"}]"#);
    assert_eq!(out, [send(r#"["CLOSE","0"]"#), send(r#"["REQ","1",{"kinds":[1],"limit":5}]"#)]);
    assert_eq!(rig.hear(&said(1, 1, None)), [stored(1, 1)]);
    let follow = send(r#"["REQ","2",{"kinds":[1],"after":"c0"}]"#);
    assert_eq!(rig.hear(r#"["EOSE","1"]"#), [eose(1), send(r#"["CLOSE","1"]"#), follow]);
    // What both questions find is shown once.
    assert_eq!(rig.hear(&said(2, 1, Some("c1"))), []);
    rig
}

/// A subscription to a relay without cursors, live by its second question.
fn plain() -> Rig {
    let mut rig = Rig::up(Signs::No);
    assert_eq!(rig.subscribe(1, r#"{"limit":5}"#), [probe(0, "")]);
    let out = rig.hear(r#"["EOSE","0"]"#);
    assert_eq!(out, [send(r#"["CLOSE","0"]"#), send(r#"["REQ","1",{"limit":5}]"#)]);
    assert_eq!(rig.hear(&said(1, 1, None)), [stored(1, 1)]);
    assert_eq!(rig.hear(r#"["EOSE","1"]"#), [eose(1)]);
    rig
}

#[test]
fn stored_then_eose_then_live() {
    let mut rig = following();
    assert_eq!(rig.hear(&said(2, 2, Some("c2"))), [live(1, 2)]);
    assert_eq!(rig.hear(r#"["EOSE","2",{"cursor":"c2"}]"#), []);
    assert_eq!(rig.hear(&said(2, 3, Some("c3"))), [live(1, 3)]);
    // Nothing said about an earlier question counts.
    assert_eq!(rig.hear(&said(1, 4, None)), []);
    assert_eq!(
        rig.handle(Input::Unsubscribe(SubKey(1))),
        [send(r#"["CLOSE","2"]"#), Output::Forget(SubKey(1))]
    );
}

#[test]
fn a_lost_connection_is_resumed_after_the_last_event() {
    let mut rig = following();
    rig.hear(&said(2, 2, Some("c2")));
    assert_eq!(rig.reconnect(), [send(r#"["REQ","3",{"kinds":[1],"after":"c2"}]"#)]);
    assert_eq!(rig.hear(&said(3, 3, Some("c3"))), [live(1, 3)]);
    assert_eq!(rig.hear(r#"["EOSE","3",{"cursor":"c9"}]"#), []);
    assert_eq!(rig.reconnect(), [send(r#"["REQ","4",{"kinds":[1],"after":"c9"}]"#)]);
    // A second subscription begins at the newest cursor anyone was given.
    assert_eq!(rig.subscribe(2, "{}"), [probe(5, "c9")]);
}

#[test]
fn a_cut_among_stored_events_repeats_none_of_them() {
    let mut rig = Rig::up(Signs::No);
    rig.subscribe(1, "{}");
    rig.hear(r#"["EOSE","0",{"cursor":"c0"}]"#);
    assert_eq!(rig.hear(&said(1, 1, None)), [stored(1, 1)]);
    assert_eq!(rig.reconnect(), [send(r#"["REQ","2",{}]"#)]);
    assert_eq!(rig.hear(&said(2, 1, None)), []);
    assert_eq!(rig.hear(&said(2, 2, None)), [stored(1, 2)]);
    let follow = send(r#"["REQ","3",{"after":"c0"}]"#);
    assert_eq!(rig.hear(r#"["EOSE","2"]"#), [eose(1), send(r#"["CLOSE","2"]"#), follow]);
}

#[test]
fn a_full_queue_takes_the_question_back_and_asks_again() {
    let mut rig = following();
    rig.room = ITEMS_RESERVED;
    let pause = [send(r#"["CLOSE","2"]"#), Output::AwaitRoom(SubKey(1))];
    assert_eq!(rig.hear(&said(2, 2, Some("c2"))), pause);
    assert_eq!(rig.hear(&said(2, 3, Some("c3"))), []);
    rig.room = ITEMS_RESERVED + 1;
    let again = send(r#"["REQ","3",{"kinds":[1],"after":"c1"}]"#);
    assert_eq!(rig.handle(Input::Room(SubKey(1))), [again]);
    assert_eq!(rig.hear(&said(3, 2, Some("c2"))), [live(1, 2)]);
}

#[test]
fn a_cursor_that_leads_nowhere_is_replaced_by_an_overlap() {
    for why in ["error: cursor diverged", "error: cursor too old"] {
        let mut rig = following();
        assert_eq!(rig.hear(&format!(r#"["CLOSED","2","{why}"]"#)), []);
        assert_eq!(rig.pass(PAUSE), [probe(3, "")]);
        let since = CLOCK.0 - OVERLAP_SECONDS;
        let again = send(&format!(r#"["REQ","4",{{"kinds":[1],"since":{since}}}]"#));
        let out = rig.hear(r#"["EOSE","3",{"cursor":"d0"}]"#);
        assert_eq!(out, [send(r#"["CLOSE","3"]"#), again]);
        assert_eq!(rig.hear(&said(4, 1, None)), []);
        assert_eq!(rig.hear(&said(4, 2, None)), [live(1, 2)]);
        let follow = send(r#"["REQ","5",{"kinds":[1],"after":"d0"}]"#);
        assert_eq!(rig.hear(r#"["EOSE","4"]"#), [send(r#"["CLOSE","4"]"#), follow]);
    }
}

#[test]
fn a_relay_without_cursors_is_asked_with_an_overlap() {
    let mut rig = plain();
    assert_eq!(rig.hear(&said(1, 2, None)), [live(1, 2)]);
    let since = CLOCK.0 - OVERLAP_SECONDS;
    assert_eq!(rig.reconnect(), [send(&format!(r#"["REQ","2",{{"since":{since}}}]"#))]);
    assert_eq!(rig.hear(&said(2, 2, None)), []);
    assert_eq!(rig.hear(&said(2, 3, None)), [live(1, 3)]);
    assert_eq!(rig.hear(r#"["EOSE","2"]"#), []);
    // It is known by now, so nobody probes again.
    assert_eq!(rig.subscribe(2, "{}"), [send(r#"["REQ","3",{}]"#)]);
}

#[test]
fn a_probe_that_is_not_answered_or_refused_is_done_without() {
    let mut rig = Rig::up(Signs::No);
    rig.subscribe(1, "{}");
    let out = rig.pass(Duration::from_secs(10));
    assert_eq!(out, [send(r#"["CLOSE","0"]"#), send(r#"["REQ","1",{}]"#)]);
    assert_eq!(rig.subscribe(2, "{}"), [probe(2, "")]);
    assert_eq!(rig.hear(r#"["CLOSED","2","invalid: after"]"#), [send(r#"["REQ","3",{}]"#)]);
    assert_eq!(rig.hear(r#"["CLOSED","3","restricted: no"]"#), closed(2, "restricted: no"));
}

#[test]
fn what_passes_is_asked_again_and_not_for_ever() {
    let mut rig = plain();
    let mut question = 1;
    for _ in 0..10 {
        let said = format!(r#"["CLOSED","{question}","rate-limited: slow down"]"#);
        assert_eq!(rig.hear(&said), []);
        assert_eq!(rig.pass(PAUSE * 8).len(), 1);
        question += 1;
    }
    let said = format!(r#"["CLOSED","{question}","rate-limited: slow down"]"#);
    assert_eq!(rig.hear(&said), closed(1, "rate-limited: slow down"));
}

#[test]
fn a_question_that_needs_a_name_waits_for_it() {
    const WHY: &str = "auth-required: authenticate to read";
    for accepted in [true, false] {
        let mut rig = Rig::up(Signs::Yes);
        rig.subscribe(1, "{}");
        rig.hear(r#"["AUTH","c"]"#);
        assert_eq!(rig.hear(&format!(r#"["CLOSED","0","{WHY}"]"#)), []);
        rig.handle(Input::Signed(Some(event(9, CLOCK))));
        let out = rig.hear(&ok(9, accepted, ""));
        if accepted {
            assert_eq!(out, [probe(1, "")]);
        } else {
            assert_eq!(out, closed(1, WHY));
        }
    }
}

/// At n and n + 1: as many stored events as can be recognised may be taken slowly, and no more.
#[test]
fn more_stored_events_than_can_be_recognised_end_a_slow_subscription() {
    for more in [0, 1] {
        let mut rig = Rig::up(Signs::No);
        rig.subscribe(1, "{}");
        rig.hear(r#"["EOSE","0"]"#);
        for number in 0..SEEN_IDS_MAX + more {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
            let event = super::rig::event_with(kukuri_event::EventId::from_bytes(bytes), CLOCK);
            assert_eq!(rig.hear(&format!(r#"["EVENT","1",{event}]"#)).len(), 1);
        }
        rig.room = ITEMS_RESERVED;
        let out = rig.hear(&said(1, 200, None));
        let close = send(r#"["CLOSE","1"]"#);
        if more == 0 {
            assert_eq!(out, [close, Output::AwaitRoom(SubKey(1))]);
        } else {
            let ended = Output::Show(SubKey(1), Item::Closed(Closing::TooManyStored));
            assert_eq!(out, [ended, close, Output::Forget(SubKey(1))]);
        }
    }
}
