//! Bytes that are no WebSocket, or one that no library would send.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::MaybeTlsStream;

use crate::rig::{Client, Rig, note, signed};

const WAIT_MAX: Duration = Duration::from_secs(60);
const TEXT: u8 = 1;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

fn raw(client: &mut Client) -> &mut TcpStream {
    match client.socket.get_mut() {
        MaybeTlsStream::Plain(stream) => stream,
        _ => panic!("there is no TLS here"),
    }
}

/// A short frame whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, MASKED | length, 0, 0, 0, 0], payload].concat()
}

/// Who breaks the protocol is let go, and nobody else notices.
#[tokio::test]
async fn frames_that_break_the_protocol_end_their_connection() {
    let rig = Rig::start().await;
    let mut other = rig.client().await;
    let close = FINAL | 8;
    for (what, bytes) in [
        ("no mask", vec![FINAL | TEXT, 2, b'[', b']']),
        ("a reserved bit", frame(FINAL | 0x40 | TEXT, b"[]")),
        ("a reserved opcode", frame(FINAL | 3, b"[]")),
        ("a continuation of nothing", frame(FINAL, b"[]")),
        ("a message within a message", [frame(TEXT, b"["), frame(TEXT, b"]")].concat()),
        ("text that is no UTF-8", frame(FINAL | TEXT, &[0xc3, 0x28])),
        ("half a character at the end", frame(FINAL | TEXT, &[b'a', 0xe2, 0x82])),
        ("a ping in pieces", frame(9, b"x")),
        ("a long ping", [&[FINAL | 9, MASKED | 126, 0, 126, 0, 0, 0, 0], &[0; 126][..]].concat()),
        ("a close of one byte", frame(close, &[3])),
        ("a close with a code that is none", frame(close, &[0, 1])),
        ("a length of 2^63", [&[FINAL | TEXT, MASKED | 127, 0x80], &[0; 11][..]].concat()),
        (
            "a length beyond the limit",
            [&[FINAL | TEXT, MASKED | 127, 0, 0, 0, 1], &[0; 8][..]].concat(),
        ),
        ("HTTP again", b"GET / HTTP/1.1\r\nHost: relay.example\r\n\r\n".to_vec()),
    ] {
        let mut client = rig.client().await;
        let stream = raw(&mut client);
        stream.write_all(&bytes).await.unwrap();
        // To the end, however it comes.
        let mut rest = Vec::new();
        let ended = timeout(WAIT_MAX, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{what}: the connection goes on");
        other.publish_ok(&signed(&note(what))).await;
    }
}

/// Pieces, pings between them, and bytes that come one by one are all right.
#[tokio::test]
async fn frames_in_pieces_are_put_together() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let event = json!(["EVENT", signed(&note("in pieces"))]).to_string();
    let (first, rest) = event.as_bytes().split_at(100);
    let (second, third) = rest.split_at(100);
    let third = [
        &[FINAL, MASKED | 126],
        &u16::try_from(third.len()).unwrap().to_be_bytes()[..],
        &[0; 4],
        third,
    ]
    .concat();
    let bytes = [
        frame(TEXT, first),
        frame(FINAL | 9, b"ping"),
        frame(0, second),
        frame(FINAL | 10, b"pong"),
        third,
    ];
    for byte in bytes.concat() {
        raw(&mut client).write_all(&[byte]).await.unwrap();
    }
    let answer = client.expect().await;
    assert_eq!((&answer[0], &answer[2]), (&json!("OK"), &json!(true)), "{answer}");
}

/// What comes right behind the request is not lost.
#[tokio::test]
async fn a_message_right_behind_the_request_is_heard() {
    let rig = Rig::start().await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: relay.example\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let bytes = [request.as_bytes(), &frame(FINAL | TEXT, b"{}")].concat();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    let said = |answer: &[u8]| String::from_utf8_lossy(answer).into_owned();
    let heard = async {
        while !said(&answer).contains("NOTICE") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", said(&answer));
        }
    };
    timeout(WAIT_MAX, heard).await.expect("an answer in time");
    let answer = said(&answer).to_lowercase();
    // The example of RFC 6455.
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
}
