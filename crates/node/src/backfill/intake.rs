//! Events that come from another node, on their way into the lane: the same way that an import takes.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{NodeTopic, Outcome};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::pulled::{Ended, Taken};
use super::puller::{Puller, Watch};
use crate::import::check::{CheckedLine, Checker};
use crate::import::counts::Counts;
use crate::import::lines::Line;
use crate::import::pipeline::{Ending, Pipeline};
use crate::import::reader::Chunk;
use crate::signal::Interrupts;

pub struct Intake<'a> {
    pub puller: &'a Puller,
    pub checker: Arc<Checker>,
    pub topic: &'a NodeTopic,
    /// The relay that they come from.
    pub from: &'a Arc<str>,
    pub watch: &'a Watch,
    /// Events that came before these.
    pub came: u64,
}

impl Intake<'_> {
    /// Takes events in until no more come, or it is to stop.
    pub async fn take(self, groups: mpsc::Receiver<Vec<String>>) -> Taken {
        let (chunks, read) = mpsc::channel(1);
        let Puller { lane, chunks_in_lane_max, memory, .. } = self.puller;
        let (memory, from) = (Arc::clone(memory), Arc::clone(self.from));
        let seen = move |line: &CheckedLine, outcome: &Outcome| {
            if let (Some(id), Outcome::Refused(why)) = (line.id, outcome) {
                memory.refused().remember(&from, id, why);
            }
        };
        let pipeline = Pipeline {
            lane,
            chunks_in_lane_max: *chunks_in_lane_max,
            checker: Arc::clone(&self.checker),
            patience: Duration::ZERO,
            counts: Counts::default(),
            report: None,
            seen: Some(Box::new(seen)),
            bar: self.watch.bar.clone(),
            interrupts: Interrupts::never(),
        };
        let (ended, (ending, counts)) = tokio::join!(self.feed(groups, chunks), pipeline.run(read));
        let failure = match ending {
            Ending::Failed(error) => Some(error),
            Ending::Finished | Ending::Interrupted => None,
        };
        Taken { ended, counts, failure }
    }

    /// Hands groups of events on as chunks, at a rate.
    async fn feed(
        &self,
        mut groups: mpsc::Receiver<Vec<String>>,
        chunks: mpsc::Sender<anyhow::Result<Chunk>>,
    ) -> Ended {
        let per_second = self.puller.allowed.per_second;
        let mut came = self.came;
        let ended = loop {
            let Some(group) = groups.recv().await else { break Ended::Done };
            // What cannot be read now is no reason to stop: the lane will tell.
            if let Ok(Some(why)) = self.puller.obstacle(self.topic, self.watch).await {
                break why;
            }
            let due_at = self.puller.memory.pay(group.len(), per_second);
            let lines = group.into_iter().zip(came + 1..);
            let lines: Vec<Line> =
                lines.map(|(text, number)| Line { number, text: Ok(text) }).collect();
            came += lines.len() as u64;
            let chunk = Chunk { lines, last: false, bytes: came, last_line: came };
            if chunks.send(Ok(chunk)).await.is_err() {
                // Whoever checks them has failed, and says so.
                break Ended::Done;
            }
            tokio::select! {
                () = sleep_until(due_at) => {}
                () = self.watch.stop.cancelled() => break Ended::Interrupted,
            }
        };
        let last = Chunk { lines: Vec::new(), last: true, bytes: came, last_line: came };
        let _ = chunks.send(Ok(last)).await;
        ended
    }
}
