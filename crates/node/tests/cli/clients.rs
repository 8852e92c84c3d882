//! Clients that others wrote, against the running program.

use std::process::Command;
use std::time::Duration;

use nostr_sdk::nips::nip09::EventDeletionRequest;
use nostr_sdk::{
    Client, Event, EventBuilder, Filter, Keys, Kind, RelayPoolNotification, Timestamp,
};
use tokio::sync::broadcast::Receiver;

use crate::running::Running;
use crate::site::{Site, ended};

/// How long an answer may take.
const WAIT_MAX: Duration = Duration::from_secs(30);

impl Running {
    async fn client(&self, keys: &Keys) -> Client {
        let client = Client::new(keys.clone());
        client.add_relay(&self.url).await.unwrap();
        let connected = client.try_connect(WAIT_MAX).await;
        assert!(connected.failed.is_empty(), "{:?}", connected.failed);
        client
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

async fn publish(client: &Client, event: &Event) {
    let sent = client.send_event(event).await.unwrap();
    assert!(sent.failed.is_empty() && sent.success.len() == 1, "{:?}", sent.failed);
}

/// Why the relay did not take an event.
async fn refusal(client: &Client, event: &Event) -> String {
    let sent = client.send_event(event).await.unwrap();
    sent.failed.into_values().next().expect("it was refused")
}

async fn fetch(client: &Client, filter: Filter) -> Vec<Event> {
    client.fetch_events(filter, WAIT_MAX).await.unwrap().into_iter().collect()
}

/// The next event that comes live.
async fn live(notifications: &mut Receiver<RelayPoolNotification>) -> Event {
    let next = async {
        loop {
            if let RelayPoolNotification::Event { event, .. } = notifications.recv().await.unwrap()
            {
                return *event;
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, next).await.expect("a live event in time")
}

/// `nostr-sdk` publishes, queries, subscribes, replaces and deletes as on any relay.
pub fn nostr_sdk_uses_the_node_as_any_relay(site: &Site) {
    let running = Running::start(site, &["--topicless", "global"]);
    block_on(async {
        let keys = Keys::generate();
        let (writer, reader) =
            (running.client(&keys).await, running.client(&Keys::generate()).await);
        let mine = Filter::new().author(keys.public_key());
        let note = EventBuilder::text_note("first").sign_with_keys(&keys).unwrap();
        publish(&writer, &note).await;
        assert_eq!(
            fetch(&reader, mine.clone().kind(Kind::TextNote)).await,
            std::slice::from_ref(&note)
        );

        let mut notifications = reader.notifications();
        reader.subscribe(mine.clone().kind(Kind::TextNote), None).await.unwrap();
        let second = EventBuilder::text_note("second").sign_with_keys(&keys).unwrap();
        publish(&writer, &second).await;
        // The client tells of each event once, and has fetched the first.
        assert_eq!(live(&mut notifications).await, second);

        let profile = |name: &str, age: u64| {
            let content = format!(r#"{{"name":"{name}"}}"#);
            let created_at = Timestamp::now() - age;
            let builder = EventBuilder::new(Kind::Metadata, content).custom_created_at(created_at);
            builder.sign_with_keys(&keys).unwrap()
        };
        let (old, new) = (profile("old", 10), profile("new", 5));
        publish(&writer, &new).await;
        publish(&writer, &old).await;
        assert_eq!(fetch(&reader, mine.clone().kind(Kind::Metadata)).await, [new]);

        let deletion = EventDeletionRequest::new().id(note.id);
        let deletion = EventBuilder::delete(deletion).sign_with_keys(&keys).unwrap();
        publish(&writer, &deletion).await;
        assert_eq!(fetch(&reader, Filter::new().id(note.id)).await, []);
        assert_eq!(refusal(&writer, &note).await, "blocked: deleted by its author");
    });
    running.end();
}

/// `nostr-sdk` proves its key by itself where that is required.
pub fn nostr_sdk_authenticates(site: &Site) {
    let running = Running::start(site, &["--topicless", "global", "--auth", "required"]);
    block_on(async {
        let keys = Keys::generate();
        let client = running.client(&keys).await;
        let note = EventBuilder::text_note("proved").sign_with_keys(&keys).unwrap();
        publish(&client, &note).await;
        assert_eq!(fetch(&client, Filter::new().id(note.id)).await, [note]);
        let foreign = EventBuilder::text_note("x").sign_with_keys(&Keys::generate()).unwrap();
        assert_eq!(refusal(&client, &foreign).await, "restricted: not allowed to publish here");
    });
    running.end();
}

/// Two nodes on one store: what is published on one is live on the other.
pub fn what_one_node_takes_in_another_sends(site: &Site) {
    let global = &["--topicless", "global"];
    let (one, two) = (Running::start(site, global), Running::start(site, global));
    block_on(async {
        let keys = Keys::generate();
        let (writer, reader) = (one.client(&keys).await, two.client(&Keys::generate()).await);
        let mut notifications = reader.notifications();
        reader.subscribe(Filter::new().author(keys.public_key()), None).await.unwrap();
        for nth in 0..20 {
            let event = EventBuilder::text_note(format!("{nth}")).sign_with_keys(&keys).unwrap();
            publish(&writer, &event).await;
            assert_eq!(live(&mut notifications).await, event);
        }
    });
    one.end();
    two.end();
}

/// `nostr-tools`, as `scripts/setup` installs it, does the same.
pub fn nostr_tools_uses_the_node_as_any_relay(site: &Site) {
    for (args, mode) in [(&[][..], "plain"), (&["--auth", "required"], "auth")] {
        let running = Running::start(site, &[&["--topicless", "global"], args].concat());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nostr-tools/client.mjs");
        let told = ended(Command::new("node").args([script, &running.url, mode])).ok();
        assert_eq!(told.stdout, "ok\n", "{}", told.stderr);
        running.end();
    }
}
