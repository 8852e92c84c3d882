//! Killing a program while it opens its store.

use std::fs;
use std::io::{PipeReader, Write, pipe};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use kukuri_testkit::process::Process;

use crate::import::SILENCE_MAX;
use crate::load::Line;
use crate::rig::{Place, Program};

/// As much as a pipe holds for sure.
const PIPE_BYTES: usize = 32 * 1024;

/// What a kill during open came to.
pub struct OpeningKill {
    /// How many of the lines were in the pipe.
    pub offered: usize,
    /// Whether none of them had been read: the import reads only once its store is open.
    pub was_opening: bool,
}

/// Starts an import and kills it as soon as it has so many files or connections of the store open.
pub fn kill(place: &Place, program: Program, lines: &[Line], handles: usize) -> OpeningKill {
    let (reader, mut writer) = pipe().expect("a pipe");
    let mut text = String::new();
    let mut offered = 0;
    for line in lines.iter().take_while(|line| line.text.len() < PIPE_BYTES) {
        if text.len() + line.text.len() >= PIPE_BYTES {
            break;
        }
        text.push_str(&line.text);
        text.push('\n');
        offered += 1;
    }
    writer.write_all(text.as_bytes()).expect("an empty pipe has room");
    let stdin = reader.try_clone().expect("a file can be shared");
    let mut command = place.command(program);
    command.args(["import", "-", "--report", "-"]).stdin(Stdio::from(stdin));
    let mut process = Process::spawn(&mut command).expect("the node can be started");
    wait_for_handles(&process, place, handles, || unread(&reader) < text.len());
    process.kill9().expect("the child can be collected");
    OpeningKill { offered, was_opening: unread(&reader) == text.len() }
}

fn unread(reader: &PipeReader) -> usize {
    let bytes = rustix::io::ioctl_fionread(reader).expect("a pipe says how much it holds");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Looks without a pause: opening takes a few milliseconds. Gives up when it is over.
fn wait_for_handles(process: &Process, place: &Place, wanted: usize, over: impl Fn() -> bool) {
    let started = Instant::now();
    while handles(process.id(), place) < wanted && !over() {
        assert!(started.elapsed() < SILENCE_MAX, "the import does not open its store");
        thread::yield_now();
    }
}

/// How many files or connections of the store a process has open. A process that has ended has none
/// and never will, which the caller's deadline ends.
fn handles(pid: u32, place: &Place) -> usize {
    let files: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok())
        .collect();
    match place {
        Place::Sqlite(directory) => {
            files.iter().filter(|file| Path::new(file).starts_with(directory)).count()
        }
        Place::Postgres(url) => {
            let sockets = connections(pid, port(url));
            files.iter().filter(|file| sockets.contains(file)).count()
        }
    }
}

fn port(url: &str) -> u16 {
    let port = url.rsplit_once('/').and_then(|(server, _)| server.rsplit(':').next()?.parse().ok());
    port.expect("the address of a test's database has a port")
}

/// The sockets of the process's network that are connected to a port, as `/proc/PID/fd` names them.
fn connections(pid: u32, port: u16) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let peer = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open = rows.filter(|row| row.get(2).is_some_and(|remote| remote.ends_with(&peer)));
    open.filter_map(|row| Some(format!("socket:[{}]", row.get(9)?))).collect()
}
