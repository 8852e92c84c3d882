//! Neighbours that keep to no rules.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::Limits;
use kukuri_core::rate::Allowance;
use kukuri_gossip::Rates;
use kukuri_store::conformance::signing::Author;
use kukuri_store::{Model, Store};
use kukuri_testkit::condition::wait_for_async;

use crate::rig::{Homes, LIMIT, Node, Stranger, draft, note, say, topic};

const RATES: Rates = Rates {
    each: Allowance { per_minute: 60, burst: 200 },
    all: Allowance { per_minute: 6000, burst: 2000 },
};

/// A flood that is worth the name, and what is looked at of it: a node hears it from the stranger, and from the
/// other node, which passes on what comes before it has looked. Each may send its burst, and what comes to it
/// within a minute.
const FLOOD: usize = 1500;
const FLOOD_LOOKED_AT_MAX: u64 = 2 * (200 + 60);

async fn strict(store: Arc<dyn Store>, peers: &[&Node]) -> Node {
    let peers = peers.iter().map(|node| node.hint()).collect();
    let t = [topic('a')];
    Node::with(store, &t, |config| {
        config.rates = RATES;
        config.peers = peers;
    })
    .await
}

/// On stores of each sort.
async fn flooded(flood: impl Fn(usize) -> Vec<u8>, messages_min: usize, messages_max: u64) {
    let homes = Homes::new();
    for [one, two, _] in homes.three_of_each().await {
        flooded_over([one, two], &flood, messages_min, messages_max).await;
    }
}

/// A stranger floods one of two nodes with what `flood` makes, until it is muted and longer. Meanwhile and afterwards the
/// other node is served, and the stranger is cut off.
async fn flooded_over(
    [one, two]: [Arc<dyn Store>; 2],
    flood: impl Fn(usize) -> Vec<u8>,
    messages_min: usize,
    messages_max: u64,
) {
    let t = [topic('a')];
    let honest = strict(one, &[]).await;
    let node = strict(two, &[&honest]).await;
    node.until_joined(&t[0], 1).await;
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&node, &t[0]).await;
    let mut sent = 0;
    let muted = async || {
        // Once it is cut off, nothing takes what it says.
        let _ = sender.broadcast(flood(sent).into()).await;
        sent += 1;
        (node.stats().mutes > 0 && sent >= messages_min).then_some(())
    };
    wait_for_async("a mute", LIMIT, muted).await.unwrap();
    node.until_stats("the end of it", |stats| stats.mutes == 1).await;
    let looked_at = node.stats();
    let looked_at = looked_at.received - looked_at.over_rate - looked_at.from_muted;
    assert!(looked_at <= messages_max, "{looked_at} messages were looked at");
    // Whoever is muted is not connected, and cannot connect.
    let refused = node.stats().connections_refused;
    let tried = async || {
        let _ = stranger.dial(&node).await;
        (node.stats().connections_refused > refused).then_some(())
    };
    wait_for_async("a refusal", LIMIT, tried).await.unwrap();
    assert_eq!(node.gossip.status().muted.len(), 1);
    // The two nodes hear each other. What they have passed on has used up some of what each may send.
    served(&honest, &node).await;
    served(&node, &honest).await;
    blame_not_each_other(&node, &honest);
}

/// Neither of the two is blamed by the other for what came through it.
fn blame_not_each_other(node: &Node, honest: &Node) {
    for (one, other) in [(node, honest), (honest, node)] {
        let (muted, id) = (one.gossip.status().muted, other.hint().id.to_string());
        assert!(muted.iter().all(|muted| muted.id != id), "{:?}", one.stats());
    }
}

/// Until one node has what a client has published at another.
async fn served(from: &Node, to: &Node) {
    let mut said = 0;
    let heard = async || {
        said += 1;
        let event = note(&[topic('a')], &format!("{said} from {}", from.hint().id));
        from.publish(&event).await;
        let here = async || to.holds(event.event().id()).await.then_some(());
        wait_for_async("one event", Duration::from_millis(500), here).await.ok()
    };
    wait_for_async("an event of the other", LIMIT, heard).await.unwrap();
}

fn forged(nth: usize) -> Vec<u8> {
    let t = [topic('a')];
    let json = |content: &str| Author::numbered(1).sign(&draft(&t, content));
    let (one, other) = (json(&format!("true {nth}")), json(&format!("false {nth}")));
    let sig = |json: &str| json.split("\"sig\":\"").nth(1).unwrap()[..128].to_owned();
    one.replace(&sig(&one), &sig(&other)).into_bytes()
}

