//! Small sets of events in which every rule meets every other, each with what must be visible in the
//! end. That is said literally, so that the spec is judged too.

use kukuri_core::admission::Checked;
use kukuri_core::{TopicId, VersionKey};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::conformance::signing::{self, Author, Draft};

/// The one time at which all events of a set come.
pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

pub struct Set {
    pub name: &'static str,
    pub events: Vec<Checked>,
    pub handled: Vec<TopicId>,
    /// The ids that must be visible, sorted.
    pub visible: Vec<EventId>,
}

/// A set on one handled topic; it has another one that is not.
fn set<const N: usize, const V: usize>(
    name: &'static str,
    events: [&Checked; N],
    visible: [&Checked; V],
) -> Set {
    let mut visible: Vec<EventId> = visible.iter().map(|event| event.event().id()).collect();
    visible.sort_unstable();
    let events = events.into_iter().cloned().collect();
    Set { name, events, handled: vec![here()], visible }
}

pub fn here() -> TopicId {
    topic('a')
}

/// The topic that nobody handles, unless a set says so.
pub fn elsewhere() -> TopicId {
    topic('b')
}

fn topic(digit: char) -> TopicId {
    let text = format!("kukuri:{}", digit.to_string().repeat(64));
    TopicId::parse(&text).expect("64 hex digits make a topic")
}

fn alice() -> Author {
    Author::numbered(1)
}

fn bob() -> Author {
    Author::numbered(2)
}

/// The doors look at an event before its time is up, the lane perhaps after it.
fn sign(author: &Author, draft: &Draft) -> Checked {
    let text = author.sign(draft);
    signing::check(&text, NOW.saturating_sub(100)).expect("the event is good")
}

fn bare(kind: u16, nth: i64) -> Draft {
    Draft::new(kind, UnixSeconds(NOW.0 - 1000 + nth))
}

fn draft(kind: u16, nth: i64) -> Draft {
    bare(kind, nth).tag("t", here())
}

fn note(nth: i64) -> Checked {
    sign(&alice(), &draft(1, nth))
}

fn profile(nth: i64) -> Checked {
    sign(&alice(), &draft(0, nth))
}

fn article(d: &str, nth: i64) -> Checked {
    sign(&alice(), &draft(30_023, nth).tag("d", d))
}

fn id(event: &Checked) -> EventId {
    event.event().id()
}

fn address(event: &Checked) -> String {
    VersionKey::of(event.event()).expect("it has versions").to_text()
}

/// A request that names events.
fn delete(nth: i64, targets: &[&Checked]) -> Checked {
    let request = targets.iter().fold(draft(5, nth), |draft, target| draft.tag("e", id(target)));
    sign(&alice(), &request)
}

/// A request that names all versions of an event up to its own time.
fn delete_until(nth: i64, of: &Checked) -> Checked {
    sign(&alice(), &draft(5, nth).tag("a", address(of)))
}

/// Versions of one second, the winner first.
fn tied(count: usize) -> Vec<Checked> {
    let version = |n: usize| sign(&alice(), &draft(0, 5).content(n.to_string()));
    let mut tied: Vec<Checked> = (0..count).map(version).collect();
    tied.sort_by_key(id);
    tied
}

pub fn sets() -> Vec<Set> {
    let mut sets = versions();
    sets.extend(deletions());
    sets.extend(deletions_of_versions());
    sets.extend(strangers());
    sets.extend(times_and_topics());
    sets
}

fn versions() -> Vec<Set> {
    let [p1, p2, p3] = [1, 2, 3].map(profile);
    let [x1, x2, y1] = [article("x", 1), article("x", 2), article("y", 1)];
    let ties = tied(4);
    let (older, newer) = (profile(4), profile(6));
    let odd: Vec<Checked> = ["", "\0", "ü"].into_iter().map(|d| article(d, 1)).collect();
    vec![
        set("versions", [&p1, &p2, &p3, &x1, &x2, &y1], [&p3, &x2, &y1]),
        set("ties", [&ties[0], &ties[1], &ties[2], &ties[3], &older], [&ties[0]]),
        set("ties that lose", [&ties[0], &ties[1], &ties[2], &older, &newer], [&newer]),
        set(
            "odd d values",
            [&odd[0], &odd[1], &odd[2], &article("", 2)],
            [&article("", 2), &odd[1], &odd[2]],
        ),
        set("repeats", [&p1, &p1, &p2, &p2, &note(1), &note(1)], [&p2, &note(1)]),
    ]
}

