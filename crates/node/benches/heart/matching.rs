//! What finding the subscriptions of an event costs, beside more and more that it is none of.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kukuri_core::TopicId;
use kukuri_event::{Event, Filter, Pubkey, TagLetter, matches_any};
use kukuri_fanout::{Index, SubKey, Subscription};

const FEW: usize = 1_000;
const MANY: usize = 100_000;
const ROUNDS: usize = 9;
const LIMIT: f64 = 1.3;
/// How many subscriptions each event is for.
const WANTED: usize = 10;

pub fn measure(lines: &[String]) -> anyhow::Result<()> {
    let events: Vec<Event> =
        lines.iter().take(10_000).map(|line| Event::parse(line)).collect::<Result<_, _>>()?;
    let (few, many) = (Installed::new(FEW), Installed::new(MANY));
    // In turns, and the best of each: others use this machine, too.
    let (mut with_few, mut with_many) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        with_few = with_few.min(time(&few, &events));
        with_many = with_many.min(time(&many, &events));
    }
    let nanos = |time: Duration| time.as_secs_f64() * 1e9 / events.len() as f64;
    let ratio = with_many.as_secs_f64() / with_few.as_secs_f64();
    println!(
        "\n## matching\nan event for {WANTED} subscriptions beside {MANY} unrelated filters: {:.0} ns, beside {FEW}: {:.0} ns, \
         {ratio:.2}x (at most {LIMIT}x)",
        nanos(with_many),
        nanos(with_few),
    );
    Ok(())
}

struct Installed {
    index: Index,
    /// By their keys.
    subscriptions: Vec<Subscription>,
}

impl Installed {
    /// Filters of every sort that no event matches, and a few for the topic of all of them.
    fn new(unrelated: usize) -> Self {
        let mut installed = Self { index: Index::default(), subscriptions: Vec::new() };
        (0..unrelated).for_each(|nth| installed.add(other(nth)));
        let topic = [(TagLetter::TOPIC, [TopicId::global().to_string()].into())];
        let wanted = Filter { tags: topic.into_iter().collect(), ..Filter::default() };
        (0..WANTED).for_each(|_| installed.add(wanted.clone()));
        installed
    }

    fn add(&mut self, filter: Filter) {
        let key = SubKey(self.subscriptions.len() as u64);
        let subscription = Subscription { key, filters: vec![filter].into() };
        self.index.insert(&subscription);
        self.subscriptions.push(subscription);
    }

    fn matched(&self, event: &Event, topic: &TopicId) -> usize {
        let candidates = self.index.candidates(event, [topic]).into_iter();
        let filters = candidates.map(|SubKey(key)| &self.subscriptions[key as usize].filters);
        filters.filter(|filters| matches_any(filters, event, &[topic])).count()
    }
}

/// A filter that no event matches.
fn other(nth: usize) -> Filter {
    let mut bytes = [0xee; 32];
    bytes[..8].copy_from_slice(&(nth as u64).to_be_bytes());
    let pubkey = Pubkey::from_bytes(bytes);
    let authors = Some([pubkey].into());
    let tags = |letter| [(letter, [pubkey.to_hex()].into())].into_iter().collect();
    let mention = TagLetter::parse("p").expect("it is a letter");
    match nth % 4 {
        0 => Filter { authors, ..Filter::default() },
        1 => Filter { tags: tags(TagLetter::TOPIC), ..Filter::default() },
        2 => Filter { tags: tags(mention), ..Filter::default() },
        _ => Filter { authors, tags: tags(TagLetter::TOPIC), ..Filter::default() },
    }
}

fn time(installed: &Installed, events: &[Event]) -> Duration {
    let (start, topic) = (Instant::now(), TopicId::global());
    for event in events {
        assert_eq!(black_box(installed.matched(event, &topic)), WANTED);
    }
    start.elapsed()
}
