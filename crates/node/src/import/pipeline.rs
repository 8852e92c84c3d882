//! The middle of an import: keeps every hop busy, in order, and knows when to stop.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use kukuri_core::{Act, Outcome};
use kukuri_lane::{Answer, Lane, LaneConfig, LaneError, Tickets};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::check::{CheckedChunk, CheckedLine, Checker};
use super::counts::Counts;
use super::reader::{CHUNK_LINES_MAX, Chunk};
use super::report::Report;
use crate::exit::Exit;
use crate::signal::Interrupts;

/// The pause before commands are sent again to a store that was full or away.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A lane with room for so many chunks, each of at most 1 MiB and one more line.
pub fn lane_config(chunks: usize) -> LaneConfig {
    let chunks = u32::try_from(chunks).expect("a lead is a few chunks");
    LaneConfig {
        queue_commands_max: chunks * CHUNK_LINES_MAX as u32,
        queue_bytes_max: chunks * 2 * 1024 * 1024,
        ..LaneConfig::STANDARD
    }
}

/// Why an import ended.
pub enum Ending {
    Finished,
    Interrupted,
    Failed(anyhow::Error),
}

/// Hears of a line and what became of it.
pub type Seen<'a> = Box<dyn FnMut(&CheckedLine, &Outcome) + Send + 'a>;

/// What an import works with.
pub struct Pipeline<'a> {
    pub lane: &'a Lane,
    /// How many chunks may be in the lane.
    pub chunks_in_lane_max: usize,
    pub checker: Arc<Checker>,
    /// How long to go on when storage is full or away.
    pub patience: Duration,
    pub counts: Counts,
    pub report: Option<Report>,
    /// Who else hears of every outcome.
    pub seen: Option<Seen<'a>>,
    pub bar: ProgressBar,
    pub interrupts: Interrupts,
}

/// What is under way, in the order of the input.
#[derive(Default)]
struct Flow {
    checks: VecDeque<JoinHandle<CheckedChunk>>,
    submitted: VecDeque<Submitted>,
    /// Set when nothing more is read.
    ending: Option<Ending>,
    read_all: bool,
    interrupted: bool,
    /// Somebody would not wait for storage any longer: lines are left without an answer.
    gave_up: bool,
}

/// A chunk in the lane.
struct Submitted {
    chunk: CheckedChunk,
    /// Kept to be sent again; empty without patience.
    acts: Vec<Act>,
    tickets: Result<Tickets, LaneError>,
}

/// What happens next.
enum Step {
    Read(Option<anyhow::Result<Chunk>>),
    Checked(Result<CheckedChunk, JoinError>),
    Answered(Vec<Answer>),
    Interrupted,
}

