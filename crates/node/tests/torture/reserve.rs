//! A running node whose disk has less room than its reserve: clients are told so, while they read and
//! delete and the operator makes room; then events are taken in again.

use std::fs;

use kukuri_core::{Mapping, NetworkId, TopicId};
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::mount::{Tmpfs, fill};
use kukuri_testkit::spec::Event;
use serde_json::json;
use tokio::time::timeout;

use crate::door::{Client, Node};
use crate::import::SILENCE_MAX;
use crate::load::NOW;
use crate::rig::{Place, require_none};

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 800 * MIB;
const RESERVE: (&str, &str) = ("KUKURI_CAPACITY_DISK_RESERVE_MIB", "320");
/// Less than the reserve, and more than the logs of both files and the index take until the node looks again,
/// with the last quarter of the reserve left.
const FREE_BYTES: u64 = 310 * MIB;

const FULL: &str = "error: storage full";
const TOPIC: &str = "crowded";
const NOTES: usize = 20;

fn sign(draft: Draft, topic: &TopicId) -> String {
    Author::numbered(1).sign(&draft.tag("t", topic))
}

/// Publishes notes that nobody has seen until one is answered so; says how many that took.
async fn publish_until(client: &mut Client, wanted: &str) -> usize {
    let publish = async {
        for nth in 0.. {
            let note = sign(Draft::new(1, NOW).tag("nth", nth).content(wanted), &TopicId::global());
            let said = client.publish(&note).await;
            if said == wanted {
                return nth;
            }
            assert!(said == FULL || said.is_empty(), "{said}");
        }
        unreachable!("there is no last number")
    };
    timeout(SILENCE_MAX, publish).await.expect("the node notices what the disk is like")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_its_reserve_alone() {
    let disk = match Tmpfs::mount(DISK_BYTES) {
        Ok(disk) => disk,
        Err(error) => return error.skip("reserve::a_node_leaves_its_reserve_alone"),
    };
    let place = Place::Sqlite(disk.path().join("data"));
    assert!(place.run(&["topic", "add", TOPIC]).status.success());
    let node = Node::start_with(&place, NOW, &[RESERVE]);
    let mut client = Client::connect(&node).await;
    let notes: Vec<String> = (0..NOTES)
        .map(|nth| sign(Draft::new(1, UnixSeconds(NOW.0 - 1)).tag("n", nth), &TopicId::global()))
        .collect();
    let crowded = TopicId::from_name(TOPIC, &NetworkId::default(), Mapping::V2);
    let crowded = crowded.expect("it is a name");
    let crowd = (0..NOTES).map(|nth| sign(Draft::new(1, NOW).tag("n", nth), &crowded));
    for note in notes.iter().cloned().chain(crowd) {
        assert_eq!(client.publish(&note).await, "");
    }
    let ballast = disk.path().join("ballast");
    fill(&ballast, FREE_BYTES).expect("a disk can be filled");
    let taken = publish_until(&mut client, FULL).await;
    let known = json!({ "#t": [TopicId::global().as_str()], "until": NOW.0 - 1 });
    assert_eq!(client.count(&known).await, NOTES as u64, "it can be read");
    let target = Event::read(&notes[0]).id;
    let request = sign(Draft::new(5, NOW).tag("e", target), &TopicId::global());
    assert_eq!(client.publish(&request).await, "", "deleting goes on");
    assert_eq!(client.count(&known).await, NOTES as u64 - 1);
    let removed = place.run(&["topic", "remove", TOPIC]);
    let errors = String::from_utf8_lossy(&removed.stderr);
    assert!(removed.status.success(), "purging goes on: {errors}");
    assert!(errors.contains(&format!("with {NOTES} events")), "{errors}");
    fs::remove_file(&ballast).expect("the ballast can be dropped");
    let refused = publish_until(&mut client, "").await;
    println!("{taken} notes were taken in before the node noticed, {refused} refused after");
    node.end();
    require_none("reserve", &place.doctor());
}
