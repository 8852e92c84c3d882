use std::time::Duration;

use kukuri_event::{Event, EventId, Filter, TagLetter, UnixSeconds, Values};

use crate::message::{Cursor, QuestionId, req};
use crate::{Item, OVERLAP_SECONDS, Reason, SEEN_IDS_MAX};

use super::Moment;
use super::auth::Known;
use super::window::Window;

/// How long a relay may take to say that it has a cursor; some say nothing to what they do not
/// know.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(10);

/// One subscription: what was asked for, what was shown, and how it goes on from there.
pub(super) struct Sub {
    filters: Vec<Filter>,
    pub standing: Standing,
    /// Everything after it is still to be shown; nothing if the relay has no cursors, or until it
    /// has been asked for one.
    pub cursor: Option<Cursor>,
    stored: Stored,
    probe: Probe,
    eose: Eose,
    /// Nothing older than this, less the overlap, is still to be shown.
    settled: Option<UnixSeconds>,
    seen: Window,
    /// How often it was refused since it was last answered.
    pub refusals: u32,
}

pub(super) enum Standing {
    /// To be asked as soon as there is a connection.
    Ready,
    Open(Open),
    /// Its queue is full.
    Full,
    /// It was refused until we are known.
    NeedsAuth {
        reason: Reason,
        until: Moment,
    },
    /// It was refused for now.
    Refused {
        until: Moment,
    },
}

/// What is asked on the wire.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub question: QuestionId,
    pub step: Step,
    pub known: Known,
    since: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Where does the feed stand?
    Probe,
    /// What is stored?
    Stored,
    /// What came after the cursor, and what comes?
    Follow,
    /// What comes, where there are no cursors.
    Live,
}

/// What is known about the relay's cursors.
pub(super) enum Cursors {
    Unknown,
    /// The last that was given to any subscription: where the next probe begins, so that it need
    /// not go through the whole feed.
    Latest(Cursor),
    /// The relay answers questions with a cursor as if they had none.
    Absent,
}

/// Whether the answer to what is stored is complete.
enum Stored {
    Missing {
        newest: Option<UnixSeconds>,
        /// How many events were shown of it so far, whatever interrupted it.
        shown: usize,
    },
    Complete,
}

#[derive(PartialEq, Eq)]
enum Probe {
    Due,
    /// The relay would not answer it.
    InVain,
}

#[derive(PartialEq, Eq)]
enum Eose {
    Due,
    Shown,
}

impl Sub {
    pub fn new(filters: Vec<Filter>) -> Self {
        Self {
            filters,
            standing: Standing::Ready,
            cursor: None,
            stored: Stored::Missing { newest: None, shown: 0 },
            probe: Probe::Due,
            eose: Eose::Due,
            settled: None,
            seen: Window::default(),
            refusals: 0,
        }
    }

    /// What is to be asked next.
    pub fn next_step(&self, cursors: &Cursors) -> Step {
        match (&self.stored, &self.cursor, cursors) {
            (Stored::Complete, Some(_), _) => Step::Follow,
            (_, None, Cursors::Unknown | Cursors::Latest(_)) if self.probe == Probe::Due => {
                Step::Probe
            }
            _ => Step::Stored,
        }
    }

    /// The text by which it is asked.
    pub fn ask(&mut self, open: Open, cursors: &Cursors) -> String {
        self.standing = Standing::Open(open);
        let unlimited = |filter: &Filter| Filter { limit: None, ..filter.clone() };
        match open.step {
            Step::Probe => {
                let floor = Cursor::floor();
                let latest = match cursors {
                    Cursors::Latest(latest) => latest,
                    Cursors::Unknown | Cursors::Absent => &floor,
                };
                req(open.question, &[self.nothing()], Some(latest))
            }
            Step::Follow => {
                let filters: Vec<Filter> = self.filters.iter().map(unlimited).collect();
                req(open.question, &filters, self.cursor.as_ref())
            }
            Step::Stored | Step::Live => match (&self.eose, self.settled) {
                (Eose::Shown, Some(settled)) => {
                    let overlap = settled.saturating_sub(OVERLAP_SECONDS).max(UnixSeconds(0));
                    let filters: Vec<Filter> = self
                        .filters
                        .iter()
                        .map(|filter| Filter {
                            since: Some(filter.since.map_or(overlap, |since| since.max(overlap))),
                            ..unlimited(filter)
                        })
                        .collect();
                    req(open.question, &filters, None)
                }
                _ => req(open.question, &self.filters, None),
            },
        }
    }