/// The library passes on what comes before anyone has looked at it: who lets forgeries in is not muted by others for it,
/// however many come before it has noticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_forgeries_turns_nobody_against_who_lets_it_in() {
    const FORGERIES: usize = 500;
    let t = [topic('a')];
    let honest = Node::start(&t, &[]).await;
    let node = Node::start(&t, &[&honest]).await;
    node.until_joined(&t[0], 1).await;
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&node, &t[0]).await;
    for forgery in (0..FORGERIES).map(forged).collect::<Vec<_>>() {
        let _ = sender.broadcast(forgery.into()).await;
    }
    node.until_stats("a mute", |stats| stats.mutes == 1).await;
    served(&node, &honest).await;
    served(&honest, &node).await;
    println!("{} forgeries were passed on", honest.stats().bad_signatures);
    // The swarm may have made the stranger a neighbour of both: then both have muted it.
    blame_not_each_other(&node, &honest);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_bad_signatures_is_muted() {
    flooded(forged, 0, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_what_is_too_large_is_muted() {
    flooded(|nth| vec![b'0' + (nth % 10) as u8; 70_000 + nth / 10], 0, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_nonsense_too_fast_is_muted() {
    flooded(|nth| format!("nonsense {nth}").into_bytes(), FLOOD, FLOOD_LOOKED_AT_MAX).await;
}

/// The same event in ever other spellings, so that the library does not know it again.
#[tokio::test(flavor = "multi_thread")]
async fn who_repeats_an_event_too_fast_is_muted() {
    let json = Author::numbered(1).sign(&draft(&[topic('a')], "again"));
    flooded(
        |nth| json.replacen('{', &format!("{{\"x\":{nth},"), 1).into_bytes(),
        FLOOD,
        FLOOD_LOOKED_AT_MAX,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_events_of_other_topics_too_fast_is_muted() {
    let foreign = |nth| Author::numbered(1).sign(&draft(&[topic('b')], &format!("{nth}")));
    flooded(|nth| foreign(nth).into_bytes(), FLOOD, FLOOD_LOOKED_AT_MAX).await;
}

/// The largest event goes through, and what is larger does not end the link on which it came.
#[tokio::test(flavor = "multi_thread")]
async fn no_size_silences_a_link() {
    let homes = Homes::new();
    for [one, two, _] in homes.three_of_each().await {
        no_size_silences(one, two).await;
    }
}

async fn no_size_silences(one: Arc<dyn Store>, two: Arc<dyn Store>) {
    let t = [topic('a')];
    let one = Node::over(one, &t, &[]).await;
    let two = Node::over(two, &t, &[&one]).await;
    one.until_joined(&t[0], 1).await;
    two.until_joined(&t[0], 1).await;
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&two, &t[0]).await;
    let max = 64 * 1024;
    let empty = note(&t, "").body().json().len();
    for bytes in [max - 1, max] {
        let event = note(&t, &"x".repeat(bytes - empty));
        assert_eq!(event.body().json().len(), bytes);
        one.publish(&event).await;
        two.until_holds(&event).await;
    }
    let large = Author::numbered(1).sign(&draft(&t, &"x".repeat(max + 1 - empty)));
    assert_eq!(large.len(), max + 1);
    say(&sender, large).await;
    two.until_stats("one that is too large", |stats| stats.oversized == 1).await;
    // Both links go on.
    let after = note(&t, "after it");
    say(&sender, after.body().json()).await;
    two.until_holds(&after).await;
    one.until_holds(&after).await;
    let last = note(&t, "and from the other side");
    one.publish(&last).await;
    two.until_holds(&last).await;
    assert_eq!(two.stats().mutes, 0);
}

/// A node whose operator wants small events only muted neighbours for larger ones, which every other node takes: they
/// cannot know.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_less_than_others_blames_nobody_for_it() {
    let t = [topic('a')];
    let one = Node::start(&t, &[]).await;
    let (limits, peer) = (Limits { event_bytes_max: 4096, ..Limits::STANDARD }, one.hint());
    let store = Arc::new(Model::default());
    let two = Node::limited(store, &t, limits, |config| config.peers = vec![peer]).await;
    one.until_joined(&t[0], 1).await;
    two.until_joined(&t[0], 1).await;
    let empty = note(&t, "").body().json().len();
    // Many more than are borne of what is too large for everyone; the largest that anyone takes among them.
    for nth in 0..32 {
        let bytes = if nth % 2 == 0 { 8 * 1024 } else { 64 * 1024 };
        let text = format!("{nth:02}");
        one.publish(&note(&t, &(text + &"x".repeat(bytes - empty - 2)))).await;
    }
    two.until_stats("all that are too large here", |stats| stats.oversized == 32).await;
    assert_eq!(two.stats().mutes, 0);
    let small = note(&t, "small");
    one.publish(&small).await;
    two.until_holds(&small).await;
    assert_eq!(two.neighbours(&t[0]), 1);
}

/// Nobody is blamed for what nobody can read, and the log has one line of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_read_is_counted() {
    let t = [topic('a')];
    let node = Node::start(&t, &[]).await;
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&node, &t[0]).await;
    for nth in 0..300 {
        say(&sender, format!("{{\"nonsense\":{nth}}}")).await;
    }
    node.until_stats("all of it", |stats| stats.unreadable == 300).await;
    let event = note(&t, "and an event");
    say(&sender, event.body().json()).await;
    node.until_holds(&event).await;
    assert_eq!(node.stats().mutes, 0);
}

/// A neighbour whose connection lives and that reads nothing holds up the library, and with it all swarms,
/// until it is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_nothing_holds_up_nobody_for_long() {
    let t = [topic('a')];
    let honest = Node::start(&t, &[]).await;
    let node = Node::start(&t, &[&honest]).await;
    node.until_joined(&t[0], 1).await;
    let mut elsewhere = tokio::runtime::Builder::new_multi_thread();
    let elsewhere = elsewhere.worker_threads(1).enable_all().build().unwrap();
    let stranger = Stranger::on(elsewhere.handle()).await;
    let (_sender, _receiver) = stranger.join(&node, &t[0]).await;
    node.until_joined(&t[0], 2).await;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    elsewhere.spawn(async move { ended.recv() });
    let mut said = 0;
    let muted = async || {
        said += 1;
        node.publish(&note(&t, &format!("{said} {}", "x".repeat(60_000)))).await;
        (!node.gossip.status().muted.is_empty()).then_some(())
    };
    wait_for_async("it is cut off", LIMIT, muted).await.unwrap();
    served(&node, &honest).await;
    served(&honest, &node).await;
    let muted = node.gossip.status().muted;
    assert!(muted.iter().all(|muted| muted.id != honest.hint().id.to_string()));
    drop(end);
    elsewhere.shutdown_background();
}
