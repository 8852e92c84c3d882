use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use kukuri_api::{Api, ApiConfig, Finder, Host};
use kukuri_core::admission::{Rate, Verdict};
use kukuri_core::{Act, Command, NetworkId, TopicId, UnixMillis};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_feed::{Home, Place, Runner, RunnerConfig, Sync};
use kukuri_index::{Index, NamedTopic, Names};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
pub const STALE_FROM: Duration = Duration::from_secs(10);
pub const TOPIC: &str = "kukuri:global";
const WAIT_MAX: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_millis(5);
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A house whose rules can be changed.
pub struct House {
    pub rate: Mutex<Rate>,
    pub verdict: Mutex<Verdict>,
    pub carried: Mutex<BTreeSet<TopicId>>,
    pub names: Mutex<Vec<NamedTopic>>,
}

impl Host for House {
    fn charge(&self, _: &Parts) -> Rate {
        *self.rate.lock().unwrap()
    }

    fn may_read(&self, _: &Parts, _: &[TopicId]) -> Verdict {
        *self.verdict.lock().unwrap()
    }

    fn carries(&self, topic: &TopicId) -> bool {
        self.carried.lock().unwrap().contains(topic)
    }

    fn names(&self) -> Arc<Names> {
        Arc::new(Names::new(self.names.lock().unwrap().clone()))
    }
}

pub struct Rig {
    pub house: Arc<House>,
    pub api: Arc<Api>,
    store: Arc<dyn Store>,
    seconds: Arc<AtomicI64>,
    directory: TempDir,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub json: Value,
}

impl Answer {
    pub fn code(&self) -> (u16, &str) {
        (self.status.as_u16(), self.json["code"].as_str().unwrap_or_default())
    }

    pub fn contents(&self) -> Vec<&str> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.json);
        let items = self.json["items"].as_array().unwrap().iter();
        items.map(|item| item["event"]["content"].as_str().unwrap()).collect()
    }
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(true).await
    }

    pub async fn with(search: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(Model::default());
        let house = Arc::new(House {
            rate: Mutex::new(Rate::Within),
            verdict: Mutex::new(Verdict::Admit),
            carried: Mutex::new([TopicId::global()].into()),
            names: Mutex::default(),
        });
        let seconds = Arc::new(AtomicI64::new(NOW.0));
        let clock = {
            let seconds = Arc::clone(&seconds);
            Arc::new(move || UnixMillis(seconds.load(Ordering::SeqCst) * 1000))
        };
        let finder = Finder::new(Arc::clone(&store), clock, place(&directory), STALE_FROM);
        let config = ApiConfig { network: NetworkId::default(), scan_rows_max: 50_000 };
        let finder = search.then(|| Arc::new(finder));
        let api = Api::new(Arc::clone(&house) as _, Arc::clone(&store), finder, config);
        let rig = Self { house, api, store, seconds, directory };
        rig.apply(Act::carry(TopicId::global(), String::new())).await;
        rig
    }

    pub fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    pub fn now(&self) -> UnixSeconds {
        UnixSeconds(self.seconds.load(Ordering::SeqCst))
    }

    async fn apply(&self, act: Act) {
        let command = Command { at: self.now().into(), act };
        assert!(self.store.apply([command].into()).await.unwrap().outcomes[0].is_ok());
    }

    pub async fn publish(&self, draft: &Draft) -> EventId {
        let draft = draft.clone().tag("t", TOPIC);
        let admitted = Author::numbered(1).admit(&draft, self.now());
        let id = admitted.event().id();
        self.apply(Act::Publish(admitted)).await;
        id
    }

    pub async fn note(&self, content: &str) -> EventId {
        self.publish(&Draft::new(1, self.now()).content(content)).await
    }

    /// Lets the index follow the feed to its end, and stops it.
    pub async fn index(&self) {
        let home = Home::open(&place(&self.directory), Index::NAME).await.unwrap();
        let store = Arc::clone(&self.store);
        let runner = Runner::open(Index::default(), store, home, RunnerConfig::standard());
        let (runner, stop) = (runner.await.unwrap(), CancellationToken::new());
        let head = self.store.bounds().await.unwrap().head;
        let there = async {
            let mut probes = tokio::time::interval(PROBE_INTERVAL);
            loop {
                probes.tick().await;
                let report = runner.report(UnixMillis(0)).await.unwrap();
                if report.active().is_some_and(|active| active.state.cursor.seq == head) {
                    break stop.cancel();
                }
            }
        };
        let both = async { tokio::join!(there, runner.run(stop.clone())) };
        tokio::time::timeout(WAIT_MAX, both).await.expect("the index follows");
    }

    /// Changes the tables of the index behind its back.
    pub async fn script(&self, sql: &str) {
        let home = Home::open(&place(&self.directory), Index::NAME).await.unwrap();
        let mut writing = home.write().await.unwrap();
        writing.desk().script(sql).await.unwrap();
        writing.commit().await.unwrap();
    }

    pub fn routes(&self) -> Router {
        self.api.routes()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).await
    }

    pub async fn ask(&self, method: Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = self.routes().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, ANSWER_BYTES_MAX).await.unwrap();
        let json = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).unwrap(),
        };
        Answer { status: parts.status, headers: parts.headers, json }
    }

    pub async fn search(&self, words: &str, more: &str) -> Answer {
        self.get(&format!("/v1/search?topic={TOPIC}&q={}{more}", encode(words))).await
    }
}

pub fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn place(directory: &TempDir) -> Place {
    Place::Directory { directory: directory.path().to_owned(), sync: Sync::OffForTests }
}
