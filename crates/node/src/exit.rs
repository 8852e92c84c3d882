use std::process::ExitCode;
use std::time::Duration;

/// The part of `--help` that scripts need.
pub const HELP: &str = "\
Exit codes:
  0    done: all lines were accepted or known already, the doctor found nothing
  1    failed: the message says what, how far it came, and what to do
  2    the command line is wrong
  3    finished, but some lines were refused, or the doctor found something
  130  interrupted: what was begun is finished, and running it again goes on";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    Failed,
    Usage,
    /// Finished, and there is something to look at.
    Findings,
    Interrupted,
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Findings => 3,
            Self::Interrupted => 130,
        }
    }

    /// Ends the process now, whatever it waits for.
    pub fn leave(self) -> ! {
        std::process::exit(self.code().into())
    }

    /// Ends the process if it has not ended by itself after a while: a disk that hangs would hold up
    /// who closes its files.
    pub fn leave_after(self, wait: Duration) {
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            self.leave()
        });
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
