//! An import in a process of its own, fed through its stdin by a thread, so that it is known what was
//! sent and what was answered at any moment.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kukuri_testkit::condition::{TimedOut, wait_for};
use kukuri_testkit::process::Process;

use crate::checker::{Answer, History};
use crate::load::Load;
use crate::rig::{Place, Program};

/// How long a healthy import may be silent on a busy machine.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What may lie unread between this process and the import: the pipe, the buffer of its stdin, and
/// lines that do not make a chunk yet.
const UNREAD_BYTES_MAX: usize = (64 + 8) * 1024;
const CHUNK_LINES: usize = 256;

/// How an import is started.
#[derive(Clone)]
pub struct Plan {
    pub program: Program,
    pub load: Arc<Load>,
    /// The first line to send, and the one before which the input ends.
    pub from: usize,
    pub until: usize,
    /// How many lines may be sent beyond the last answer that was taken.
    pub window: usize,
    pub patience_seconds: u32,
    /// A file to report to. What stands there was said before any moment at which it is read; what
    /// was printed may still be on its way.
    pub report: Option<PathBuf>,
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Plan {
    pub fn new(load: &Arc<Load>) -> Plan {
        Plan {
            program: Program::Node,
            load: Arc::clone(load),
            from: 0,
            until: load.lines.len(),
            window: usize::MAX,
            patience_seconds: 0,
            report: None,
            environment: Vec::new(),
        }
    }
}

pub struct Import {
    process: Process,
    plan: Plan,
    feeder: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    answers: Vec<Answer>,
    /// How many of the answers a history has.
    told: usize,
    /// How much of the report file was read.
    read_bytes: u64,
}

/// How far the feeder has come, as positions in the load.
struct Progress {
    /// Lines from this on have to wait.
    limit: AtomicUsize,
    /// Lines before this may have been sent.
    offered: AtomicUsize,
    /// Lines before this have been sent.
    sent: AtomicUsize,
}

impl Import {
    pub fn start(place: &Place, plan: Plan) -> Import {
        let mut command = place.command(plan.program);
        let report = plan.report.as_deref().unwrap_or(Path::new("-"));
        command.args(["import", "-", "--report"]).arg(report);
        command.args(["--patience", &plan.patience_seconds.to_string()]);
        command.envs(plan.environment.iter().copied()).stdin(Stdio::piped());
        let mut process = Process::spawn(&mut command).expect("the node can be started");
        let stdin = process.stdin().expect("stdin is a pipe");
        let progress = Arc::new(Progress {
            limit: plan.from.saturating_add(plan.window).into(),
            offered: plan.from.into(),
            sent: plan.from.into(),
        });
        let (feed_plan, shared) = (plan.clone(), Arc::clone(&progress));
        let feeder = thread::spawn(move || feed(stdin, &feed_plan, &shared));
        Import {
            process,
            plan,
            feeder: Some(feeder),
            progress,
            answers: Vec::new(),
            told: 0,
            read_bytes: 0,
        }
    }

    /// Stops every thread of the import, until [`Import::resume`].
    pub fn pause(&self) {
        self.process.stop().expect("a running child can be stopped");
    }

    pub fn resume(&self) {
        self.process.cont().expect("a stopped child goes on");
    }

    /// The position after the last line that was answered.
    pub fn answered(&self) -> usize {
        self.plan.from + self.answers.len()
    }

    pub fn sent(&self) -> usize {
        self.progress.sent.load(Ordering::Acquire)
    }

    /// Waits for so many further answers; `false` when the import ended before.
    pub fn wait_for_answers(&mut self, more: usize) -> bool {
        let goal = self.answers.len() + more;
        if self.plan.report.is_some() {
            return self.wait_for_report(goal, || false);
        }
        while self.answers.len() < goal {
            match self.process.line(SILENCE_MAX) {
                Some(line) => self.take(&line),
                None => return false,
            }
        }
        true
    }

    /// As [`Import::wait_for_answers`], or until something else has happened.
    pub fn wait_for_answers_or(&mut self, more: usize, other: impl FnMut() -> bool) -> bool {
        self.wait_for_report(self.answers.len() + more, other)
    }

