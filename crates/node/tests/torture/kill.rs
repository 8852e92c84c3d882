//! `kill -9` of imports, at moments given by what they have done so far. What was acknowledged is
//! there, nothing else is, and the next import goes on.

use std::sync::Arc;

use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::postgres::Durability;

use crate::checker::{Finding, History};
use crate::import::{Import, Plan};
use crate::load::Load;
use crate::opening;
use crate::rig::{self, Home, Place, Program, require_none};

/// Kills of a working import. Some are followed by the kill of an import that opens what it left.
const KILLS: usize = 26;
const OPENINGS_FIRST: usize = 5;
const OPENINGS_PERCENT: u32 = 40;

/// What a run must have hit, or it proves nothing.
const KILLS_MIN: usize = 30;
const IN_FLIGHT_MIN: usize = 10;
const OPENING_MIN: usize = 3;
const OPENINGS_MORE_MAX: usize = 40;

const LINES: usize = 12_000;
/// The most answers, or lines sent, that a kill waits for.
const ANSWERS_MAX: usize = 500;
const SENT_MAX: usize = 2_000;
/// How far back the next import may begin.
const OVERLAP_MAX: usize = 300;
/// An import has to have this much to read, or it ends before it is killed.
const REST_MIN: usize = 4_000;
/// So many files or connections are open before a store is: SQLite opens its file several times.
const FILES_MAX: usize = 4;
const CONNECTIONS_MAX: usize = 2;
const KILLS_PER_DOCTOR: usize = 6;

/// When an import is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After so many answers.
    Answers,
    /// After so many lines were sent, whatever became of them.
    Sent,
    /// When it has answered everything and closes its store.
    End,
}

/// How often the faults of a run hit what they were meant for.
#[derive(Debug, Default)]
pub struct Tally {
    pub kills: usize,
    pub in_flight: usize,
    pub opening: usize,
    pub ending: usize,
    pub acknowledged: usize,
}

/// What is killed, and where.
pub struct Killing<'a> {
    pub place: &'a Place,
    pub program: Program,
    pub dice: Dice,
    pub load: Arc<Load>,
    pub tally: Tally,
}

impl<'a> Killing<'a> {
    pub fn new(place: &'a Place, program: Program, seed: Seed) -> Self {
        let load = Arc::new(Load::new(seed, LINES));
        Self { place, program, dice: seed.part(1).dice(), load, tally: Tally::default() }
    }

    /// Kills until the numbers are reached or there is a finding.
    pub async fn run(&mut self) -> Result<(), Vec<Finding>> {
        let load = Arc::clone(&self.load);
        let mut history = History::new(&load);
        // A store that is just being made, first.
        for _ in 0..2 {
            self.kill_opening(&mut history, 0);
        }
        self.carry().await?;
        let mut from = 0;
        for nth in 1..=KILLS {
            from = self.kill_working(&mut history, from);
            if nth <= OPENINGS_FIRST || self.dice.chance(OPENINGS_PERCENT) {
                self.kill_opening(&mut history, from);
            }
            found(self.place.check(&history).await)?;
            if nth % KILLS_PER_DOCTOR == 0 {
                found(self.place.doctor())?;
            }
        }
        // On a busy machine most stores are open before anyone looks.
        for _ in 0..OPENINGS_MORE_MAX {
            if self.tally.opening < OPENING_MIN {
                self.kill_opening(&mut history, from);
                found(self.place.check(&history).await)?;
            }
        }
        self.tally.acknowledged = history.accepted();
        self.finish(&mut history, from).await
    }

    async fn carry(&self) -> Result<(), Vec<Finding>> {
        let unreadable = |error: anyhow::Error| vec![Finding::Unreadable(format!("{error:#}"))];
        let store = self.place.open().await.map_err(unreadable)?;
        self.load.carry(&*store).await.map_err(|error| unreadable(error.into()))
    }

    /// Returns where the next import begins.
    fn kill_working(&mut self, history: &mut History<'_>, from: usize) -> usize {
        let moment =
            self.dice.weigh(&[(Moment::Answers, 50), (Moment::Sent, 35), (Moment::End, 15)]);
        let count = 1 + self.dice.below(ANSWERS_MAX);
        let mut plan = Plan { program: self.program, from, ..Plan::new(&self.load) };
        if moment == Moment::End {
            plan.until = from + count;
        }
        let mut import = Import::start(self.place, plan);
        let reached = match moment {
            Moment::Answers | Moment::End => import.wait_for_answers(count),
            Moment::Sent => import.wait_for_sent(1 + self.dice.below(SENT_MAX)),
        };
        import.take_answers();
        let in_flight = import.is_in_flight();
        let alive = import.kill();
        if !reached {
            history.find(Finding::Program(format!("it ended by itself: {}", import.stderr())));
        }
        import.tell(history);
        self.tally.kills += usize::from(alive);
        self.tally.in_flight += usize::from(alive && in_flight);
        self.tally.ending += usize::from(alive && moment == Moment::End);
        let next = import.answered().saturating_sub(self.dice.below(OVERLAP_MAX));
        // Near its end the load begins again: all of it is known by then.
        if next + REST_MIN > self.load.lines.len() { self.dice.below(next) } else { next }
    }

    fn kill_opening(&mut self, history: &mut History<'_>, from: usize) {
        let handles_max = match self.place {
            Place::Sqlite(_) => FILES_MAX,
            Place::Postgres(_) => CONNECTIONS_MAX,
        };
        let handles = 1 + self.dice.below(handles_max);
        let killed = opening::kill(self.place, self.program, &self.load.lines[from..], handles);
        history.offer(&self.load.lines[from..from + killed.offered]);
        self.tally.kills += 1;
        self.tally.opening += usize::from(killed.was_opening);
    }

    /// Sends everything to the end: what is visible then is what the rules make of the whole load.
    async fn finish(&mut self, history: &mut History<'_>, from: usize) -> Result<(), Vec<Finding>> {
        for from in [from, 0] {
            let mut import = Import::start(self.place, Plan { from, ..Plan::new(&self.load) });
            let status = import.finish();
            import.tell(history);
            if !matches!(status.code(), Some(0 | 3)) {
                return Err(vec![Finding::Program(import.stderr())]);
            }
        }
        assert_eq!(history.unanswered(), 0, "an import that ended well has answered every line");
        found(self.place.check(history).await)?;
        found(self.place.doctor())
    }
}

fn found(findings: Vec<Finding>) -> Result<(), Vec<Finding>> {
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

async fn kill(test: &str, home: impl Fn() -> Home) {
    for seed in rig::seed(test).rounds() {
        let home = home();
        let mut killing = Killing::new(&home.place, Program::Node, seed);
        let outcome = killing.run().await;
        println!("{test}, seed {seed}: {:?}", killing.tally);
        require_none(test, &outcome.err().unwrap_or_default());
        let Tally { kills, in_flight, opening, .. } = killing.tally;
        assert!(kills >= KILLS_MIN, "only {kills} kills");
        assert!(in_flight >= IN_FLIGHT_MIN, "only {in_flight} kills hit a batch in flight");
        assert!(opening >= OPENING_MIN, "only {opening} kills hit an opening store");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_sqlite() {
    kill("kill::kill_sqlite", Home::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_postgres() {
    kill("kill::kill_postgres", || Home::postgres(Durability::Durable)).await;
}