fn deletions() -> Vec<Set> {
    let [n1, n2] = [1, 2].map(note);
    let d1 = delete(3, &[&n1]);
    // Older than its target: by id, time does not matter.
    let early = delete(0, &[&n2]);
    let both = delete(4, &[&n1, &n2]);
    let of_d1 = delete(5, &[&d1]);
    let of_of_d1 = delete(6, &[&of_d1, &d1]);
    let never = note(99);
    let of_never = delete(7, &[&never, &n1]);
    vec![
        set("a deletion", [&n1, &n2, &d1], [&n2, &d1]),
        set("X, deletion, X", [&n1, &d1, &n1, &d1, &n1], [&d1]),
        set("two requests", [&n1, &n2, &d1, &both, &early], [&d1, &both, &early]),
        set("a request older than its target", [&n1, &n2, &early], [&n1, &early]),
        set(
            "deletions of deletions",
            [&n1, &n2, &d1, &of_d1, &of_of_d1],
            [&n2, &d1, &of_d1, &of_of_d1],
        ),
        set("a target that never comes", [&n1, &n2, &of_never], [&n2, &of_never]),
    ]
}

fn deletions_of_versions() -> Vec<Set> {
    let [v1, v2, v3] = [1, 3, 5].map(|nth| article("x", nth));
    let [of_v1, of_v2, of_v3] = [delete(7, &[&v1]), delete(8, &[&v2]), delete(9, &[&v3])];
    let [until0, until2, until3, until4, until6] =
        [0, 2, 3, 4, 6].map(|nth| delete_until(nth, &v1));
    let ties = tied(3);
    let of_winner = delete(9, &[&ties[0]]);
    let of_loser = delete(9, &[&ties[2]]);
    let profile_gone = delete_until(5, &ties[0]);
    vec![
        // A winner deleted before it arrives while an older version is effective, and all its orders.
        set("the winner deleted", [&v1, &v2, &v3, &of_v3], [&of_v3]),
        set("the winner deleted, with repeats", [&v1, &v2, &of_v2, &v1, &v2], [&of_v2]),
        set("a loser deleted", [&v1, &v2, &v3, &of_v2, &of_v1], [&v3, &of_v2, &of_v1]),
        set(
            "all deleted one by one",
            [&v1, &v2, &v3, &of_v1, &of_v2, &of_v3],
            [&of_v1, &of_v2, &of_v3],
        ),
        set("a limit between two versions", [&v1, &v2, &until2], [&v2, &until2]),
        set("a limit at a version", [&v1, &v2, &v3, &until3], [&v3, &until3]),
        set("a limit at the winner", [&v1, &v2, &until3, &v2], [&until3]),
        set("a limit above all", [&v1, &v2, &v3, &until6, &v1], [&until6]),
        set("a limit below all", [&v1, &v2, &until0], [&v2, &until0]),
        set("two limits", [&v1, &v2, &v3, &until2, &until4], [&v3, &until2, &until4]),
        set("a limit and a deleted winner", [&v1, &v2, &v3, &until4, &of_v3], [&until4, &of_v3]),
        set(
            "limits, a deletion and all versions",
            [&v1, &v2, &v3, &until2, &of_v2, &until6],
            [&until2, &of_v2, &until6],
        ),
        set(
            "the winner of a tie deleted",
            [&ties[0], &ties[1], &ties[2], &of_winner],
            [&of_winner],
        ),
        set(
            "the loser of a tie deleted",
            [&ties[0], &ties[1], &ties[2], &of_loser],
            [&ties[0], &of_loser],
        ),
        set(
            "a limit at a tie",
            [&ties[0], &ties[1], &profile_gone, &profile(6)],
            [&profile_gone, &profile(6)],
        ),
    ]
}

