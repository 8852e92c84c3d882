//! Neighbours that were met, remembered beyond the end of the process: who knows one node of a swarm finds
//! the others, and finds them again after it was alone.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use iroh::EndpointId;
use kukuri_core::UnixMillis;
use serde::{Deserialize, Serialize};

const FILE: &str = "neighbours.json";
/// The longest unseen are forgotten first.
const NEIGHBOURS_MAX: usize = 64;
const ADDRESSES_MAX: usize = 4;
/// Larger files are not ours.
const FILE_BYTES_MAX: u64 = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Met {
    pub addresses: Vec<SocketAddr>,
    pub seen_at: UnixMillis,
}

pub(crate) struct Book {
    path: PathBuf,
    met: BTreeMap<EndpointId, Met>,
    changed: bool,
}

impl Book {
    /// What is unreadable is begun anew: nothing in it cannot be learnt again.
    pub fn open(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let small = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= FILE_BYTES_MAX);
        let text = small.then(|| std::fs::read_to_string(&path).ok()).flatten();
        let met = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut book = Self { path, met, changed: false };
        book.trim();
        book
    }

    /// Says who is forgotten for it.
    pub fn meet(
        &mut self,
        id: EndpointId,
        mut addresses: Vec<SocketAddr>,
        now: UnixMillis,
    ) -> Vec<EndpointId> {
        addresses.truncate(ADDRESSES_MAX);
        let known = self.met.get(&id);
        if addresses.is_empty() {
            addresses = known.map(|met| met.addresses.clone()).unwrap_or_default();
        }
        if addresses.is_empty() {
            return Vec::new();
        }
        self.changed |= known.is_none_or(|met| met.addresses != addresses);
        self.met.insert(id, Met { addresses, seen_at: now });
        self.trim()
    }

    pub fn forget(&mut self, id: &EndpointId) {
        self.changed |= self.met.remove(id).is_some();
    }

    pub fn all(&self) -> impl Iterator<Item = (&EndpointId, &Met)> {
        self.met.iter()
    }

    pub fn knows(&self, id: &EndpointId) -> bool {
        self.met.contains_key(id)
    }

    fn trim(&mut self) -> Vec<EndpointId> {
        let mut forgotten = Vec::new();
        while self.met.len() > NEIGHBOURS_MAX {
            let oldest = self.met.iter().min_by_key(|(id, met)| (met.seen_at, **id));
            let oldest = oldest.map(|(id, _)| *id).expect("more than none are there");
            self.met.remove(&oldest);
            forgotten.push(oldest);
        }
        forgotten
    }

    /// Writes what has changed. Another file takes the place of the old one, so it is whole at any time.
    pub fn save(&mut self) -> std::io::Result<()> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        write_whole(&self.path, &serde_json::to_vec(&self.met).expect("a book is plain data"))
    }
}

/// Puts a file in the place of another.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    fn id(nth: u8) -> EndpointId {
        SecretKey::from_bytes(&[nth; 32]).public()
    }

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn neighbours_are_remembered_and_the_longest_unseen_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let mut book = Book::open(home.path());
        for nth in 0..=NEIGHBOURS_MAX {
            book.meet(id(nth as u8), vec![address(1)], UnixMillis(nth as i64));
        }
        book.meet(id(200), Vec::new(), UnixMillis(1000));
        assert_eq!(book.met.len(), NEIGHBOURS_MAX);
        assert!(!book.met.contains_key(&id(0)), "the oldest");
        assert!(!book.met.contains_key(&id(200)), "who cannot be found again is of no use");
        book.meet(id(1), Vec::new(), UnixMillis(2000));
        assert_eq!(
            book.met[&id(1)],
            Met { addresses: vec![address(1)], seen_at: UnixMillis(2000) }
        );
        book.save().unwrap();
        let again = Book::open(home.path());
        assert_eq!(again.met.len(), NEIGHBOURS_MAX);
        std::fs::write(home.path().join(FILE), "{").unwrap();
        assert_eq!(Book::open(home.path()).met.len(), 0);
    }
}
