//! What must hold of every parser, over seeds that were spoiled a little. `make fuzz` looks for longer,
//! and better.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use kukuri_testkit::generate::{Dice, Seed};

#[path = "../../../fuzz/src/lib.rs"]
mod oracles;

const ROUNDS: usize = 20_000;
const SPOILS_MAX: usize = 4;

fn seeds(name: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let files = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Cuts, repeats and replaces a few characters.
fn spoil(text: &str, dice: &mut Dice) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for _ in 0..dice.below(SPOILS_MAX) {
        let (from, to) = (dice.below(text.len() + 1), dice.below(text.len() + 1));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 16));
        match dice.below(4) {
            0 => drop(text.drain(from..to)),
            1 => {
                let again = text[from..to].to_vec();
                text.splice(from..from, again);
            }
            2 => text.insert(from, *dice.pick(&['"', '\\', '[', ']', '{', '}', ',', '0', '\n'])),
            _ => text
                .insert(from, char::from_u32(u32::try_from(dice.below(0x1100)).unwrap()).unwrap()),
        }
    }
    text.into_iter().collect()
}

fn hold(name: &str, oracle: fn(&str)) {
    let seed = Seed::of_run(&format!("-p kukuri-relay --test fuzz {name}"));
    let (seeds, mut dice) = (seeds(name), seed.dice());
    seeds.iter().for_each(|text| oracle(text));
    for _ in 0..ROUNDS {
        let text = dice.pick(&seeds).clone();
        oracle(&spoil(&text, &mut dice));
    }
}

#[test]
fn event() {
    hold("event", oracles::event);
}

#[test]
fn filter() {
    hold("filter", oracles::filter);
}

#[test]
fn names() {
    hold("names", oracles::names);
}

#[test]
fn neg() {
    hold("neg", oracles::neg);
}

#[test]
fn question() {
    hold("question", oracles::question);
}

#[test]
fn session() {
    hold("session", oracles::session);
}

#[test]
fn swarm() {
    hold("swarm", oracles::swarm);
}

#[test]
fn search() {
    hold("search", oracles::search);
}
