//! How dear it is to index and to find: the processor time of a document and the time of a question,
//! in microseconds and as multiples of one signature check beside it.
//!
//! `cargo bench -p kukuri-index -- [DOCUMENTS [TOPICS]] [sqlite|postgres]`: a million, in one topic and in
//! many, on both, unless told otherwise.

mod corpus;
mod meter;

use std::time::{Duration, Instant};

use kukuri_core::{Seq, TopicId};
use kukuri_event::UnixSeconds;
use kukuri_feed::{Consumer, Generation, Home, Place, Sync};
use kukuri_index::{Ask, Index, Kinds, Projection, Start};
use kukuri_testkit::figure::figure;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;

use corpus::{Corpus, Frequency, NOW};
use meter::{Times, cpu, verify_micros};

/// As the node has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DOCUMENTS: usize = 1_000_000;
const DOCUMENTS_PER_BATCH: usize = 1000;
const QUESTIONS: usize = 1000;
const TOPICS: [usize; 2] = [1, 500];
const GENERATION: Generation = Generation(1);
const SHARED_BUFFERS_MB: u32 = 1024;

/// What must hold, in signature checks.
struct Limits {
    document: f64,
    question_p50: f64,
    question_p99: Option<f64>,
    common_p99: Option<f64>,
}

const SQLITE: Limits =
    Limits { document: 1.5, question_p50: 40.0, question_p99: Some(400.0), common_p99: None };
const POSTGRES: Limits =
    Limits { document: 3.0, question_p50: 100.0, question_p99: None, common_p99: Some(3000.0) };

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let documents = numbers.next().unwrap_or(DOCUMENTS);
    let topics = numbers.next().map_or(TOPICS.to_vec(), |topics| vec![topics]);
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    for topics in topics.iter().copied().filter(|_| !named("postgres")) {
        let directory = TempDir::new().expect("a temporary directory");
        let place = Place::Directory { directory: directory.path().into(), sync: Sync::Full };
        let bench = Bench { name: "sqlite", cluster: None, limits: SQLITE };
        bench.run(&place, Corpus::new(documents, topics)).await;
    }
    let shared_buffers_mb = SHARED_BUFFERS_MB;
    let settings = Settings { shared_buffers_mb, ..Settings::new(Durability::Durable) };
    for topics in topics.iter().copied().filter(|_| !named("sqlite")) {
        let cluster = Cluster::start_with(&settings).expect("a cluster starts");
        let place = Place::Database { url: cluster.create_database() };
        let bench = Bench { name: "postgres", cluster: Some(cluster), limits: POSTGRES };
        bench.run(&place, Corpus::new(documents, topics)).await;
    }
}

struct Bench {
    name: &'static str,
    cluster: Option<Cluster>,
    limits: Limits,
}

impl Bench {
    async fn run(&self, place: &Place, mut corpus: Corpus) {
        let home = Home::open(place, Index::NAME).await.expect("the tables open");
        self.index(&home, &mut corpus).await;
        let topics = corpus.topics.clone();
        self.ask(&home, &mut corpus, "one", |topic| vec![topic]).await;
        if topics.len() > 1 {
            self.ask(&home, &mut corpus, "all", |_| topics.clone()).await;
        }
    }

    async fn index(&self, home: &Home, corpus: &mut Corpus) {
        let index = Index::default();
        let mut writing = home.write().await.expect("begins to write");
        index.create(writing.desk(), GENERATION).await.expect("makes the tables");
        writing.commit().await.expect("commits");

        let (mut words, mut spent, mut took) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut slowest = Duration::ZERO;
        let (mut seq, cluster) = (Seq::ZERO, self.cluster.as_ref());
        let before = verify_micros();
        for _ in 0..corpus.documents / DOCUMENTS_PER_BATCH {
            let batch = corpus.batch(DOCUMENTS_PER_BATCH);
            let (cpu_before, begin) = (cpu(cluster), Instant::now());
            let kinds = Kinds::default();
            let mut projection = Projection::new(&kinds);
            for (event, topic) in &batch {
                seq = seq.next();
                projection.arrive(event, topic, seq);
            }
            let effects = projection.finish();
            words += cpu(cluster).saturating_sub(cpu_before);
            let mut writing = home.write().await.expect("begins to write");
            index.apply(writing.desk(), GENERATION, effects).await.expect("writes effects");
            writing.commit().await.expect("commits");
            took += begin.elapsed();
            slowest = slowest.max(begin.elapsed());
            spent += cpu(cluster).saturating_sub(cpu_before);
        }
        let verify = (before + verify_micros()) / 2.0;
        let per_document = |time: Duration| time.as_secs_f64() * 1e6 / corpus.documents as f64;
        let micros = per_document(spent);
        println!(
            "{}, {} documents in {} topics: {micros:.1} µs of processor time per document, {:.1} of them to make words; {:.0} documents/s; the slowest batch {:.0} ms; one signature check {verify:.1} µs",
            self.name,
            corpus.documents,
            corpus.topics.len(),
            per_document(words),
            1e6 / per_document(took),
            slowest.as_secs_f64() * 1e3,
        );
        let what = format!("indexing into {} topics, CPU in verifications", corpus.topics.len());
        figure(self.name, &what, micros / verify, Some(self.limits.document));
    }

    async fn ask(
        &self,
        home: &Home,
        corpus: &mut Corpus,
        within: &str,
        topics: impl Fn(TopicId) -> Vec<TopicId>,
    ) {
        let index = Index::default();
        let mut all = Times::default();
        let mut sorts = Frequency::ALL.map(|frequency| (frequency, Times::default(), 0));
        let before = verify_micros();
        for nth in 0..QUESTIONS {
            let (frequency, text, topic) = corpus.question(nth);
            let start = Start::First { now: UnixSeconds(NOW) };
            let ask = Ask::new(&text, topics(topic), start).expect("a word");
            let begin = Instant::now();
            let mut snapshot = home.read().await.expect("begins to read");
            let page = index.search(snapshot.desk(), GENERATION, &ask, Seq(i64::MAX)).await;
            snapshot.end().await.expect("ends");
            let took = begin.elapsed();
            all.add(took);
            let (_, times, hits) =
                sorts.iter_mut().find(|(sort, ..)| *sort == frequency).expect("all are there");
            times.add(took);
            *hits += page.expect("a page").hits.len();
        }
        let verify = (before + verify_micros()) / 2.0;
        let within = format!("in {within} of {} topics", corpus.topics.len());
        for (frequency, times, hits) in &sorts {
            println!(
                "{}, {frequency:?} words {within}, {hits} results: {}",
                self.name,
                times.line()
            );
        }
        let Limits { question_p50, question_p99, common_p99, .. } = self.limits;
        let [.., (_, common, _)] = &sorts;
        for (what, times, percent, limit) in [
            ("questions", &all, 50, Some(question_p50)),
            ("questions", &all, 99, question_p99),
            ("common words", common, 99, common_p99),
        ] {
            let what = format!("{what} {within}, p{percent} in verifications");
            figure(self.name, &what, times.micros(percent) / verify, limit);
        }
    }
}
