//! That the checker notices every kind of fault it has a name for: a store that is well, and one lie
//! at a time, told about it or written into it.

use kukuri_core::{Act, Command, UnixMillis};
use kukuri_store::Store;
use kukuri_store::conformance::signing::admit;

use super::{Answer, Finding, History};
use crate::load::{Line, Load, NOW};
use crate::rig::{Home, require_none, seed};

const LINES: usize = 300;

/// A store that took in all lines but the last, and its true history.
async fn take_in<'a>(store: &dyn Store, load: &'a Load) -> History<'a> {
    let lines = &load.lines[..load.lines.len() - 1];
    let commands = lines.iter().map(|line| {
        let act = Act::Publish(admit(&line.text, NOW).expect("the event is good"));
        Command { at: UnixMillis::from(NOW), act }
    });
    let decision = store.apply(commands.collect()).await.expect("a healthy store answers");
    let answers = lines.iter().zip(&decision.outcomes).enumerate().map(|(nth, (line, outcome))| {
        let (ok, message) = (outcome.is_ok(), outcome.message());
        Answer { line: nth + 1, id: Some(line.id.to_hex()), ok, message }
    });
    let mut history = History::new(load);
    history.offer(lines);
    history.answer(lines, &answers.collect::<Vec<_>>());
    history
}

/// What is wrong, and what the checker must call it.
struct Lie {
    /// Written into the store.
    sql: &'static str,
    /// Told to the history.
    tell: fn(&mut History<'_>, &Load),
    named: fn(&Finding) -> bool,
}

const UNTOLD: fn(&mut History<'_>, &Load) = |_, _| ();

const LIES: &[Lie] = &[
    Lie { sql: "", tell: answer_the_last, named: |f| matches!(f, Finding::Lost(_)) },
    Lie { sql: "", tell: refuse_the_last, named: |f| matches!(f, Finding::Refused(_)) },
    Lie { sql: "", tell: deny_the_first, named: |f| matches!(f, Finding::Phantom(_)) },
    Lie {
        sql:
            "UPDATE events SET event_json = replace(event_json, '\"content\":\"', '\"content\":\"y')
              WHERE seq = 1",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::Altered(_) | Finding::Unreadable(_)),
    },
    Lie {
        sql: "DELETE FROM events_outbox WHERE seq = 7",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::Feed(_)),
    },
    Lie {
        sql: "DELETE FROM events_outbox WHERE seq = (SELECT max(seq) FROM events_outbox)",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::Audit(_)),
    },
    Lie {
        sql: "UPDATE events SET state = 3 WHERE seq = (SELECT seq FROM event_topics LIMIT 1)",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::View(_)),
    },
    Lie {
        sql: "UPDATE events SET state = 1 WHERE seq = (SELECT min(seq) FROM events WHERE state > 1)",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::View(_)),
    },
    Lie {
        sql: "UPDATE topic_usage SET events = events + 1",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::Audit(_)),
    },
    Lie {
        sql: "UPDATE feed_meta SET floor_seq = 3",
        tell: UNTOLD,
        named: |f| matches!(f, Finding::Feed(_)),
    },
];

fn last(load: &Load) -> &[Line] {
    &load.lines[load.lines.len() - 1..]
}

fn say(history: &mut History<'_>, load: &Load, ok: bool, message: &str) {
    let line = last(load);
    history.offer(line);
    let id = Some(line[0].id.to_hex());
    history.answer(line, &[Answer { line: 1, id, ok, message: message.to_owned() }]);
}

fn answer_the_last(history: &mut History<'_>, load: &Load) {
    say(history, load, true, "");
}

fn refuse_the_last(history: &mut History<'_>, load: &Load) {
    say(history, load, false, "invalid: bad signature");
}

fn deny_the_first(history: &mut History<'_>, load: &Load) {
    history.offered.remove(&load.lines[0].id);
}

/// The last line is an ordinary note that came once: whatever is said of it can only be a lie.
fn load(test: &str) -> Load {
    let load = Load::new(seed(test), LINES);
    let mut lines = load.lines.clone();
    let note = |line: &Line| line.text.contains("\"kind\":1,");
    let once = |id| load.lines.iter().filter(|line| line.id == id).count() == 1;
    let nth = lines.iter().rposition(|line| note(line) && once(line.id));
    let note = lines.remove(nth.expect("most lines are notes that come once"));
    lines.push(note);
    Load::of(lines, load.topics)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lie_is_noticed() {
    let load = load("checker::controls::every_lie_is_noticed");
    let truth = Lie { sql: "", tell: UNTOLD, named: |_| true };
    for (nth, lie) in [&truth].into_iter().chain(LIES).enumerate() {
        let home = Home::sqlite();
        let store = home.place.open().await.expect("a new store opens");
        load.carry(&*store).await.expect("a new store takes topics");
        let mut history = take_in(&*store, &load).await;
        drop(store);
        home.sql(lie.sql);
        (lie.tell)(&mut history, &load);
        let findings = home.place.check(&history).await;
        match nth {
            0 => require_none("the truth", &findings),
            _ => assert!(findings.iter().any(lie.named), "lie {nth}: {findings:?}"),
        }
    }
}
