//! What is logged holds nothing of what clients write, nor who or where they are.

use kukuri_event::Event;
use kukuri_store::conformance::signing::{Author, Draft};
use tokio_tungstenite::tungstenite::connect;
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;

use crate::running::Running;
use crate::site::{Site, system_time};

const SECRET: &str = "swordfish";

/// At its most talkative, over what is accepted, refused and not understood.
pub fn logs_hold_nothing_of_clients(site: &Site) {
    let mut command = site.command_now(&["run"]);
    command.env("KUKURI_LOG_LEVEL", "debug").env("KUKURI_LOG_FORMAT", "json");
    let running = Running::spawn(&mut command);
    let (mut socket, _) = connect(&running.url).unwrap();
    let MaybeTlsStream::Plain(stream) = socket.get_ref() else {
        panic!("{} is plain", running.url)
    };
    let address = stream.local_addr().unwrap().to_string();
    let draft = Draft::new(1, system_time()).tag("t", "kukuri:global").content(SECRET);
    let signed = Author::numbered(1).sign(&draft);
    let event = Event::parse(&signed).unwrap();
    let forged = signed.replace(SECRET, &format!("{SECRET} forged"));
    for message in [
        format!("[\"EVENT\",{signed}]"),
        format!("[\"EVENT\",{forged}]"),
        format!("[\"EVENT\",{{\"content\":\"{SECRET}\"}}]"),
        format!("[\"AUTH\",{signed}]"),
        format!("[\"REQ\",\"{SECRET}\",{{\"#t\":[\"kukuri:global\"],\"search\":\"{SECRET}\"}}]"),
        format!("[\"{SECRET}\"]"),
        format!("{SECRET} is not JSON"),
        format!(
            "[\"REQ\",\"last\",{{\"authors\":[\"{}\"],\"#t\":[\"kukuri:global\"]}}]",
            event.pubkey()
        ),
    ] {
        socket.send(message.into()).unwrap();
    }
    // Messages of one connection are answered in order but for events, whose answers come before its end.
    while !socket.read().unwrap().to_text().unwrap().starts_with("[\"EOSE\",\"last\"") {}
    socket.close(None).unwrap();
    let mut node = running.node;
    node.terminate().unwrap();
    assert_eq!(node.wait(crate::site::LIMIT).unwrap().code(), Some(0));
    let logged = node.stderr();
    for secret in [SECRET, &event.id().to_hex(), &event.pubkey().to_string(), &address] {
        assert!(!logged.contains(secret), "{secret} is in {logged}");
    }
}
