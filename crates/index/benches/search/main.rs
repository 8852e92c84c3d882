//! How dear it is to index and to find: the processor time of a document and the time of a question,
//! in microseconds and as multiples of one signature check in the same run.
//!
//! `cargo bench -p kukuri-index -- [DOCUMENTS]`, a million unless told otherwise.

mod corpus;
mod meter;

use std::time::{Duration, Instant};

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use kukuri_feed::{Consumer, Generation, Home, Place, Sync};
use kukuri_index::{Ask, Index, Kinds, Projection, Start};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;

use corpus::{Corpus, Frequency, NOW};
use meter::{Times, cpu, verify_micros};

const DOCUMENTS: usize = 1_000_000;
const DOCUMENTS_PER_BATCH: usize = 1000;
const QUESTIONS: usize = 1000;
const TOPICS: [usize; 2] = [1, 500];
const GENERATION: Generation = Generation(1);
const SHARED_BUFFERS_MB: u32 = 1024;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let documents = arguments.next().unwrap_or(DOCUMENTS);
    let verify = verify_micros();
    println!("one signature check: {verify:.1} µs");
    for topics in TOPICS {
        let directory = TempDir::new().expect("a temporary directory");
        let place = Place::Directory { directory: directory.path().into(), sync: Sync::Full };
        measure("SQLite", &place, None, Corpus::new(documents, topics), verify).await;
    }
    let shared_buffers_mb = SHARED_BUFFERS_MB;
    let settings = Settings { shared_buffers_mb, ..Settings::new(Durability::Durable) };
    for topics in TOPICS {
        let cluster = Cluster::start_with(&settings).expect("a cluster starts");
        let place = Place::Database { url: cluster.create_database() };
        measure("PostgreSQL", &place, Some(&cluster), Corpus::new(documents, topics), verify).await;
    }
}

async fn measure(
    name: &str,
    place: &Place,
    cluster: Option<&Cluster>,
    mut corpus: Corpus,
    verify: f64,
) {
    println!("{name}, {} documents in {} topics", corpus.documents, corpus.topics.len());
    let home = Home::open(place, Index::NAME).await.expect("the tables open");
    let index = Index::default();
    let mut writing = home.write().await.expect("begins to write");
    index.create(writing.desk(), GENERATION).await.expect("makes the tables");
    writing.commit().await.expect("commits");

    let (mut projecting, mut spent, mut took) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut seq = Seq::ZERO;
    for _ in 0..corpus.documents / DOCUMENTS_PER_BATCH {
        let batch = corpus.batch(DOCUMENTS_PER_BATCH);
        let (before, begin) = (cpu(cluster), Instant::now());
        let kinds = Kinds::default();
        let mut projection = Projection::new(&kinds);
        for (event, topic) in &batch {
            seq = seq.next();
            projection.arrive(event, topic, seq);
        }
        let mut writing = home.write().await.expect("begins to write");
        let effects = projection.finish();
        projecting += cpu(cluster).saturating_sub(before);
        index.apply(writing.desk(), GENERATION, effects).await.expect("writes effects");
        writing.commit().await.expect("commits");
        took += begin.elapsed();
        spent += cpu(cluster).saturating_sub(before);
    }
    let per_document = |time: Duration| time.as_secs_f64() * 1e6 / corpus.documents as f64;
    let micros = per_document(spent);
    println!("  making words: {:.1} µs of that", per_document(projecting));
    println!(
        "  indexing: {micros:.1} µs of processor time per document = {:.2} × verify, {:.0} documents/s",
        micros / verify,
        1e6 / per_document(took)
    );
    ask(&home, &index, &mut corpus, verify).await;
}

async fn ask(home: &Home, index: &Index, corpus: &mut Corpus, verify: f64) {
    let mut all = Times::default();
    let mut sorts = Frequency::ALL.map(|frequency| (frequency, Times::default(), 0));
    for nth in 0..QUESTIONS {
        let (frequency, text, topic) = corpus.question(nth);
        let start = Start::First { now: UnixSeconds(NOW) };
        let ask = Ask::new(&text, vec![topic], start).expect("a word");
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
    println!("  questions: {}", all.line(verify));
    for (frequency, times, hits) in sorts {
        println!("  {frequency:?} ({hits} results): {}", times.line(verify));
    }
}
