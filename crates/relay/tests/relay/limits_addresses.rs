//! Limits that depend on where someone comes from, at n and at n + 1. Every address of 127.0.0.0/8
//! is one of this machine, so one test can come from many places.

use kukuri_relay::{Allowance, OpenGate, RelayConfig, RelayLimits};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_tungstenite::MaybeTlsStream;

use crate::rig::{Client, Rig, limited, note, signed, until};

const HERE: [u8; 4] = [127, 0, 0, 1];
const PROXY: [u8; 4] = [127, 0, 0, 9];

fn burst(burst: u32) -> Allowance {
    Allowance { per_minute: 1, burst }
}

/// Whoever says to speak for others is not believed, unless the operator trusts it.
#[tokio::test]
async fn a_forged_origin_escapes_no_limit() {
    let config =
        limited(|l| RelayLimits { connects_per_ip: burst(2), events_per_ip: burst(1), ..l });
    let rig = Rig::with(config, OpenGate).await;
    let mut one = rig.client_from(HERE, Some("198.51.100.1")).await.unwrap();
    let mut two = rig.client_from(HERE, Some("198.51.100.2")).await.unwrap();
    assert_eq!(rig.client_from(HERE, Some("198.51.100.3")).await.err(), Some(429));
    one.publish_ok(&signed(&note("1"))).await;
    two.refused(&signed(&note("2")), "rate-limited: slow down").await;
    // Someone else has not used anything up.
    let mut other = rig.client_from([127, 0, 0, 2], None).await.unwrap();
    other.publish_ok(&signed(&note("3"))).await;
}

/// Behind a proxy that is trusted everyone has an allowance of their own, by what the proxy wrote
/// and not by what it was told.
#[tokio::test]
async fn a_proxy_speaks_for_many_and_is_not_deceived() {
    let config =
        limited(|l| RelayLimits { connects_per_ip: burst(2), connections_per_ip_max: 2, ..l });
    let trusted_proxies = vec!["127.0.0.9".parse().unwrap()];
    let rig = Rig::with(RelayConfig { trusted_proxies, ..config }, OpenGate).await;
    let mut clients = Vec::new();
    for forged in ["192.0.2.1", "192.0.2.2"] {
        let origin = format!("{forged}, 198.51.100.1");
        clients.push(rig.client_from(PROXY, Some(&origin)).await.unwrap());
    }
    let origin = "192.0.2.3, 198.51.100.1";
    assert_eq!(rig.client_from(PROXY, Some(origin)).await.err(), Some(429));
    for other in ["198.51.100.2", "198.51.100.3", "198.51.100.4"] {
        clients.push(rig.client_from(PROXY, Some(other)).await.unwrap());
    }
    until("all are there", || rig.relay.stats().connections == clients.len()).await;
}

/// Two senders are remembered. A third makes the relay forget who has been quiet longest, and that
/// one has a whole allowance again.
#[tokio::test]
async fn so_many_senders_are_remembered_and_no_more() {
    let config =
        limited(|l| RelayLimits { events_per_ip: burst(1), senders_remembered_max: 2, ..l });
    let rig = Rig::with(config, OpenGate).await;
    let mut clients: Vec<Client> = Vec::new();
    for last in 1..=3 {
        clients.push(rig.client_from([127, 0, 0, last], None).await.unwrap());
    }
    let slow_down = "rate-limited: slow down";
    clients[0].publish_ok(&signed(&note("1"))).await;
    clients[1].publish_ok(&signed(&note("2"))).await;
    clients[0].refused(&signed(&note("3")), slow_down).await;
    clients[1].refused(&signed(&note("4")), slow_down).await;
    clients[2].publish_ok(&signed(&note("5"))).await;
    clients[1].refused(&signed(&note("6")), slow_down).await;
    clients[0].publish_ok(&signed(&note("7"))).await;
}

/// Those who have not said yet what they want are few, all together and of one address, and the
/// ones that are taken can still say it.
#[tokio::test]
async fn so_many_knock_and_no_more() {
    let of_all = limited(|l| RelayLimits { handshakes_max: 3, ..l });
    let of_one = limited(|l| RelayLimits { connections_per_ip_max: 3, ..l });
    for (config, elsewhere) in [(of_all, Knock::Refused), (of_one, Knock::Taken)] {
        let rig = Rig::with(config, OpenGate).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(rig.stream_from(HERE).await);
        }
        assert_eq!(knock(&rig, HERE).await, Knock::Refused);
        assert_eq!(knock(&rig, [127, 0, 0, 2]).await, elsewhere);
        // One that becomes a WebSocket knocks no longer and makes room.
        let mut client = upgrade(&rig, silent.remove(0)).await;
        client.publish_ok(&signed(&note("taken"))).await;
        assert_eq!(knock(&rig, HERE).await, Knock::Taken);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Knock {
    Taken,
    Refused,
}

/// Asks for anything at all: who is refused hears nothing.
async fn knock(rig: &Rig, from: [u8; 4]) -> Knock {
    let mut stream = rig.stream_from(from).await;
    let request = b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n";
    // One that was closed at once may not even take the question.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    if answer.starts_with(b"HTTP/1.1 200") { Knock::Taken } else { Knock::Refused }
}

async fn upgrade(rig: &Rig, stream: TcpStream) -> Client {
    let stream = MaybeTlsStream::Plain(stream);
    let (socket, _) = tokio_tungstenite::client_async(rig.url(), stream).await.unwrap();
    Client { socket }
}