    fn wait_for_report(&mut self, goal: usize, mut other: impl FnMut() -> bool) -> bool {
        wait_for("answers in the report", SILENCE_MAX, || {
            // What an import has said when it is found to have ended is all that it says.
            let running = self.process.running().expect("the system knows its children");
            self.take_answers();
            let done = self.answers.len() >= goal || other();
            if done { Some(true) } else { (!running).then_some(false) }
        })
        .expect("an import that answers nothing for so long is stuck")
    }

    /// Waits until so many lines have been sent beyond those that are answered; `false` when nobody
    /// read them.
    pub fn wait_for_sent(&mut self, ahead: usize) -> bool {
        let goal = (self.answered() + ahead).min(self.plan.until);
        wait_for("lines being sent", SILENCE_MAX, || {
            let fed = self.feeder.as_ref().is_none_or(JoinHandle::is_finished);
            if self.sent() >= goal { Some(true) } else { fed.then_some(false) }
        })
        .expect("an import that reads nothing for so long is stuck")
    }

    /// Takes the answers that have arrived.
    pub fn take_answers(&mut self) {
        let lines = match &self.plan.report {
            None => self.process.lines_so_far(),
            Some(file) => {
                let new = read_from(file, self.read_bytes).unwrap_or_default();
                let whole = new.rfind('\n').map_or(0, |end| end + 1);
                self.read_bytes += whole as u64;
                new[..whole].lines().map(str::to_owned).collect()
            }
        };
        lines.iter().for_each(|line| self.take(line));
    }

    /// The last line of a killed process may be cut; what is not whole was not said.
    fn take(&mut self, line: &str) {
        if let Ok(answer) = serde_json::from_str::<Answer>(line) {
            assert_eq!(answer.line, self.answers.len() + 1, "answers come in the order of lines");
            self.answers.push(answer);
            let limit = self.answered().saturating_add(self.plan.window);
            self.progress.limit.store(limit, Ordering::Release);
        }
    }

    /// Tells a history what has happened so far.
    pub fn tell(&mut self, history: &mut History<'_>) {
        let offered = self.progress.offered.load(Ordering::Acquire);
        let lines = &self.plan.load.lines;
        history.offer(&lines[self.plan.from..offered]);
        history.answer(&lines[self.plan.from..], &self.answers[self.told..]);
        self.told = self.answers.len();
    }

    /// Whether the import has taken lines in that it has not answered.
    pub fn is_in_flight(&self) -> bool {
        let lines = &self.plan.load.lines[self.answered()..self.sent().max(self.answered())];
        let bytes: usize = lines.iter().skip(CHUNK_LINES).map(|line| line.text.len() + 1).sum();
        bytes > UNREAD_BYTES_MAX
    }

    /// `kill -9`, and what was said before it. Says whether it was still alive.
    pub fn kill(&mut self) -> bool {
        let status = self.process.kill9().expect("the child can be collected");
        self.end();
        status.signal().is_some()
    }

    /// Waits for the import to end by itself.
    pub fn finish(&mut self) -> ExitStatus {
        while self.wait_for_answers(1) {}
        let status = self.process.wait(SILENCE_MAX).expect("an import whose stdout is closed ends");
        self.end();
        status
    }

    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    fn end(&mut self) {
        self.take_answers();
        // A feeder that waits finds that nobody reads any more.
        self.progress.limit.store(usize::MAX, Ordering::Release);
        if let Some(feeder) = self.feeder.take() {
            feeder.join().expect("the feeder does not panic");
        }
    }
}

impl Progress {
    fn wait_for_limit(&self, nth: usize) -> Result<(), TimedOut> {
        let open = || (nth < self.limit.load(Ordering::Acquire)).then_some(());
        open().map_or_else(|| wait_for("an answer", SILENCE_MAX, open), Ok)
    }
}

fn read_from(file: &Path, offset: u64) -> io::Result<String> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Ends when everything was sent or nobody reads any more.
fn feed(mut stdin: ChildStdin, plan: &Plan, progress: &Progress) {
    let lines = plan.load.lines[..plan.until].iter().enumerate();
    for (nth, line) in lines.skip(plan.from) {
        if progress.wait_for_limit(nth).is_err() {
            return;
        }
        progress.offered.store(nth + 1, Ordering::Release);
        if stdin.write_all(format!("{}\n", line.text).as_bytes()).is_err() {
            return;
        }
        progress.sent.store(nth + 1, Ordering::Release);
    }
}
