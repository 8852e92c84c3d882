//! Which topics an event has, and which of them must be handled.

use kukuri_core::admission::Topicless;
use kukuri_core::{Rejection, TopicId};
use kukuri_store::conformance::signing::Draft;

use crate::{NOW, Trial, note, refusal, topic};

fn tagged(values: &[&str]) -> Draft {
    values.iter().fold(Draft::new(1, NOW), |draft, value| draft.tag("t", value))
}

#[test]
fn canonical_t_tags_are_topics_and_the_others_are_hashtags() {
    let (zero, one) = (topic(0), topic(1));
    let user = format!("kukuri:user:{}", "0a".repeat(32));
    let values = ["nostr", one.as_str(), "kukuri:global", zero.as_str(), &user, one.as_str()];
    let admitted = Trial::of(tagged(&values)).run().expect("it has topics");
    let user = TopicId::parse(&user).expect("it is a topic");
    assert_eq!(admitted.topics(), [zero, one, TopicId::global(), user], "sorted, each once");
}

#[test]
fn an_event_without_a_topic_is_refused() {
    for values in [&[][..], &["nostr"], &[""], &["Kukuri:global"], &["global"]] {
        assert_eq!(refusal(tagged(values)), Some(Rejection::MissingTopic), "{values:?}");
    }
}

/// Who means a topic and misspells it should learn of it.
#[test]
fn a_misspelt_topic_is_no_hashtag() {
    let upper = format!("kukuri:{}", "0A".repeat(32));
    for value in ["kukuri:", "kukuri:x", "kukuri:user:x", &upper] {
        assert_eq!(refusal(tagged(&[value])), Some(Rejection::BadTopic), "{value}");
        assert_eq!(refusal(note().tag("t", value)), None, "beside a good one it is a hashtag");
    }
}

#[test]
fn one_handled_topic_is_enough() {
    let draft = || note().tag("t", topic(1)).tag("t", topic(2));
    let handling = |handles| Trial { handles, ..Trial::of(draft()) };
    let admitted = handling(|asked| *asked == topic(1)).run().expect("one is handled");
    assert_eq!(admitted.topics().len(), 3, "the lane decides which of them are linked");
    let refusal = handling(|asked| *asked == topic(3)).refusal();
    assert_eq!(refusal, Some(Rejection::TopicNotHandled));
}

#[test]
fn topicless_events_can_be_global() {
    let global =
        |draft, handles| Trial { topicless: Topicless::Global, handles, ..Trial::of(draft) };
    let handled: fn(&TopicId) -> bool = |asked| *asked == TopicId::global();
    for values in [&[][..], &["nostr"]] {
        let admitted = global(tagged(values), handled).run().expect("it counts as global");
        assert_eq!(admitted.topics(), [TopicId::global()]);
    }
    let elsewhere = global(tagged(&[]), |_| false).refusal();
    assert_eq!(elsewhere, Some(Rejection::TopicNotHandled));
    let misspelt = global(tagged(&["kukuri:x"]), handled).refusal();
    assert_eq!(misspelt, Some(Rejection::BadTopic));
    let with_topic = global(note(), handled).refusal();
    assert_eq!(with_topic, Some(Rejection::TopicNotHandled), "it is not topicless");
}
