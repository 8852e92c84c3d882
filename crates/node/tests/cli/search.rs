//! What is published is found by its words, over the relay (NIP-50).

use std::net::TcpStream;

use kukuri_event::Event;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{WebSocket, connect};

use crate::running::Running;
use crate::site::{LIMIT, Site, ended, system_time};

pub const TOPIC: &str = "kukuri:global";

pub struct Asker {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    /// What the node has said beside its answers.
    pub notices: Vec<String>,
}

impl Asker {
    pub fn connect(running: &Running) -> Self {
        Self { socket: connect(&running.url).unwrap().0, notices: Vec::new() }
    }

    pub fn publish(&mut self, draft: Draft) -> Event {
        let event = Author::numbered(1).sign(&draft.tag("t", TOPIC));
        self.socket.send(format!("[\"EVENT\",{event}]").into()).unwrap();
        let answer = self.next();
        assert_eq!((&answer[0], &answer[2]), (&json!("OK"), &json!(true)), "{answer}");
        Event::parse(&event).unwrap()
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(self.socket.read().unwrap().to_text().unwrap()).unwrap()
    }

    /// The contents of what is found, in its order, or why nothing is looked for.
    pub fn search(&mut self, filter: Value) -> Result<Vec<String>, String> {
        let events = self.events(filter)?;
        Ok(events.iter().map(|event| event["content"].as_str().unwrap().to_owned()).collect())
    }

    pub fn events(&mut self, filter: Value) -> Result<Vec<Value>, String> {
        self.socket.send(json!(["REQ", "s", filter]).to_string().into()).unwrap();
        let mut found = Vec::new();
        loop {
            let message = self.next();
            match message[0].as_str().unwrap() {
                "EVENT" => found.push(message[2].clone()),
                "EOSE" => return Ok(found),
                "CLOSED" => return Err(message[2].as_str().unwrap().to_owned()),
                _ => self.notices.push(message[1].as_str().unwrap().to_owned()),
            }
        }
    }

    /// Waits until exactly this is found.
    pub fn finds(&mut self, filter: &Value, expected: &[&str]) {
        let what = format!("{filter} finds {expected:?}");
        let found = || {
            let found = self.search(filter.clone());
            found.is_ok_and(|found| found == expected).then_some(())
        };
        wait_for(&what, LIMIT, found).unwrap();
    }
}

pub fn note(content: &str) -> Draft {
    Draft::new(1, system_time()).content(content)
}

pub fn words(text: &str) -> Value {
    json!({"#t": [TOPIC], "search": text})
}

pub fn what_is_published_is_found_by_its_words(site: &Site) {
    let running = Running::start(site, &[]);
    let mut asker = Asker::connect(&running);
    asker.publish(note("東京タワーに登った"));
    let second = asker.publish(note("東京は雨。東京駅で待つ"));
    asker.publish(note("Bitcoin と Rust の話"));

    asker.finds(&words("東京"), &["東京は雨。東京駅で待つ", "東京タワーに登った"]);
    asker.finds(&words("ＲＵＳＴ"), &["Bitcoin と Rust の話"]);
    assert_eq!(asker.search(words("大阪")), Ok(Vec::new()));
    // Other conditions of the filter hold as well.
    let limited = json!({"#t": [TOPIC], "search": "東京", "limit": 1});
    assert_eq!(asker.search(limited).unwrap().len(), 1);
    let of_others = json!({"#t": [TOPIC], "search": "東京", "kinds": [30023]});
    assert_eq!(asker.search(of_others), Ok(Vec::new()));

    asker.publish(Draft::new(5, system_time()).tag("e", second.id().to_hex()));
    asker.finds(&words("東京"), &["東京タワーに登った"]);

    for (filter, why) in [
        (words("\"\""), "invalid: nothing to search for"),
        (words(&"x".repeat(10_000)), "invalid: the question is too long"),
        (json!({"search": "東京"}), "invalid: missing #t"),
        (json!({"#t": [TOPIC], "search": "東京", "after": ""}), "invalid: a search takes no after"),
    ] {
        let refused = asker.search(filter).unwrap_err();
        assert!(refused.starts_with(why), "{refused}");
    }
    let nips: Value = serde_json::from_str(&running.nip11()).unwrap();
    assert!(nips["supported_nips"].as_array().unwrap().contains(&json!(50)));

    // What is purged is found no more, as everything else that has left.
    let soon = (system_time().0 + 60).to_string();
    ended(&mut site.command_now(&["purge", "--before", &soon])).ok();
    asker.finds(&words("東京"), &[]);
    asker.finds(&words("Rust"), &[]);
    running.end();
}