    /// A filter that the relay takes if it takes ours, and that matches nothing.
    fn nothing(&self) -> Filter {
        let topic = self.filters.iter().find_map(|filter| filter.topics()?.iter().next());
        let tags = topic.map(|topic| (TagLetter::TOPIC, Values::from([topic.clone()])));
        Filter {
            ids: Some(Values::from([EventId::from_bytes([0; 32])])),
            tags: tags.into_iter().collect(),
            // No moment at all: such a relay as ours need not look for it.
            since: Some(UnixSeconds(1)),
            until: Some(UnixSeconds(0)),
            limit: Some(1),
            ..Filter::default()
        }
    }

    /// An event came; what is to be shown of it.
    pub fn event(&mut self, step: Step, event: Event, clock: UnixSeconds) -> Option<Item> {
        let fresh = self.seen.insert(event.id());
        // A clock that is ahead of ours must not make us skip what others say meanwhile.
        let at = event.created_at().min(clock);
        match &mut self.stored {
            // The newest come first: only when all have come is nothing older missing.
            Stored::Missing { newest, shown } if step == Step::Stored => {
                *newest = (*newest).max(Some(at));
                *shown += usize::from(fresh);
            }
            _ => self.settled = self.settled.max(Some(at)),
        }
        fresh.then(|| match self.eose {
            Eose::Due => Item::Stored(Box::new(event)),
            Eose::Shown => Item::Live(Box::new(event)),
        })
    }

    /// All that is stored has come; what is to be shown of that.
    pub fn stored(&mut self, clock: UnixSeconds) -> Option<Item> {
        if let Stored::Missing { newest, .. } = self.stored {
            self.settled = self.settled.max(newest).or(Some(clock));
        }
        self.stored = Stored::Complete;
        let first = std::mem::replace(&mut self.eose, Eose::Shown) == Eose::Due;
        first.then_some(Item::Eose)
    }

    /// Whether more has been shown than would be recognised if it came again.
    pub fn is_too_much(&self) -> bool {
        matches!(self.stored, Stored::Missing { shown, .. } if shown > SEEN_IDS_MAX)
    }

    /// The question is not on the wire any more: what was said about it may be incomplete.
    pub fn interrupted(&mut self, standing: Standing) {
        self.standing = standing;
        self.probe = Probe::Due;
        if self.cursor.is_none() && matches!(self.stored, Stored::Complete) {
            self.stored = Stored::Missing { newest: None, shown: 0 };
        }
    }

    /// The relay would not say where its feed stands: it is asked without.
    pub fn probe_in_vain(&mut self) {
        self.probe = Probe::InVain;
        self.standing = Standing::Ready;
    }

    pub fn wake(&self) -> Option<Moment> {
        match &self.standing {
            Standing::Open(Open { step: Step::Probe, since, .. }) => Some(*since + PROBE_WAIT_MAX),
            Standing::NeedsAuth { until, .. } | Standing::Refused { until } => Some(*until),
            Standing::Ready | Standing::Open(_) | Standing::Full => None,
        }
    }
}

impl Open {
    pub fn new(question: QuestionId, step: Step, known: Known, now: Moment) -> Self {
        Self { question, step, known, since: now }
    }

    /// The same question, of which only what comes is left.
    pub fn live(self) -> Self {
        Self { step: Step::Live, ..self }
    }
}
