//! A child program that a test can read, stop, continue and kill.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::condition::{TimedOut, wait_for};

/// How long a signal may take to have its effect on a healthy machine.
const SIGNAL_LIMIT: Duration = Duration::from_secs(30);

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// A collected child's number may belong to somebody else by now and must not be signalled.
    collected: bool,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts `command` with its stdout and stderr read by this value; its stdin stays as the
    /// caller set it.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Process> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let (lines, read_lines) = read_lines(stdout);
        let (stderr, read_stderr) = read_stderr(stderr);
        let readers = vec![read_lines, read_stderr];
        Ok(Process { child, collected: false, lines, stderr, readers })
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's stdin, once, if the caller made it a pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The next line of stdout; `None` when there will be no more or none came within `limit`.
    #[must_use]
    pub fn line(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The lines of stdout that have arrived and were not taken yet.
    #[must_use]
    pub fn lines_so_far(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// What the child has written to stderr so far; all of it once the child was waited for.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the child has not ended yet.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn running(&mut self) -> io::Result<bool> {
        self.collected |= self.child.try_wait()?.is_some();
        Ok(!self.collected)
    }

    /// Kills the child as `kill -9` does and collects it. A child that ended before is only
    /// collected.
    ///
    /// # Errors
    /// When the system cannot collect it.
    pub fn kill9(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        let status = self.child.wait()?;
        self.finish();
        Ok(status)
    }

    /// Stops the child with SIGSTOP and returns when no thread of it runs any more.
    ///
    /// A thread inside a system call such as fsync stops only when the call is done, so what the
    /// caller sees on disk afterwards does not change under its hands.
    ///
    /// # Errors
    /// When the child ended or did not stop.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let pid = self.id();
        wait_for("the stop of every thread", SIGNAL_LIMIT, || match threads_stopped(pid) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })??;
        Ok(())
    }

    /// Lets a stopped child go on.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn cont(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks the child to end, as a service manager does.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Asks the child to read its settings again.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn hang_up(&self) -> io::Result<()> {
        self.signal(Signal::HUP)
    }

    /// Interrupts the child, as Ctrl-C does.
    ///
    /// # Errors
    /// When the child has ended.
    pub fn interrupt(&self) -> io::Result<()> {
        self.signal(Signal::INT)
    }

    /// Waits until the child ends by itself.
    ///
    /// # Errors
    /// `TimedOut` when it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, TimedOut> {
        let status =
            wait_for("the end of the child", limit, || self.child.try_wait().ok().flatten())?;
        self.finish();
        Ok(status)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.collected {
            return Err(io::Error::other("the child has ended"));
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn finish(&mut self) {
        self.collected = true;
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader thread only reads and cannot panic");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The channel is unbounded on purpose: a full one would fill the pipe and stop the child.
fn read_lines(stdout: ChildStdout) -> (Receiver<String>, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (receiver, reader)
}

fn read_stderr(mut stderr: ChildStderr) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    let reader = thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut chunk) {
            let piece = String::from_utf8_lossy(&chunk[..length]);
            sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(&piece);
        }
    });
    (text, reader)
}

fn threads_stopped(pid: u32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = match fs::read_to_string(task?.path().join("stat")) {
            Ok(stat) => stat,
            // A thread that ended between the two reads is stopped for good.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match thread_state(&stat) {
            Some('T') => {}
            Some('Z' | 'X') => return Err(io::Error::other("the child has ended")),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The state letter follows the thread's name, which is in parentheses and may contain any
/// character.
fn thread_state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script]).stdin(Stdio::piped())).unwrap()
    }

    #[test]
    fn reads_lines_and_the_exit_code() {
        let mut child = shell("echo one; echo two; echo bad >&2; exit 7");
        assert_eq!(child.line(LIMIT).as_deref(), Some("one"));
        assert_eq!(child.wait(LIMIT).unwrap().code(), Some(7));
        assert_eq!(child.lines_so_far(), ["two"]);
        assert_eq!(child.line(LIMIT), None);
        assert_eq!(child.stderr(), "bad\n");
    }

    #[test]
    fn a_stopped_child_does_nothing_until_it_goes_on() {
        use std::io::Write;
        let mut child = shell("echo ready; read line; echo \"got $line\"");
        assert_eq!(child.line(LIMIT).as_deref(), Some("ready"));
        child.stop().unwrap();
        child.stdin().unwrap().write_all(b"word\n").unwrap();
        assert!(threads_stopped(child.id()).unwrap());
        assert!(child.lines_so_far().is_empty());
        child.cont().unwrap();
        assert_eq!(child.line(LIMIT).as_deref(), Some("got word"));
        assert!(child.wait(LIMIT).unwrap().success());
    }

    #[test]
    fn kill_9_ends_it_at_once() {
        use std::os::unix::process::ExitStatusExt;
        let mut child = shell("trap '' TERM INT; echo ready; while :; do read line; done");
        assert_eq!(child.line(LIMIT).as_deref(), Some("ready"));
        assert!(child.running().unwrap());
        assert_eq!(child.kill9().unwrap().signal(), Some(9));
        assert!(!child.running().unwrap());
        assert!(child.cont().is_err());
    }

    #[test]
    fn waiting_has_an_end() {
        let mut child = shell("read line");
        assert!(child.wait(Duration::from_millis(1)).is_err());
    }

    #[test]
    fn names_with_parentheses_do_not_hide_the_state() {
        assert_eq!(thread_state("12 (a) b) T 1 2"), Some('T'));
    }
}
