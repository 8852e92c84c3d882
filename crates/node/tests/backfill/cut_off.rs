//! Nodes that are cut off from each other for a while, with people who follow them all the time.

use std::collections::BTreeSet;
use std::slice::from_ref;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use kukuri_core::{Admitted, TopicId};
use kukuri_event::{EventId, Filter, TagLetter, Values};
use kukuri_node::backfill::{BackfillSettings, Backfiller};
use kukuri_store::Walk;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::bounds::{WAIT_MAX, again, moving};
use crate::rig::{ANY, Homes, Node, id, limits, note, topic};

/// The way to a node, which can be closed.
struct Door {
    url: String,
    open: watch::Sender<bool>,
}

impl Door {
    async fn before(node: &Node, tasks: &mut JoinSet<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (open, is_open) = watch::channel(true);
        let to = node.url.strip_prefix("ws://").unwrap().to_owned();
        tasks.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut is_open, to) = (is_open.clone(), to.clone());
                links.spawn(async move {
                    let mut inside = TcpStream::connect(to).await.unwrap();
                    tokio::select! {
                        biased;
                        _ = is_open.wait_for(|is_open| !is_open) => {}
                        _ = copy_bidirectional(&mut stream, &mut inside) => {}
                    }
                });
            }
        });
        Self { url, open }
    }

    /// Whoever is on the way is cut off too.
    fn close(&self) {
        self.open.send_replace(false);
    }

    fn open(&self) {
        self.open.send_replace(true);
    }
}

/// Who follows a topic, and hears of each event as often as it is sent.
async fn follow(node: &Node, topic: &TopicId, tasks: &mut JoinSet<()>) -> mpsc::Receiver<String> {
    let (mut socket, _) = tokio_tungstenite::connect_async(&node.url).await.unwrap();
    let question = json!(["REQ", "all", {"#t": [topic.as_str()]}]);
    socket.send(Message::text(question.to_string())).await.unwrap();
    let (heard, hears) = mpsc::channel(1000);
    tasks.spawn(async move {
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else { continue };
            let said: Value = serde_json::from_str(&text).unwrap();
            if said[0] == "EVENT" {
                heard.send(said[2]["id"].as_str().unwrap().to_owned()).await.unwrap();
            }
        }
    });
    hears
}

/// A node that asks another one every second.
fn ask(node: &Node, from: &Door, tasks: &mut JoinSet<()>) {
    let (from, interval) = (vec![from.url.clone()], Duration::from_secs(1));
    let settings = BackfillSettings { from, interval, head_start: interval, allowed: ANY };
    tasks.spawn(Backfiller::new(again(node), settings).run());
}

fn event(topic: &TopicId, kind: u16, age: i64, tags: &[(&str, String)]) -> Admitted {
    let draft = Draft::new(kind, World::NOW.saturating_sub(age)).tag("t", topic);
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).admit(&draft, World::NOW)
}

/// What a node shows at one moment.
async fn shown(node: &Node, topic: &TopicId) -> BTreeSet<EventId> {
    let mut filter = Filter::default();
    filter.tags.insert(TagLetter::TOPIC, Values::from([topic.to_string()]));
    let page = Walk::new(filter, World::NOW, 10_000).next(&*node.store).await.unwrap();
    page.into_iter().flatten().map(|hit| hit.id).collect()
}

/// What nodes show becomes the same, and this much.
async fn agree(nodes: [&Node; 2], topic: &TopicId, events: usize) {
    let agreed = wait_for_async("both show the same", WAIT_MAX, async || {
        let (one, two) = (shown(nodes[0], topic).await, shown(nodes[1], topic).await);
        (one.len() == events && one == two).then_some(())
    });
    agreed.await.unwrap();
    assert_eq!(nodes[0].view(from_ref(topic)).await, nodes[1].view(from_ref(topic)).await);
}

/// Everything that is shown is heard of, and nothing twice.
async fn heard_once(
    hears: &mut mpsc::Receiver<String>,
    node: &Node,
    topic: &TopicId,
    last: &Admitted,
) {
    let shown: BTreeSet<String> = shown(node, topic).await.iter().map(EventId::to_hex).collect();
    let mut heard = BTreeSet::new();
    while !heard.is_superset(&shown) {
        let id = timeout(WAIT_MAX, hears.recv()).await.unwrap().unwrap();
        assert!(heard.insert(id.clone()), "{id} came twice");
    }
    // Whatever is sent next comes after all that was sent before.
    node.publish([last.clone()]).await;
    let last = id(last).to_hex();
    loop {
        let id = timeout(WAIT_MAX, hears.recv()).await.unwrap().unwrap();
        if id == last {
            break;
        }
        assert!(heard.insert(id.clone()), "{id} came twice");
    }
}

/// New notes, versions and deletions of either side are on both when they see each other again, and who
/// followed one of them all the time has got each once.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_were_cut_off_agree_again() {
    let (topic, mut homes, mut tasks) = (topic('a'), Homes::new(), JoinSet::new());
    let one = Node::at(moving(), homes.sqlite(), from_ref(&topic), limits()).await;
    let two = Node::at(moving(), homes.postgres().await, from_ref(&topic), limits()).await;
    let doors = [Door::before(&one, &mut tasks).await, Door::before(&two, &mut tasks).await];
    let doomed: Vec<Admitted> = (1..=2).map(|nth| note(&topic, 1000 + nth)).collect();
    one.publish(doomed.clone()).await;
    one.publish([event(&topic, 30_023, 900, &[("d", "x".to_owned())])]).await;
    let mut hears_one = follow(&one, &topic, &mut tasks).await;
    let mut hears_two = follow(&two, &topic, &mut tasks).await;
    ask(&one, &doors[1], &mut tasks);
    ask(&two, &doors[0], &mut tasks);
    agree([&one, &two], &topic, 3).await;

    doors.iter().for_each(Door::close);
    let delete = |of: &Admitted, age| event(&topic, 5, age, &[("e", id(of).to_hex())]);
    // Some of it reaches both: their authors publish in several places.
    let both: Vec<Admitted> = (1..=10).map(|nth| note(&topic, 300 + nth)).collect();
    one.publish(both.clone()).await;
    two.publish(both).await;
    one.publish((1..=20).map(|nth| note(&topic, 100 + nth))).await;
    two.publish((1..=30).map(|nth| note(&topic, 200 + nth))).await;
    one.publish([delete(&doomed[0], 50), event(&topic, 30_023, 60, &[("d", "x".to_owned())])])
        .await;
    two.publish([delete(&doomed[1], 40), event(&topic, 30_023, 70, &[("d", "x".to_owned())])])
        .await;
    let counts = (shown(&one, &topic).await.len(), shown(&two, &topic).await.len());
    assert_eq!(counts, (33, 43), "they are cut off");

    doors.iter().for_each(Door::open);
    // Notes of either and of both, two deletions, the newest version.
    agree([&one, &two], &topic, 20 + 30 + 10 + 2 + 1).await;
    let shown = shown(&one, &topic).await;
    assert!(doomed.iter().all(|event| !shown.contains(&id(event))));
    heard_once(&mut hears_one, &one, &topic, &note(&topic, 10_001)).await;
    heard_once(&mut hears_two, &two, &topic, &note(&topic, 10_002)).await;
}
