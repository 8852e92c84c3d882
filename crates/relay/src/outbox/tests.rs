use std::collections::HashMap;

use futures_util::{SinkExt, StreamExt};
use kukuri_event::{Event, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::ear;

const STALL_WAIT_MAX: Duration = Duration::from_secs(30);
const WRITERS: usize = 8;
const FRAMES: usize = 400;
/// All three kinds that the head of a frame has, and more than a socket holds.
const LENGTHS: [usize; 7] = [0, 125, 126, 3_000, 65_535, 65_536, 90_000];

/// An outbox with its writer, and the client it sends to.
async fn pair(bytes_max: usize) -> (Arc<Outbox>, WebSocketStream<TcpStream>, ear::Ear) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (reader, writer) = listener.accept().await.unwrap().0.into_split();
    let outbox = Outbox::new(writer, bytes_max);
    let draining = Arc::clone(&outbox);
    tokio::spawn(async move { draining.drain(STALL_WAIT_MAX).await });
    let ear = ear::listen(reader, hyper::body::Bytes::new(), &outbox, 1024).await;
    (outbox, WebSocketStream::from_raw_socket(client, Role::Client, None).await, ear)
}

async fn text(client: &mut WebSocketStream<TcpStream>) -> Option<String> {
    match client.next().await?.unwrap() {
        Message::Text(text) => Some(text.to_string()),
        Message::Close(_) => None,
        other => panic!("{other}"),
    }
}

fn length(writer: usize, frame: usize) -> usize {
    LENGTHS[(writer + frame) % LENGTHS.len()]
}

/// Whoever writes, and however often the socket is full: every frame comes once, whole, and after
/// those that were queued before it.
#[tokio::test(flavor = "multi_thread")]
async fn frames_of_many_writers_come_whole_and_in_order() {
    let (outbox, mut client, _ear) = pair(64 * 1024 * 1024).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let outbox = Arc::clone(&outbox);
        writers.spawn(async move {
            for frame in 0..FRAMES {
                outbox.reply(format!("{writer} {frame} {}", "x".repeat(length(writer, frame))));
                tokio::task::yield_now().await;
            }
        });
    }
    let ending = tokio::spawn(async move {
        writers.join_all().await;
        outbox.end(None);
    });
    let mut next = HashMap::new();
    while let Some(text) = text(&mut client).await {
        let words: Vec<&str> = text.split(' ').collect();
        let (writer, frame): (usize, usize) =
            (words[0].parse().unwrap(), words[1].parse().unwrap());
        assert_eq!(words[2].len(), length(writer, frame));
        let expected = next.entry(writer).or_insert(0);
        assert_eq!(frame, *expected);
        *expected += 1;
    }
    assert_eq!(next, (0..WRITERS).map(|writer| (writer, FRAMES)).collect());
    ending.await.unwrap();
}

/// Deliveries wait to be told, and being told once is enough for all of them.
#[tokio::test]
async fn one_send_is_for_many_deliveries() {
    let (outbox, mut client, _ear) = pair(1024 * 1024).await;
    let event = Author::numbered(1).sign(&Draft::new(1, UnixSeconds(1)));
    let body = Event::parse(&event).unwrap().identify().unwrap().verify().unwrap().into_body();
    let delivery = |sub| Delivery { sub, seq: Some(Seq(1)), body: Arc::clone(&body) };
    outbox.open(SubKey(1), "a", None);
    outbox.open(SubKey(2), "b", None);
    assert_eq!(outbox.deliver(delivery(SubKey(1))), Ok(Due::Send));
    assert_eq!(outbox.deliver(delivery(SubKey(2))), Ok(Due::Nothing));
    assert_eq!(outbox.deliver(delivery(SubKey(3))), Ok(Due::Nothing), "a closed one");
    outbox.send();
    assert!(text(&mut client).await.unwrap().starts_with(r#"["EVENT","a",{"#));
    assert!(text(&mut client).await.unwrap().starts_with(r#"["EVENT","b",{"#));
    assert_eq!(outbox.deliver(delivery(SubKey(1))), Ok(Due::Send));
}

/// What the library answers by itself goes the same way.
#[tokio::test]
async fn pings_are_answered() {
    let (_outbox, mut client, mut ear) = pair(1024).await;
    client.send(Message::Ping(b"there?".as_slice().into())).await.unwrap();
    let hear = async { while ear.next().await.is_some() {} };
    let answer = async { client.next().await.unwrap().unwrap() };
    tokio::select! {
        () = hear => panic!("the connection ended"),
        answer = answer => assert_eq!(answer, Message::Pong(b"there?".as_slice().into())),
    }
}
