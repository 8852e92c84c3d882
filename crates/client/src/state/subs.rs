use std::collections::BTreeMap;
use std::time::Duration;

use kukuri_event::{Event, Filter};

use crate::message::{self, Cursor, QuestionId};
use crate::{Check, Closing, Item, Prefix, Reason};

use super::auth::{Auth, Known, Verdict};
use super::sub::{Cursors, Open, Standing, Step, Sub};
use super::{Moment, Output, Settings, SubKey, Surroundings};

/// Places in each queue that are kept for `Eose` and `Closed`.
pub(crate) const ITEMS_RESERVED: usize = 2;
/// How long a relay that wants to know who we are may take to ask.
const AUTH_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often in a row a question may be refused for now.
const REFUSALS_MAX: u32 = 10;

/// All subscriptions, and what they ask on the wire.
pub(super) struct Subs {
    settings: Settings,
    subs: BTreeMap<SubKey, Sub>,
    questions: BTreeMap<QuestionId, SubKey>,
    next: u64,
    cursors: Cursors,
}

impl Subs {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            subs: BTreeMap::new(),
            questions: BTreeMap::new(),
            next: 0,
            cursors: Cursors::Unknown,
        }
    }

    pub fn add(&mut self, key: SubKey, filters: Vec<Filter>) {
        self.subs.insert(key, Sub::new(filters));
    }

    pub fn remove(&mut self, key: SubKey, out: &mut Vec<Output>) {
        self.hang_up(key, Standing::Ready, out);
        if self.subs.remove(&key).is_some() {
            out.push(Output::Forget(key));
        }
    }

    pub fn has_room(&mut self, key: SubKey) {
        if let Some(sub) = self.subs.get_mut(&key)
            && let Standing::Full = sub.standing
        {
            sub.standing = Standing::Ready;
        }
    }

    /// Asks what is ready to be asked.
    pub fn ask(&mut self, auth: &Auth, now: Moment, out: &mut Vec<Output>) {
        let ready = self.subs.iter_mut().filter(|(_, sub)| matches!(sub.standing, Standing::Ready));
        for (key, sub) in ready {
            let question = QuestionId(self.next);
            self.next += 1;
            self.questions.insert(question, *key);
            let open = Open::new(question, sub.next_step(&self.cursors), auth.known(), now);
            out.push(Output::Send(sub.ask(open, &self.cursors)));
        }
    }

    pub fn lost(&mut self) {
        self.questions.clear();
        for sub in self.subs.values_mut() {
            // Who waits for room or for a pause to end goes on waiting; a name is gone with the
            // connection that it was proved on.
            if let Standing::Open(_) | Standing::NeedsAuth { .. } = sub.standing {
                sub.interrupted(Standing::Ready);
            }
        }
    }

    pub fn event(
        &mut self,
        question: QuestionId,
        text: &str,
        cursor: Option<Cursor>,
        around: &Surroundings<'_>,
        out: &mut Vec<Output>,
    ) {
        let Some((key, open)) = self.open(question) else { return };
        if (around.room)(key) <= ITEMS_RESERVED {
            return self.full(key, open.step, out);
        }
        let event = read(text, self.settings.check);
        let Some(sub) = self.subs.get_mut(&key) else { return };
        match event {
            Some(event) => {
                let item = sub.event(open.step, event, around.clock);
                out.extend(item.map(|item| Output::Show(key, item)));
            }
            None => out.push(Output::Note("the relay sent an event that is none".to_owned())),
        }
        if let (Step::Follow, Some(cursor)) = (open.step, cursor) {
            sub.cursor = Some(cursor.clone());
            self.cursors = Cursors::Latest(cursor);
        }
    }

    pub fn eose(
        &mut self,
        question: QuestionId,
        cursor: Option<Cursor>,
        around: &Surroundings<'_>,
        out: &mut Vec<Output>,
    ) {
        let Some((key, open)) = self.open(question) else { return };
        let Some(sub) = self.subs.get_mut(&key) else { return };
        sub.refusals = 0;
        if let Some(cursor) = &cursor {
            self.cursors = Cursors::Latest(cursor.clone());
        }
        match open.step {
            Step::Probe => {
                if cursor.is_none() {
                    self.cursors = Cursors::Absent;
                }
                sub.cursor = cursor;
                self.hang_up(key, Standing::Ready, out);
            }
            Step::Stored => {
                out.extend(sub.stored(around.clock).map(|eose| Output::Show(key, eose)));
                if sub.cursor.is_some() {
                    self.hang_up(key, Standing::Ready, out);
                } else {
                    sub.standing = Standing::Open(open.live());
                }
            }
            Step::Follow => sub.cursor = cursor.or(sub.cursor.take()),
            Step::Live => {}
        }
    }

    pub fn closed(
        &mut self,
        question: QuestionId,
        reason: Reason,
        auth: &Auth,
        around: &Surroundings<'_>,
        out: &mut Vec<Output>,
    ) {
        let Some((key, open)) = self.open(question) else { return };
        self.questions.remove(&question);
        let Some(sub) = self.subs.get_mut(&key) else { return };
        if reason.is_lost_cursor() {
            sub.cursor = None;
            self.cursors = Cursors::Unknown;
        }
        match auth.judge(&reason, open.known) {
            Verdict::SayAgain => return sub.interrupted(Standing::Ready),
            Verdict::Wait => {
                let until = around.now + AUTH_WAIT_MAX;
                return sub.interrupted(Standing::NeedsAuth { reason, until });
            }
            Verdict::Final => {}
        }
        let again = reason.is_lost_cursor() || reason.is_passing();
        if again && sub.refusals < REFUSALS_MAX {
            let pause = self.settings.backoff.pause(sub.refusals, around.dice);
            sub.refusals += 1;
            sub.interrupted(Standing::Refused { until: around.now + pause });
        } else if open.step == Step::Probe && reason.prefix() != Prefix::AuthRequired {
            // What is wrong with it, the question itself will tell.
            sub.probe_in_vain();
        } else {
            self.end(key, Closing::Relay(reason), out);
        }
    }

    pub fn auth_changed(&mut self, auth: &Auth, out: &mut Vec<Output>) {
        let mut ended = Vec::new();
        for (key, sub) in &mut self.subs {
            let Standing::NeedsAuth { reason, .. } = &sub.standing else { continue };
            match auth.judge(reason, Known::No) {
                Verdict::Wait => {}
                Verdict::SayAgain => sub.standing = Standing::Ready,
                Verdict::Final => ended.push((*key, reason.clone())),
            }
        }
        ended.into_iter().for_each(|(key, reason)| self.end(key, Closing::Relay(reason), out));
    }

    pub fn wake(&self) -> Option<Moment> {
        self.subs.values().filter_map(Sub::wake).min()
    }

    pub fn tick(&mut self, now: Moment, out: &mut Vec<Output>) {
        let due = |sub: &Sub| sub.wake().is_some_and(|wake| wake <= now);
        let due: Vec<SubKey> =
            self.subs.iter().filter(|(_, sub)| due(sub)).map(|(key, _)| *key).collect();
        for key in due {
            let Some(sub) = self.subs.get_mut(&key) else { continue };
            match &sub.standing {
                Standing::Refused { .. } => sub.standing = Standing::Ready,
                Standing::NeedsAuth { reason, .. } => {
                    let reason = reason.clone();
                    self.end(key, Closing::Relay(reason), out);
                }
                Standing::Open(_) => {
                    self.hang_up(key, Standing::Ready, out);
                    if let Some(sub) = self.subs.get_mut(&key) {
                        sub.probe_in_vain();
                    }
                }
                Standing::Ready | Standing::Full => {}
            }
        }
    }

    /// Nothing fits into the queue: it is asked again, from where it is, when there is room.
    fn full(&mut self, key: SubKey, step: Step, out: &mut Vec<Output>) {
        if step == Step::Stored && self.subs.get(&key).is_some_and(Sub::is_too_much) {
            return self.end(key, Closing::TooManyStored, out);
        }
        self.hang_up(key, Standing::Full, out);
        out.push(Output::AwaitRoom(key));
    }

    fn end(&mut self, key: SubKey, closing: Closing, out: &mut Vec<Output>) {
        out.push(Output::Show(key, Item::Closed(closing)));
        self.remove(key, out);
    }

    /// Takes a subscription's question off the wire.
    fn hang_up(&mut self, key: SubKey, standing: Standing, out: &mut Vec<Output>) {
        let Some(sub) = self.subs.get_mut(&key) else { return };
        if let Standing::Open(open) = sub.standing
            && self.questions.remove(&open.question).is_some()
        {
            out.push(Output::Send(message::close(open.question)));
        }
        sub.interrupted(standing);
    }

    /// The subscription that a message is about, unless the question has been taken back.
    fn open(&self, question: QuestionId) -> Option<(SubKey, Open)> {
        let key = *self.questions.get(&question)?;
        match self.subs.get(&key)?.standing {
            Standing::Open(open) if open.question == question => Some((key, open)),
            _ => None,
        }
    }
}

fn read(text: &str, check: Check) -> Option<Event> {
    let event = Event::parse(text).ok()?;
    match check {
        Check::Shape => Some(event),
        Check::Signatures => {
            let verified = event.identify().ok()?.verify().ok()?;
            Some(verified.event().clone())
        }
    }
}