impl Pipeline<'_> {
    /// Runs until the input ends, somebody interrupts, or storage fails. What was begun is finished
    /// in every case.
    pub async fn run(
        mut self,
        mut chunks: mpsc::Receiver<anyhow::Result<Chunk>>,
    ) -> (Ending, Counts) {
        let mut flow = Flow::default();
        loop {
            let idle = flow.checks.is_empty() && flow.submitted.is_empty();
            if let Some(ending) = flow.ending.take_if(|_| idle) {
                return (ending, self.counts);
            }
            let step = self.next_step(&mut flow, &mut chunks).await;
            if let Err(error) = self.take_step(&mut flow, step).await {
                // The first failure is the cause; those that follow are its echoes.
                if !matches!(flow.ending, Some(Ending::Failed(_))) {
                    flow.ending = Some(Ending::Failed(error));
                }
            }
        }
    }

    /// The end of the line first: what is answered makes room for what is checked, and that for what
    /// is read.
    async fn next_step(
        &mut self,
        flow: &mut Flow,
        chunks: &mut mpsc::Receiver<anyhow::Result<Chunk>>,
    ) -> Step {
        let checks_max = std::thread::available_parallelism().map_or(2, usize::from) + 1;
        let reads = flow.ending.is_none() && flow.checks.len() < checks_max;
        let submits = flow.submitted.len() < self.chunks_in_lane_max;
        tokio::select! {
            biased;
            _ = self.interrupts.next() => Step::Interrupted,
            answers = first_answers(&mut flow.submitted) => Step::Answered(answers),
            checked = first_check(&mut flow.checks), if submits => Step::Checked(checked),
            chunk = chunks.recv(), if reads => Step::Read(chunk),
        }
    }

    async fn take_step(&mut self, flow: &mut Flow, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Interrupted if flow.interrupted => leave_at_once(),
            Step::Interrupted => {
                flow.interrupt();
                self.say("interrupted: finishing what was begun; again to leave at once");
            }
            Step::Read(None) if flow.read_all => flow.ending = Some(Ending::Finished),
            Step::Read(None) => bail!("the reading thread ended before the input did"),
            Step::Read(Some(chunk)) => {
                let chunk = chunk?;
                flow.read_all = chunk.last;
                flow.checks.push_back(self.start_check(chunk));
            }
            Step::Checked(checked) => {
                flow.checks.pop_front();
                let chunk = checked.context("a verifying thread panicked")?;
                flow.submitted.push_back(self.submit(chunk).await);
            }
            Step::Answered(answers) => {
                let done = flow.submitted.pop_front().expect("the first one was answered");
                self.settle(flow, done, answers).await?;
            }
        }
        Ok(())
    }

    fn start_check(&self, chunk: Chunk) -> JoinHandle<CheckedChunk> {
        let checker = Arc::clone(&self.checker);
        tokio::task::spawn_blocking(move || checker.check(&Handle::current(), chunk))
    }

    async fn submit(&mut self, mut chunk: CheckedChunk) -> Submitted {
        self.lane.sighted(std::mem::take(&mut chunk.sighted));
        let acts = std::mem::take(&mut chunk.acts);
        let kept = if self.patience.is_zero() { Vec::new() } else { acts.clone() };
        let tickets = self.lane.submit_all(acts).await;
        Submitted { chunk, acts: kept, tickets }
    }

    /// Counts and reports a chunk that has its answers.
    async fn settle(
        &mut self,
        flow: &mut Flow,
        done: Submitted,
        mut answers: Vec<Answer>,
    ) -> anyhow::Result<()> {
        if answers.iter().any(Result::is_err) && !self.patience.is_zero() {
            self.insist(flow, &done.acts, &mut answers).await;
        }
        let mut answers = answers.into_iter();
        let mut failure = None;
        for line in &done.chunk.lines {
            let answer = match &line.outcome {
                Some(outcome) => Ok(outcome.clone()),
                None => answers.next().unwrap_or(Err(LaneError::Closed)),
            };
            let (ok, message) = match &answer {
                Ok(outcome) => {
                    self.counts.add(line.number, outcome);
                    if let Some(seen) = &mut self.seen {
                        seen(line, outcome);
                    }
                    (outcome.is_ok(), outcome.message())
                }
                Err(error) => (false, error.to_string()),
            };
            if let Some(report) = &mut self.report {
                report.line(line.number, line.id, ok, &message)?;
            }
            if let Err(error) = answer {
                self.counts.failed += 1;
                failure.get_or_insert((line.number, error));
            }
        }
        if let Some(report) = &mut self.report {
            report.flush()?;
        }
        match failure {
            None => {
                self.show_progress(&done.chunk);
                Ok(())
            }
            // Whoever gave up has been told why it was waiting.
            Some(_) if flow.gave_up => Ok(()),
            Some((line, error)) => {
                Err(anyhow::Error::new(error).context(format!("at line {line}")))
            }
        }
    }

    /// Says something beside the bar, and also where no bar is shown.
    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    fn show_progress(&mut self, chunk: &CheckedChunk) {
        if self.counts.failed == 0 {
            self.counts.last_line = chunk.last_line;
        }
        self.bar.set_position(chunk.bytes);
        self.bar.set_message(format!("{} lines", chunk.last_line));
    }

    /// Sends again what storage had no room or time for, until it has or patience ends: once for
    /// all, so that those who wait behind do not begin anew.
    async fn insist(&mut self, flow: &mut Flow, acts: &[Act], answers: &mut [Answer]) {
        let started = Instant::now();
        let mut told = None;
        while started.elapsed() < self.patience {
            let failed: Vec<usize> =
                (0..answers.len()).filter(|nth| waits(&answers[*nth])).collect();
            let Some(Err(error)) = failed.first().map(|nth| &answers[*nth]) else { return };
            if told.as_ref() != Some(error) {
                let patience = self.patience;
                let cause = anyhow::Error::new(error.clone());
                self.say(&format!("{cause:#}: waiting for it, at most {patience:?}"));
                told = Some(error.clone());
            }
            let again: Vec<Act> = failed.iter().map(|nth| acts[*nth].clone()).collect();
            tokio::select! {
                fresh = send_again(self.lane, again) => {
                    failed.into_iter().zip(fresh).for_each(|(nth, answer)| answers[nth] = answer);
                }
                _ = self.interrupts.next() => {
                    self.patience = Duration::ZERO;
                    flow.give_up();
                    self.say("interrupted: waiting no longer; again to leave at once");
                    return;
                }
            }
        }
        self.patience = Duration::ZERO;
    }
}

impl Flow {
    fn interrupt(&mut self) {
        self.interrupted = true;
        self.ending.get_or_insert(Ending::Interrupted);
    }

    /// Also when all was read: it will not all be answered. Who interrupts twice leaves at once.
    fn give_up(&mut self) {
        if self.interrupted {
            leave_at_once();
        }
        self.interrupted = true;
        self.gave_up = true;
        if !matches!(self.ending, Some(Ending::Failed(_))) {
            self.ending = Some(Ending::Interrupted);
        }
    }
}

async fn send_again(lane: &Lane, acts: Vec<Act>) -> Vec<Answer> {
    tokio::time::sleep(RETRY_PAUSE).await;
    let count = acts.len();
    match lane.submit_all(acts).await {
        Ok(tickets) => tickets.await,
        Err(error) => vec![Err(error); count],
    }
}

/// Whether waiting may turn the answer into a better one.
fn waits(answer: &Answer) -> bool {
    let hopeless = matches!(answer, Ok(_) | Err(LaneError::Closed | LaneError::Corrupt(_)));
    !hopeless
}

/// The first of the queue when it is ready. Nothing is lost when it is not waited for to the end.
async fn first_check(
    checks: &mut VecDeque<JoinHandle<CheckedChunk>>,
) -> Result<CheckedChunk, JoinError> {
    match checks.front_mut() {
        Some(check) => check.await,
        None => pending().await,
    }
}

/// As above.
async fn first_answers(queue: &mut VecDeque<Submitted>) -> Vec<Answer> {
    let Some(submitted) = queue.front_mut() else { return pending().await };
    match &mut submitted.tickets {
        Ok(tickets) => tickets.await,
        Err(error) => {
            let waiting = submitted.chunk.lines.iter().filter(|line| line.outcome.is_none());
            waiting.map(|_| Err(error.clone())).collect()
        }
    }
}

/// Whoever interrupts twice does not want to wait for the answers under way.
pub fn leave_at_once() -> ! {
    eprintln!("interrupted twice: leaving; run the same import again to go on");
    Exit::Interrupted.leave()
}
