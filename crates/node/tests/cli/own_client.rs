//! Our own client against the running program.

use std::sync::Arc;
use std::time::Duration;

use kukuri_client::{Client, ClientConfig, Item, Subscription};
use kukuri_event::{Event, Filter};
use kukuri_store::conformance::signing::{Author, Draft};

use crate::running::Running;
use crate::site::{Site, system_time};

/// How long an item may take, with a start of the node between.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often the node is killed.
const KILLS: usize = 3;
const EVENTS_PER_LIFE: usize = 10;

fn note(nth: usize) -> Event {
    let draft = Draft::new(1, system_time());
    let draft = draft.tag("t", "kukuri:global").content(format!("note {nth}"));
    Event::parse(&Author::numbered(1).sign(&draft)).unwrap()
}

async fn next(subscription: &mut Subscription) -> Item {
    let next = tokio::time::timeout(WAIT_MAX, subscription.next());
    next.await.expect("an item in time").expect("the subscription goes on")
}

async fn connected(running: &Running) -> Client {
    Client::connect(&running.url, ClientConfig::STANDARD).await.unwrap()
}

fn everything() -> Vec<Filter> {
    vec![Filter::parse(r##"{"#t":["kukuri:global"]}"##).unwrap()]
}

/// The node dies in the middle of it, several times, and comes back where it was. What was published
/// meanwhile is taken then, and who listens sees everything once and in order, as if nothing had been.
#[tokio::main]
pub async fn our_client_goes_on_after_the_node_was_killed(site: &Site) {
    let mut running = Running::start(site, &[]);
    let address = running.url["ws://".len()..].to_owned();
    let (writer, reader) = (Arc::new(connected(&running).await), connected(&running).await);
    let stored = note(0);
    writer.publish(&stored).await.unwrap();
    let mut subscription = reader.subscribe(everything()).await.unwrap();
    assert_eq!(next(&mut subscription).await, Item::Stored(Box::new(stored)));
    assert_eq!(next(&mut subscription).await, Item::Eose);

    for kill in 0..=KILLS {
        for nth in 1..=EVENTS_PER_LIFE {
            let event = note(kill * EVENTS_PER_LIFE + nth);
            // The last ones of each life have no node to go to.
            let is_last = kill < KILLS && nth == EVENTS_PER_LIFE;
            if is_last {
                running.node.kill9().unwrap();
            }
            let publishing = {
                let (writer, event) = (Arc::clone(&writer), event.clone());
                tokio::spawn(async move { writer.publish(&event).await })
            };
            if is_last {
                running = Running::start(site, &["--listen", &address]);
            }
            let published = publishing.await.unwrap().unwrap();
            assert_eq!(published.id, event.id());
            assert_eq!(next(&mut subscription).await, Item::Live(Box::new(event)));
        }
    }
    assert_eq!(subscription.waiting(), 0, "nothing came twice");
    // Someone who comes now finds the same.
    let newcomer = connected(&running).await;
    let mut late = newcomer.subscribe(everything()).await.unwrap();
    let mut count = 0;
    while let Item::Stored(_) = next(&mut late).await {
        count += 1;
    }
    assert_eq!(count, 1 + (KILLS + 1) * EVENTS_PER_LIFE);
    reader.close().await;
    running.end();
}
