//! A crate exists because it forbids a dependency. This test is what forbids it.
//!
//! Dependencies of tests are free: a test may need both sides of a wall.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

const PREFIX: &str = "kukuri-";

/// What each crate may depend on. An edge allows everything below it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("event", &[]),
    ("core", &["event"]),
    ("store", &["core"]),
    ("store-sqlite", &["store"]),
    ("store-postgres", &["store"]),
    ("lane", &["store"]),
    ("feed", &["store"]),
    ("fanout", &["feed"]),
    ("relay", &["lane", "fanout"]),
    ("gossip", &["lane", "feed", "client"]),
    ("accounts", &[]),
    ("index", &["feed"]),
    ("moderation", &["feed"]),
    ("trust", &["feed"]),
    ("api", &["lane", "accounts", "index", "moderation", "trust"]),
    ("console", &["api"]),
    ("ilp", &[]),
    ("paid", &["ilp", "fanout", "lane", "accounts"]),
    ("client", &["event"]),
    // The load is made by the generators of tests, and the server that is measured is theirs.
    ("bench", &["client", "testkit"]),
    ("node", &["store-sqlite", "store-postgres", "relay", "client", "gossip", "console", "paid"]),
    ("testkit", &["store", "client"]),
];

/// Libraries that only some crates may name.
const OWNED: &[(&str, &[&str])] = &[
    ("rusqlite", &["store-sqlite"]),
    // The event store's own SQL is store-postgres; the others keep their cold tables through
    // sqlx::Any.
    ("sqlx", &["store-postgres", "feed", "accounts", "index", "moderation", "trust", "paid"]),
    // What is said over HTTP is described where it is answered.
    ("utoipa", &["api", "console"]),
    // Both sides of a reconciliation, and nobody else, speak its format.
    ("negentropy", &["relay", "client"]),
    ("iroh", &["gossip"]),
    ("iroh-gossip", &["gossip"]),
    // What a word is, is decided in one place.
    ("caseless", &["index"]),
    ("unicode-script", &["index"]),
    // A library says which errors it has; only programs may mix them.
    ("anyhow", &["node", "bench", "testkit"]),
];

/// Crates without I/O, clock, randomness and async, and what would bring them in.
const PURE: &[&str] = &["event", "core"];
const IMPURE: &[&str] = &[
    "async-trait",
    "chrono",
    "futures",
    "futures-util",
    "getrandom",
    "jiff",
    "log",
    "rand",
    "rustix",
    "tempfile",
    "time",
    "tokio",
    "tracing",
];

/// A dependency that is not one of tests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    from: String,
    to: String,
}

impl Edge {
    fn new(from: &str, to: &str) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned() }
    }
}

#[test]
fn no_crate_depends_on_what_it_must_not_know() {
    let (crates, edges) = workspace();
    assert!(crates.contains("kukuri-testkit"), "cargo metadata did not list this very crate");
    let faults = faults(&crates, &edges);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The same check must notice every sort of forbidden edge, or its silence would mean nothing.
#[test]
fn forbidden_edges_are_noticed() {
    let forbidden = [
        ("kukuri-event", "kukuri-core"),
        ("kukuri-core", "kukuri-store"),
        ("kukuri-lane", "kukuri-store-sqlite"),
        ("kukuri-store-postgres", "kukuri-store-sqlite"),
        ("kukuri-relay", "kukuri-gossip"),
        ("kukuri-bench", "kukuri-lane"),
        ("kukuri-node", "kukuri-testkit"),
        ("kukuri-lane", "rusqlite"),
        ("kukuri-lane", "sqlx"),
        ("kukuri-relay", "iroh"),
        ("kukuri-node", "negentropy"),
        ("kukuri-index", "kukuri-lane"),
        ("kukuri-index", "kukuri-relay"),
        ("kukuri-index", "rusqlite"),
        ("kukuri-relay", "kukuri-index"),
        ("kukuri-relay", "caseless"),
        ("kukuri-relay", "kukuri-api"),
        ("kukuri-api", "kukuri-relay"),
        ("kukuri-api", "sqlx"),
        ("kukuri-relay", "utoipa"),
        ("kukuri-store", "anyhow"),
        ("kukuri-core", "rand"),
        ("kukuri-event", "tokio"),
    ];
    for (from, to) in forbidden {
        let crates = [from, to].into_iter().filter(|name| name.starts_with(PREFIX));
        let crates = crates.map(str::to_owned).collect();
        let edge = Edge::new(from, to);
        assert_eq!(faults(&crates, &BTreeSet::from([edge])).len(), 1, "{from} → {to}");
    }
}

#[test]
fn unknown_crates_are_noticed() {
    for name in ["kukuri-helpers", "event"] {
        let crates = BTreeSet::from([name.to_owned()]);
        assert_eq!(faults(&crates, &BTreeSet::new()).len(), 1, "{name}");
    }
}

#[test]
fn an_edge_allows_everything_below_it() {
    let allowed = [
        ("kukuri-core", "kukuri-event"),
        ("kukuri-relay", "kukuri-event"),
        ("kukuri-console", "kukuri-lane"),
        ("kukuri-node", "kukuri-core"),
        ("kukuri-store-sqlite", "rusqlite"),
        ("kukuri-event", "serde"),
    ];
    for (from, to) in allowed {
        let edges = BTreeSet::from([Edge::new(from, to)]);
        let crates = BTreeSet::from([from.to_owned()]);
        assert_eq!(faults(&crates, &edges), Vec::<String>::new(), "{from} → {to}");
    }
}

fn faults(crates: &BTreeSet<String>, edges: &BTreeSet<Edge>) -> Vec<String> {
    let table: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut faults = Vec::new();
    for name in crates {
        if !name.strip_prefix(PREFIX).is_some_and(|short| table.contains_key(short)) {
            faults.push(format!("{name}: not in the table of crates"));
        }
    }
    for Edge { from, to } in edges {
        let Some(short) = from.strip_prefix(PREFIX) else {
            continue;
        };
        let fault = match to.strip_prefix(PREFIX) {
            Some("testkit") if short != "bench" => Some("only tests and the bench may name it"),
            Some(below) if !reach(&table, short).contains(below) => Some("not an allowed edge"),
            Some(_) => None,
            None => library_fault(short, to),
        };
        faults.extend(fault.map(|fault| format!("{from} → {to}: {fault}")));
    }
    faults
}

fn library_fault(short: &str, library: &str) -> Option<&'static str> {
    let owners = OWNED.iter().find(|(name, _)| *name == library).map(|(_, owners)| *owners);
    if owners.is_some_and(|owners| !owners.contains(&short)) {
        Some("another crate owns this library")
    } else if PURE.contains(&short) && IMPURE.contains(&library) {
        Some("a pure crate has no I/O, clock, randomness or async")
    } else {
        None
    }
}

/// Everything below a crate.
fn reach<'a>(table: &BTreeMap<&'a str, &[&'a str]>, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = table.get(start).map_or(&[][..], |below| *below).to_vec();
    while let Some(name) = open.pop() {
        if reached.insert(name) {
            open.extend(table.get(name).into_iter().copied().flatten());
        }
    }
    reached
}

fn workspace() -> (BTreeSet<String>, BTreeSet<Edge>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut crates = BTreeSet::new();
    let mut edges = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages are a list") {
        let from = text(&package["name"]);
        for dependency in package["dependencies"].as_array().expect("dependencies are a list") {
            if dependency["kind"] != "dev" {
                edges.insert(Edge::new(from, text(&dependency["name"])));
            }
        }
        crates.insert(from.to_owned());
    }
    (crates, edges)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("names are strings")
}
