#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| kukuri_fuzz::swarm(text));
