//! NIP-42.

use std::sync::Arc;

use kukuri_client::{Client, ClientConfig, Closing, Item, Prefix, PublishError, Signer};
use kukuri_relay::AuthPolicy;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::generate::{Seed, World};

use crate::proxy::Proxy;
use crate::rig::{Rig, all, client_config, live, next, note, stored};

/// Proves to be the first author. `url` is what the relay is known by, if not by the client's
/// address.
fn signer(url: Option<String>) -> Signer {
    Arc::new(move |challenge| {
        let relay = url.clone().unwrap_or_else(|| challenge.url.to_owned());
        let draft =
            Draft::new(22242, World::NOW).tag("relay", relay).tag("challenge", challenge.text);
        Some(Author::numbered(1).sign(&draft))
    })
}

#[tokio::test]
async fn who_can_sign_is_let_in() {
    let rig = Rig::start(AuthPolicy::REQUIRED).await;
    let config = ClientConfig { signer: Some(signer(None)), ..client_config() };
    let client = Client::connect(&rig.url(), config).await.unwrap();
    // Both are said before the relay knows who we are.
    let (event, subscription) = (note("mine"), client.subscribe(all()));
    let (published, subscription) = tokio::join!(client.publish(&event), subscription);
    published.unwrap();
    let mut subscription = subscription.unwrap();
    let shown = [next(&mut subscription).await, next(&mut subscription).await];
    assert!(shown.contains(&Item::Eose));
    assert!(shown.contains(&stored(&event)) || shown.contains(&live(&event)));
    assert_eq!(client.publish(&event).await.unwrap().message.prefix(), Prefix::Duplicate);
}

#[tokio::test]
async fn who_cannot_sign_is_told_so() {
    let rig = Rig::start(AuthPolicy::REQUIRED).await;
    let nobody: Signer = Arc::new(|_| None);
    let liar = signer(Some("ws://elsewhere.example".to_owned()));
    for signer in [None, Some(nobody), Some(liar)] {
        let config = ClientConfig { signer, ..client_config() };
        let client = Client::connect(&rig.url(), config).await.unwrap();
        match client.publish(&note("mine")).await {
            Err(PublishError::Refused { reason, .. }) => {
                assert_eq!(reason.prefix(), Prefix::AuthRequired);
            }
            other => panic!("{other:?}"),
        }
        let mut subscription = client.subscribe(all()).await.unwrap();
        match next(&mut subscription).await {
            Item::Closed(Closing::Relay(reason)) => {
                assert_eq!(reason.prefix(), Prefix::AuthRequired);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Each connection is another challenge.
#[tokio::test]
async fn a_new_connection_is_proved_anew() {
    let rig = Rig::start(AuthPolicy::REQUIRED).await;
    let proxy = Proxy::start(rig.address, Seed(0)).await;
    let config = ClientConfig { signer: Some(signer(Some(rig.url()))), ..client_config() };
    let client = Client::connect(&proxy.url(), config).await.unwrap();
    let mut subscription = client.subscribe(all()).await.unwrap();
    assert_eq!(next(&mut subscription).await, Item::Eose);
    for nth in 0..5 {
        proxy.cut();
        let event = note(&nth.to_string());
        client.publish(&event).await.unwrap();
        assert_eq!(next(&mut subscription).await, live(&event));
    }
    assert!(proxy.cuts() >= 5);
}
