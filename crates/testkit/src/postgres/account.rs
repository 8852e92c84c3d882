//! The user that runs a cluster. PostgreSQL refuses to run as root, so root lends it another
//! account.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Accounts that own nothing of value on an ordinary system, the best one first.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

#[derive(Debug, Clone, Copy)]
pub(super) enum Account {
    Own,
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(super) fn choose() -> Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account::Own);
        }
        for name in CANDIDATES {
            if let (Some(uid), Some(gid)) = (number("-u", name), number("-g", name)) {
                return Ok(Account::Other { uid, gid });
            }
        }
        bail!("PostgreSQL does not run as root, and none of {CANDIDATES:?} exists");
    }

    /// A command for `program` under this account. It gets SIGQUIT when the thread that spawns it
    /// ends: for a postmaster that is an immediate stop.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if let Account::Other { uid, gid } = self {
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
            command.arg("--clear-groups");
        }
        command.arg("--").arg(program);
        command
    }

    pub(super) fn own(self, dir: &Path) -> Result<()> {
        if let Account::Other { uid, gid } = self {
            std::os::unix::fs::chown(dir, Some(uid), Some(gid))
                .with_context(|| format!("cannot give {} to user {uid}", dir.display()))?;
        }
        Ok(())
    }
}

fn number(flag: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
