//! Publishing, proving who we are, and the connection itself.

use std::time::Duration;

use super::rig::{
    CLOCK, PAUSE, PING_INTERVAL, PUBLISH_WAIT_MAX, Rig, event, id, ok, published, refused, send,
};
use crate::state::{Input, Output, Signs, Ticket};
use crate::{PublishError, message};

const AUTH_REQUIRED: &str = "auth-required: authenticate to publish";

fn text(number: u8) -> Output {
    Output::Send(message::event(&event(number, CLOCK)))
}

#[test]
fn publishes_are_pipelined_and_answered_in_any_order() {
    let mut rig = Rig::up(Signs::No);
    assert_eq!(rig.publish(1, 1), [text(1)]);
    assert_eq!(rig.publish(2, 2), [text(2)]);
    assert_eq!(rig.hear(&ok(2, false, "blocked: no")), [refused(2, 2, "blocked: no")]);
    assert_eq!(rig.hear(&ok(1, true, "")), [published(1, 1)]);
    assert_eq!(rig.hear(&ok(1, true, "")), []);
}

#[test]
fn one_answer_is_for_all_who_published_the_same_event() {
    let mut rig = Rig::up(Signs::No);
    rig.publish(1, 1);
    rig.publish(2, 1);
    assert_eq!(rig.hear(&ok(1, true, "")), [published(1, 1), published(2, 1)]);
}

#[test]
fn what_has_no_answer_is_sent_again_until_its_deadline() {
    let mut rig = Rig::up(Signs::No);
    rig.publish(1, 1);
    rig.publish(2, 2);
    rig.hear(&ok(1, true, ""));
    assert_eq!(rig.reconnect(), [text(2)]);
    assert_eq!(rig.handle(Input::Lost), []);
    let unanswered = PublishError::Unanswered { id: id(2), waited: PUBLISH_WAIT_MAX };
    let out = rig.pass(PUBLISH_WAIT_MAX);
    assert_eq!(out, [Output::Connect, Output::Answer(Ticket(2), Err(unanswered))]);
    assert_eq!(rig.handle(Input::Opened), []);
}

#[test]
fn a_publish_without_a_connection_waits_for_one() {
    let mut rig = Rig::new(Signs::No);
    assert_eq!(rig.publish(1, 1), []);
    assert_eq!(rig.handle(Input::Opened), [text(1)]);
}

#[test]
fn a_challenge_is_answered_and_what_was_refused_is_said_again() {
    let mut rig = Rig::up(Signs::Yes);
    rig.publish(1, 1);
    assert_eq!(rig.hear(r#"["AUTH","c"]"#), [Output::Sign("c".to_owned())]);
    let proof = event(9, CLOCK);
    let sent = rig.handle(Input::Signed(Some(proof.clone())));
    assert_eq!(sent, [send(&format!(r#"["AUTH",{proof}]"#))]);
    assert_eq!(rig.hear(&ok(1, false, AUTH_REQUIRED)), []);
    assert_eq!(rig.hear(&ok(9, true, "")), [text(1)]);
    // Said by someone who is known, it is final.
    assert_eq!(rig.hear(&ok(1, false, AUTH_REQUIRED)), [refused(1, 1, AUTH_REQUIRED)]);
}

#[test]
fn a_proof_that_is_refused_leaves_the_refusal() {
    let mut rig = Rig::up(Signs::Yes);
    rig.publish(1, 1);
    rig.hear(r#"["AUTH","c"]"#);
    rig.hear(&ok(1, false, AUTH_REQUIRED));
    rig.handle(Input::Signed(Some(event(9, CLOCK))));
    assert_eq!(rig.hear(&ok(9, false, "invalid: no")), [refused(1, 1, AUTH_REQUIRED)]);
}

#[test]
fn without_a_signer_a_refusal_is_final() {
    let mut rig = Rig::up(Signs::No);
    rig.publish(1, 1);
    assert_eq!(rig.hear(r#"["AUTH","c"]"#), []);
    assert_eq!(rig.hear(&ok(1, false, AUTH_REQUIRED)), [refused(1, 1, AUTH_REQUIRED)]);
}

#[test]
fn a_silent_relay_is_pinged_and_then_given_up() {
    let mut rig = Rig::up(Signs::No);
    assert_eq!(rig.pass(PING_INTERVAL), [Output::Ping]);
    rig.handle(Input::Heard);
    assert_eq!(rig.pass(PING_INTERVAL), [Output::Ping]);
    assert_eq!(rig.pass(PING_INTERVAL), [Output::Disconnect]);
    assert_eq!(rig.pass(PAUSE), [Output::Connect]);
}

#[test]
fn pauses_grow_until_the_relay_speaks() {
    let mut rig = Rig::up(Signs::No);
    for pause in [PAUSE, PAUSE * 2, PAUSE * 4, PAUSE * 8, PAUSE * 8] {
        assert_eq!(rig.handle(Input::Lost), []);
        assert_eq!(rig.pass(pause - Duration::from_millis(1)), []);
        assert_eq!(rig.pass(Duration::from_millis(1)), [Output::Connect]);
        rig.handle(Input::Opened);
    }
    rig.hear(r#"["EOSE","77"]"#);
    assert_eq!(rig.handle(Input::Lost), []);
    assert_eq!(rig.pass(PAUSE), [Output::Connect]);
}
