//! Admission: every refusal can be reached, each at its limit, and in the order of the list.

mod bounds;
mod order;
mod topics;

use std::sync::Arc;

use kukuri_core::admission::{Age, Door, Rate, Topicless, Verdict, screen};
use kukuri_core::{Admitted, Limits, Rejection, Source, TopicId, UnixMillis};
use kukuri_event::{Body, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

fn topic(nth: usize) -> TopicId {
    TopicId::parse(&format!("kukuri:{nth:064x}")).expect("64 hex digits make a topic")
}

/// A note that every door takes.
fn note() -> Draft {
    Draft::new(1, NOW).tag("t", topic(0))
}

fn of_kind(kind: u16) -> Draft {
    Draft::new(kind, NOW).tag("t", topic(0))
}

/// An event on its way, and the doors it comes to.
struct Trial {
    draft: Draft,
    /// What is done to the signed text.
    spoil: Vec<fn(String) -> String>,
    rate: Rate,
    verdict: Verdict,
    topicless: Topicless,
    age: Age,
    handles: fn(&TopicId) -> bool,
    /// What the door verified before.
    seen: Option<Arc<Body>>,
}

impl Trial {
    fn of(draft: Draft) -> Trial {
        Trial {
            draft,
            spoil: Vec::new(),
            rate: Rate::Within,
            verdict: Verdict::Admit,
            topicless: Topicless::Reject,
            age: Age::Bounded,
            handles: |_| true,
            seen: None,
        }
    }

    fn run(&self) -> Result<Admitted, Rejection> {
        let text = Author::numbered(1).sign(&self.draft);
        let text = self.spoil.iter().fold(text, |text, spoil| spoil(text));
        let door = Door {
            limits: &Limits::STANDARD,
            topicless: self.topicless,
            age: self.age,
            now: UnixMillis::from(NOW),
            handles: &self.handles,
        };
        let screened = screen(&text, self.rate, &door)?;
        screened.verify_unless(self.seen.clone())?.admit(self.verdict, Source::Ws, None)
    }

    fn refusal(&self) -> Option<Rejection> {
        self.run().err()
    }
}

fn refusal(draft: Draft) -> Option<Rejection> {
    Trial::of(draft).refusal()
}

/// An event that was verified is not verified again, and lends its good name to nothing else.
#[test]
fn the_same_event_is_taken_for_the_one_that_was_verified() {
    let seen = Arc::clone(Trial::of(note()).run().expect("it is admitted").body());
    let again = Trial { seen: Some(Arc::clone(&seen)), ..Trial::of(note()) };
    let body = Arc::clone(again.run().expect("it is admitted").body());
    assert!(Arc::ptr_eq(&body, &seen), "it was not read and checked again");
    let other = Trial { seen: Some(seen.clone()), ..Trial::of(note().content("another")) };
    assert_eq!(other.run().expect("it is admitted").event().content(), "another");
    let mut forged = Trial { seen: Some(seen), ..Trial::of(note()) };
    forged.spoil.push(|text| {
        let (rest, sig) = text.split_once("\"sig\":\"").expect("it is signed");
        format!("{rest}\"sig\":\"{}{}", "0".repeat(64), &sig[64..])
    });
    assert_eq!(forged.refusal(), Some(Rejection::BadSignature));
}
