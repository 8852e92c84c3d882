//! Where the server's programs are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// Debian keeps every major version in a directory of its own.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The directory that holds `initdb`, `postgres` and `psql`.
pub(super) fn directory() -> Result<PathBuf> {
    let candidates = pg_config().into_iter().chain(installed_versions(Path::new(VERSIONS)));
    for directory in candidates {
        // Client packages bring pg_config without a server.
        if directory.join("initdb").is_file() && directory.join("postgres").is_file() {
            return Ok(directory);
        }
    }
    bail!("no PostgreSQL server found: run scripts/setup, which installs the package postgresql");
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim()))
}

/// The newest version first.
fn installed_versions(root: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    versions.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_and_not_words() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "17", "common"] {
            fs::create_dir(root.path().join(version)).unwrap();
        }
        let found = installed_versions(root.path());
        let expected = ["17/bin", "15/bin", "9/bin"].map(|version| root.path().join(version));
        assert_eq!(found, expected);
    }
}
