//! One batch, one transaction: lock, head, load, decide, write, commit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kukuri_core::{Command, Decision, FeedBounds, Seq, View, WriteSet, decide, follow_up, needs};
use kukuri_store::{StoreError, Tidied};
use rusqlite::{Transaction, TransactionBehavior};

use crate::departed::Pass;
use crate::desk::{Desk, TopicNumbers, bounds, moment};
use crate::error::{OrStore, corrupt};
use crate::tail::{Segment, Tail, TailAt};
use crate::{Options, connection, facts, run, schema, tidy, write};

/// What the writing thread remembers between batches.
pub(crate) struct Writer {
    path: PathBuf,
    options: Options,
    /// The disk has failed. What a later commit says cannot be trusted until the file was opened
    /// anew: the system may have dropped the pages it could not write.
    failed: AtomicBool,
    /// Whether this process has written at all. One that only reads leaves the tail to who does.
    wrote: AtomicBool,
    /// Where tidying stands.
    pass: Mutex<Pass>,
}

impl Writer {
    pub(crate) fn new(path: PathBuf, options: Options) -> Self {
        Self {
            path,
            options,
            failed: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
            pass: Mutex::default(),
        }
    }

    pub(crate) fn apply(&self, desk: &mut Desk, batch: &[Command]) -> Result<Decision, StoreError> {
        self.check()?;
        let result = run(desk, batch, self.options.run_events);
        self.wrote.store(true, Ordering::Release);
        if let Err(error) = &result {
            self.note(desk, error);
        }
        result
    }

    /// Takes note of a transaction that did not commit.
    fn note(&self, desk: &mut Desk, error: &StoreError) {
        // Numbers that were given in it are not the file's.
        desk.numbers.forget();
        if matches!(error, StoreError::Io(_)) {
            self.failed.store(true, Ordering::Release);
        }
    }

    /// Writes a run now, so that readers find everything in the tables. Nothing is lost if it fails:
    /// the next one writes what this one did not.
    pub(crate) fn settle(&self, desk: &mut Desk) {
        let wrote = self.wrote.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        if wrote && !failed && !desk.tail.is_empty() {
            settle(desk).unwrap_or_else(|error| self.note(desk, &error));
        }
    }

    /// Gives back a bounded part of what holds nothing any more.
    pub(crate) fn tidy(&self, desk: &mut Desk) -> Result<Tidied, StoreError> {
        self.check()?;
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        let result = tidy::step(&mut desk.conn, &mut pass);
        if let Err(error) = &result {
            self.note(desk, error);
        }
        result
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(StoreError::Io(format!(
                "{} failed before and was not reopened",
                self.path.display()
            ))),
        }
    }

    pub(crate) fn reopen(&self, desk: &mut Desk) -> Result<(), StoreError> {
        let conn = connection::open_writer(&self.path, self.options.sync)?;
        bounds(&conn)?;
        *desk = Desk::new(conn, Arc::clone(&desk.tail));
        self.failed.store(false, Ordering::Release);
        Ok(())
    }
}

fn run(desk: &mut Desk, batch: &[Command], run_events: usize) -> Result<Decision, StoreError> {
    let Desk { conn, numbers, tail } = desk;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
    // No later try of this program will do.
    schema::check_newest(&tx, StoreError::Corrupt)?;
    let bounds = bounds(&tx)?;
    let base = bounds.head;
    let mut segment = current(tail, &tx, numbers, base)?;
    let decision = prepare(&tx, numbers, &segment, bounds, batch)?;
    if decision.is_empty() {
        // Nothing to make durable: the transaction is dropped, and no page is written.
        return Ok(decision);
    }
    let run_due = segment.events().len() >= run_events || touches_tail(&segment, &decision.writes);
    if run_due {
        run::write(&tx, &segment, base)?;
        segment = Arc::new(Segment::after(base));
    }
    write::write(&tx, numbers, &segment, &decision)?;
    tx.commit().or_store()?;
    if run_due {
        tail.start_after(base);
    }
    let records = decision.writes.records.iter().filter_map(|change| change.after.as_ref());
    tail.current().extend(conn, numbers, records, base, decision.head())?;
    Ok(decision)
}

/// Under the write lock nobody can have written a run since, so the tail always fits.
fn current(
    tail: &Tail,
    tx: &Transaction<'_>,
    numbers: &mut TopicNumbers,
    head: Seq,
) -> Result<Arc<Segment>, StoreError> {
    tail.at(tx, numbers, head)?.ok_or_else(|| corrupt("an older run than this process has seen"))
}

fn prepare(
    tx: &Transaction<'_>,
    numbers: &mut TopicNumbers,
    segment: &Segment,
    bounds: FeedBounds,
    batch: &[Command],
) -> Result<Decision, StoreError> {
    let tail = TailAt { segment, head: bounds.head };
    let mut known = facts::load(tx, numbers, tail, &needs(batch))?;
    let more = follow_up(batch, &known);
    if !more.is_empty() {
        known.extend(facts::load(tx, numbers, tail, &more)?);
    }
    Ok(decide(View::new(known), bounds, batch))
}

/// Whether a batch changes index rows, other than by hiding, of events that have none yet.
fn touches_tail(segment: &Segment, writes: &WriteSet) -> bool {
    writes.records.iter().any(|change| {
        let before = change.before.as_ref().filter(|record| segment.contains(record));
        before.is_some_and(|before| {
            change.after.as_ref().is_none_or(|after| after.links != before.links)
        })
    })
}

fn settle(desk: &mut Desk) -> Result<(), StoreError> {
    let Desk { conn, numbers, tail } = desk;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
    let head = moment(&tx)?.head;
    let segment = current(tail, &tx, numbers, head)?;
    run::write(&tx, &segment, head)?;
    tx.commit().or_store()?;
    tail.start_after(head);
    Ok(())
}
