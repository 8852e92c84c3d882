//! A consumer in one small module: it writes to a file, line by line, which posts come and go.
//!
//! ```text
//! cargo run -p kukuri-feed --example journal -- DIR
//! ```
//!
//! A file cannot share a transaction with the offset, so this consumer writes the lines to a table first,
//! in the transaction that moves the offset, and copies the table to the file afterwards, as often as it
//! likes: the file can always be made again. That is the way for anything outside of the database, such as
//! a message to somebody: note what is to be done with the offset, and do what is noted.
//!
//! State-based: a line says what is the case with an event in a topic now.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{Act, Command, TopicId, UnixMillis};
use kukuri_event::{Kind, UnixSeconds};
use kukuri_feed::{
    Column, Consumer, ConsumerName, Desk, DeskError, Digest, Generation, Given, Home, Place,
    Poison, Runner, RunnerConfig, Sample, Sync, Update, What,
};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use tokio_util::sync::CancellationToken;

const NAME: ConsumerName = ConsumerName::new("journal");

struct Journal;

/// What a batch does: lines by event and topic, of which the last one counts.
type Lines = std::collections::BTreeMap<(Vec<u8>, String), String>;

#[async_trait]
impl Consumer for Journal {
    type Effects = Lines;

    fn name(&self) -> ConsumerName {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn wants(&self, kind: Kind) -> bool {
        kind == Kind(1)
    }

    fn project(&self, updates: &[Update]) -> Result<Lines, Poison> {
        let mut lines = Lines::new();
        for update in updates {
            let line = match &update.what {
                What::Upsert { body, .. } => format!("+ {}", body.event().content()),
                What::Gone => continue,
                What::Delete { .. } => format!("- {}", update.event_id),
            };
            // PostgreSQL has no NUL in texts.
            let line = line.replace(['\0', '\n'], " ");
            let key = (update.event_id.as_bytes().to_vec(), update.topic_id.to_string());
            lines.insert(key, line);
        }
        Ok(lines)
    }

    async fn create(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        let (table, blob) = (generation.table("lines"), desk.dialect().blob());
        desk.script(&format!(
            "CREATE TABLE {table} (event_id {blob} NOT NULL, topic_id TEXT NOT NULL,
                line TEXT NOT NULL, PRIMARY KEY (event_id, topic_id))"
        ))
        .await
    }

    async fn apply(
        &self,
        desk: &mut Desk,
        generation: Generation,
        lines: Lines,
    ) -> Result<(), DeskError> {
        let table = generation.table("lines");
        let events: Column = lines.keys().map(|(event, _)| event.clone()).collect();
        let topics: Column = lines.keys().map(|(_, topic)| topic.clone()).collect();
        let given = [("event_id", events), ("topic_id", topics)];
        let lines: Column = lines.into_values().collect();
        let given = Given::new(given.into_iter().chain([("line", lines)]));
        let sql = format!(
            "INSERT INTO {table} (event_id, topic_id, line)
             SELECT event_id, topic_id, line FROM given WHERE TRUE
             ON CONFLICT (event_id, topic_id) DO UPDATE SET line = excluded.line"
        );
        desk.bulk(&sql, given).await?;
        Ok(())
    }

    async fn digest(
        &self,
        desk: &mut Desk,
        generation: Generation,
        _sample: Sample,
    ) -> Result<Digest, DeskError> {
        // Lines of events that are gone are not there in a generation that was rebuilt.
        let sql = format!(
            "SELECT count(*), COALESCE(sum(length(line)), 0) FROM {} WHERE line LIKE '+%'",
            generation.table("lines")
        );
        let row = desk.row(&sql, vec![]).await?;
        let row = row.ok_or_else(|| DeskError::Broken("no count".into()))?;
        Ok(Digest { rows: row.int(0)? as u64, hash: row.int(1)? as u64 })
    }

    async fn discard(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        desk.script(&format!("DROP TABLE IF EXISTS {}", generation.table("lines"))).await
    }
}

/// Copies the lines to the file.
async fn copy(home: &Home, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut snapshot = home.read().await?;
    let mut text = String::new();
    if let Some(active) = home.active(snapshot.desk()).await? {
        let sql = format!("SELECT line FROM {} ORDER BY line", active.generation.table("lines"));
        for row in snapshot.desk().rows(&sql, vec![]).await? {
            writeln!(text, "{}", row.text(0)?)?;
        }
    }
    snapshot.end().await?;
    std::fs::write(file, text)?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: journal DIR")?);
    std::fs::create_dir_all(&directory)?;
    let file = keep(directory).await?;
    println!("{}", file.display());
    Ok(())
}

/// Keeps a journal of a few posts, and says where.
async fn keep(directory: PathBuf) -> Result<PathBuf, Box<dyn std::error::Error>> {
    // A node opens its event store here; this one is in memory and has a few posts.
    let store: Arc<dyn Store> = Arc::new(Model::default());
    post(&*store, &["hello", "world"]).await?;

    let place = Place::Directory { directory: directory.clone(), sync: Sync::Full };
    let home = Home::open(&place, NAME).await?;
    // The file of an earlier run belongs to another store, which is noticed: it is rebuilt.
    let runner = Runner::open(Journal, Arc::clone(&store), home, RunnerConfig::standard()).await?;
    let stop = CancellationToken::new();
    let running = {
        let (runner, stop) = (runner.clone(), stop.clone());
        tokio::spawn(async move { runner.run(stop).await })
    };
    post(&*store, &["and more"]).await?;
    loop {
        let report = runner.report(UnixMillis(0)).await?;
        let fresh = |active: &kukuri_feed::GenerationReport| {
            active.lag_rows == 0 && active.lost.is_none() && report.building().is_none()
        };
        if report.active().is_some_and(fresh) {
            break;
        }
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await?;
    let file = directory.join("journal.txt");
    copy(runner.home(), &file).await?;
    Ok(file)
}

async fn post(store: &dyn Store, texts: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let now = UnixSeconds(1_700_000_000);
    let mut acts = vec![Act::carry(TopicId::global(), "global")];
    for text in texts {
        let draft = Draft::new(1, now).tag("t", TopicId::global()).content(*text);
        acts.push(Act::Publish(Author::numbered(1).admit(&draft, now)));
    }
    let commands: Vec<Command> =
        acts.into_iter().map(|act| Command { at: now.into(), act }).collect();
    let _outcomes = store.apply(commands.into()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    /// The second time, the file of the first one belongs to a store that is gone.
    #[tokio::test]
    async fn a_journal_is_kept() {
        let directory = tempfile::tempdir().expect("a directory is made");
        for _ in 0..2 {
            let file = super::keep(directory.path().to_owned()).await.expect("it is kept");
            let text = std::fs::read_to_string(file).expect("it can be read");
            assert_eq!(text, "+ and more\n+ hello\n+ world\n");
        }
    }
}
