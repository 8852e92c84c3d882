//! Posts and questions with the answers that people expect, and questions of people who mean no good: what
//! every way to search is asked.

use serde::Deserialize;

/// What has meaning to FTS5, to tsquery, to LIKE, to SQL, to a shell, or to a terminal.
pub const HOSTILE: &[&str] = &[
    "\"",
    "\"\"",
    // One sign that becomes several words, the last of which looks like an id with what follows.
    "½aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\"\"\"",
    "'",
    "' OR '1'='1",
    "alpha' --",
    "alpha OR beta",
    "alpha AND NOT beta",
    "NOT alpha",
    "NEAR(alpha beta, 2)",
    "alpha NEAR/2 beta",
    "terms:alpha",
    "{terms} : alpha",
    "^alpha",
    "alpha*",
    "*",
    "%",
    "_",
    "alpha%",
    "al_ha",
    "alpha & !beta",
    "alpha <-> beta",
    "alpha:*",
    "alpha:ABCD",
    "(alpha",
    "alpha)",
    "()",
    "\\",
    "alpha\\",
    "$1",
    "?1",
    ":name",
    "alpha; DROP TABLE documents",
    "alpha\0beta",
    "\0",
    "\u{feff}alpha",
    "\u{202e}alpha",
    "alpha\u{200d}beta",
    "\u{1b}[31malpha",
    "<b>alpha</b>",
    "{{alpha}}",
    "${alpha}",
    "#",
    "##",
    "#\"alpha\"",
    "@",
    "@npub1",
    "@npub1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq",
    "nostr:",
    "",
    " ",
    "\u{3000}",
    "。、！",
    "-",
    "--",
    "+alpha -beta",
    "\u{301}",
    "e\u{301}\u{301}\u{301}\u{301}",
    "ﷺ",
    "𝕒𝕝𝕡𝕙𝕒",
];

/// The committed posts and judged questions.
#[derive(Deserialize)]
pub struct Judged {
    pub posts: Vec<JudgedPost>,
    pub queries: Vec<JudgedQuery>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedPost {
    pub name: String,
    /// Its age at the time of the question.
    pub hours: i64,
    pub text: String,
    #[serde(default)]
    pub tags: Vec<Vec<String>>,
    #[serde(default = "note")]
    pub kind: u16,
    /// The name of its topic.
    #[serde(default = "main")]
    pub topic: String,
    #[serde(default)]
    pub likes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedQuery {
    pub ask: String,
    /// All that is to be found, by name.
    pub finds: Vec<String>,
    /// The beginning of the order.
    #[serde(default)]
    pub first: Vec<String>,
}

fn note() -> u16 {
    1
}

fn main() -> String {
    "main".to_owned()
}

impl Judged {
    #[must_use]
    pub fn read() -> Self {
        toml::from_str(include_str!("judged.toml")).expect("the judged set is TOML of this shape")
    }
}

impl JudgedQuery {
    /// What is wrong with an answer, which names what was found; empty if it is as judged.
    #[must_use]
    pub fn faults(&self, found: &[&str]) -> Vec<String> {
        let mut faults = Vec::new();
        for name in &self.finds {
            if !found.contains(&name.as_str()) {
                faults.push(format!("{}: {name} is not found", self.ask));
            }
        }
        for name in found {
            if !self.finds.iter().any(|expected| expected == name) {
                faults.push(format!("{}: {name} is found", self.ask));
            }
        }
        if !found.iter().zip(&self.first).all(|(one, other)| one == other) {
            faults.push(format!("{}: the order is {found:?}", self.ask));
        }
        faults
    }
}
