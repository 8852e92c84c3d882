//! Directories for clusters and mounts that are cleaned up even after a test was killed.
//!
//! A killed test cannot drop anything, so a directory's name carries the process that made it, and
//! whoever makes the next one removes what dead processes left behind, mounts included.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use tempfile::TempDir;

const PREFIX: &str = "kukuri-test-";

/// A directory that goes away with this value, together with everything mounted below it.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// # Errors
    /// Whatever the temporary directory of the system says.
    pub fn new() -> io::Result<Scratch> {
        sweep(&std::env::temp_dir());
        let prefix = format!("{PREFIX}{}-", process::id());
        // A server that runs under another user has to reach what lies below.
        let open = fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix(&prefix).permissions(open).tempdir()?;
        Ok(Scratch { dir })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unmount_below(self.dir.path());
    }
}

/// Removes the directories of processes that are gone. What cannot be removed now is tried again
/// next time.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            unmount_below(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn unmount_below(dir: &Path) {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else {
        return;
    };
    // Later mounts may lie on earlier ones, so the newest goes first.
    for point in mount_points(&table).into_iter().rev().filter(|point| point.starts_with(dir)) {
        let _ = Command::new("umount").arg("--lazy").arg(point).output();
    }
}

fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_as_long_as_its_value() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn removes_what_a_dead_process_left() {
        let parent = TempDir::new().unwrap();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let dead = parent.path().join(format!("{PREFIX}{}-x", gone.id()));
        let alive = parent.path().join(format!("{PREFIX}{}-x", process::id()));
        let foreign = parent.path().join("somebody-elses");
        for dir in [&dead, &alive, &foreign] {
            fs::create_dir(dir).unwrap();
        }
        sweep(parent.path());
        assert!(!dead.exists());
        assert!(alive.exists() && foreign.exists());
    }

    #[test]
    fn finds_the_mount_point_in_the_fifth_field() {
        let line = "36 35 98:0 / /mnt/x rw,noatime master:1 - ext4 /dev/root rw";
        assert_eq!(mount_points(line), [PathBuf::from("/mnt/x")]);
    }
}