/// What others ask for, and what names nothing.
fn strangers() -> Vec<Set> {
    let (n1, v1) = (note(1), article("x", 1));
    let foreign = draft(5, 9).tag("e", id(&n1)).tag("e", id(&v1)).tag("a", address(&v1));
    let foreign = sign(&bob(), &foreign);
    let own = delete(9, &[&n1]);
    let pubkey = alice().pubkey();
    let malformed = draft(5, 9)
        .tag("a", format!("30023:{pubkey}"))
        .tag("a", format!("1:{pubkey}:"))
        .tag("a", format!("0:{pubkey}:x"))
        .tag("e", "none");
    let malformed = sign(&alice(), &malformed);
    let of_bob = sign(&bob(), &draft(30_023, 2).tag("d", "x"));
    let by_kind = sign(&alice(), &draft(30_024, 2).tag("d", "x"));
    let until = delete_until(8, &v1);
    vec![
        set("foreign deletions", [&n1, &v1, &foreign, &n1, &v1], [&n1, &v1, &foreign]),
        set("foreign and own deletions", [&n1, &v1, &foreign, &own], [&v1, &foreign, &own]),
        set(
            "targets that name nothing",
            [&n1, &v1, &profile(1), &malformed],
            [&n1, &v1, &profile(1), &malformed],
        ),
        set(
            "neighbours of a key",
            [&v1, &of_bob, &by_kind, &article("y", 1), &until],
            [&of_bob, &by_kind, &article("y", 1), &until],
        ),
    ]
}

fn times_and_topics() -> Vec<Set> {
    let over = NOW;
    let not_yet = NOW.saturating_add(1);
    let [n1, p1] = [note(1), profile(1)];
    let short = sign(&alice(), &draft(1, 2).tag("expiration", over));
    let lasting = sign(&alice(), &draft(1, 3).tag("expiration", not_yet));
    let short_winner = sign(&alice(), &draft(0, 5).tag("expiration", over));
    let lasting_winner = sign(&alice(), &draft(0, 4).tag("expiration", not_yet));
    let short_request = draft(5, 6).tag("e", id(&n1)).tag("expiration", over);
    let short_request = sign(&alice(), &short_request);
    let on_both = sign(&alice(), &draft(1, 7).tag("t", elsewhere()));
    let away = |kind, nth| bare(kind, nth).tag("t", elsewhere());
    let only_elsewhere = sign(&alice(), &away(1, 8));
    let winner_elsewhere = sign(&alice(), &away(0, 9));
    let request_elsewhere = sign(&alice(), &away(5, 9).tag("e", id(&n1)));
    let request_on_both = draft(5, 9).tag("t", elsewhere()).tag("e", id(&on_both));
    let request_on_both = sign(&alice(), &request_on_both);
    let newest_on_both = sign(&alice(), &draft(0, 9).tag("t", elsewhere()));
    let ephemeral = sign(&alice(), &draft(20_001, 1));
    let carried = |set: Set| Set { handled: vec![here(), elsewhere()], ..set };
    vec![
        set("expiry", [&n1, &short, &lasting, &short], [&n1, &lasting]),
        set("an expired winner", [&p1, &lasting_winner, &short_winner, &p1], [&lasting_winner]),
        set("an expired request", [&n1, &lasting, &short_request], [&n1, &lasting]),
        set("two topics, one handled", [&n1, &on_both, &only_elsewhere, &on_both], [&n1, &on_both]),
        set("a winner elsewhere", [&p1, &winner_elsewhere, &profile(2)], [&profile(2)]),
        set("a request elsewhere", [&n1, &request_elsewhere, &p1], [&n1, &p1]),
        set(
            "a request on two topics",
            [&n1, &on_both, &request_on_both, &on_both],
            [&n1, &request_on_both],
        ),
        carried(set(
            "versions that move",
            [&p1, &winner_elsewhere, &profile(2), &newest_on_both],
            [if id(&winner_elsewhere) < id(&newest_on_both) {
                &winner_elsewhere
            } else {
                &newest_on_both
            }],
        )),
        carried(set(
            "both topics",
            [&n1, &on_both, &only_elsewhere, &request_elsewhere],
            [&on_both, &only_elsewhere, &request_elsewhere],
        )),
        set("ephemeral events", [&n1, &ephemeral, &ephemeral], [&n1]),
        set(
            "a bit of everything",
            [&n1, &p1, &delete(2, &[&n1]), &short_winner, &on_both, &profile(2)],
            [&delete(2, &[&n1]), &on_both, &profile(2)],
        ),
    ]
}
