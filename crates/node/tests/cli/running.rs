//! A node that runs while a story is told.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;

use serde_json::Value;

use crate::site::{LIMIT, Site};

/// A running node, and where clients and the operator find it.
pub struct Running {
    pub node: Process,
    pub url: String,
    pub admin: String,
}

/// The command of a node that is asked and told as often as a test likes.
pub fn patient(site: &Site) -> Command {
    let mut command = site.command_now(&["run"]);
    for of in ["REQUESTS_PER_IP", "EVENTS_PER_IP", "EVENTS_PER_PUBKEY"] {
        command.env(format!("KUKURI_LIMITS_{of}_PER_MINUTE"), "0");
    }
    command
}

impl Running {
    pub fn start(site: &Site, args: &[&str]) -> Self {
        Self::spawn(&mut site.command_now(&[&["run"], args].concat()))
    }

    pub fn spawn(command: &mut Command) -> Self {
        let node = Process::spawn(command).unwrap();
        // An address may be "already in use" before.
        let banner = || node.stderr().contains("ready; Ctrl-C ends it").then_some(());
        wait_for("the banner", LIMIT, banner).unwrap();
        let banner = node.stderr();
        let address = |line: &str, scheme: &str| {
            let line = banner.lines().find(|said| said.trim_start().starts_with(line)).unwrap();
            let word = line.split_whitespace().find(|word| word.starts_with(scheme)).unwrap();
            word.trim_end_matches(',').to_owned()
        };
        let (url, admin) = (address("relay", "ws://"), address("admin", "http://"));
        Self { url, admin: admin["http://".len()..].split('/').next().unwrap().to_owned(), node }
    }

    pub fn end(mut self) {
        self.node.terminate().unwrap();
        let status = self.node.wait(LIMIT).unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.node.stderr());
    }

    /// What an address says: the head and the body.
    pub fn get(address: &str, path: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// What is answered over HTTP where clients connect: the status, and the body as JSON.
    pub fn api(&self, path: &str) -> (u16, Value) {
        let (head, body) = Self::get(&self.url["ws://".len()..], path, "*/*");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, body) = Self::get(&self.admin, "/metrics", "*/*");
        let line = body.lines().find(|line| line.split([' ', '{']).next() == Some(name))?;
        line.rsplit(' ').next().unwrap().parse().ok()
    }

    /// The document that the relay has of itself.
    pub fn nip11(&self) -> String {
        Self::get(&self.url["ws://".len()..], "/", "application/nostr+json").1
    }
}
