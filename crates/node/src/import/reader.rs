//! The thread that reads the input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, bail};
use tokio::sync::mpsc;

use super::lines::{Line, Lines};

/// Lines per chunk. A few chunks make a batch of the lane.
pub const CHUNK_LINES_MAX: usize = 256;
/// A chunk that grew to this size is long enough.
const CHUNK_BYTES_MAX: u64 = 1024 * 1024;
/// Chunks that may wait to be checked; then the reader waits.
const CHUNKS_WAITING_MAX: usize = 2;
const BUFFER_BYTES: usize = 256 * 1024;

/// A run of lines.
pub struct Chunk {
    pub lines: Vec<Line>,
    /// Whether the input ends here.
    pub last: bool,
    /// How much of the input has been read up to here, in bytes and in lines.
    pub bytes: u64,
    pub last_line: u64,
}

/// What is read from.
pub struct Input {
    path: PathBuf,
    source: Source,
    /// Known for files.
    pub size: Option<u64>,
}

enum Source {
    Stdin,
    File(File),
}

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

impl Input {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let (source, size) = if is_stdin(path) {
            (Source::Stdin, None)
        } else {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            let meta =
                file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
            if meta.is_dir() {
                bail!("{} is a directory: name a file of JSON lines", path.display());
            }
            // The size of a pipe or device says nothing.
            let size = meta.is_file().then_some(meta.len());
            (Source::File(file), size)
        };
        Ok(Self { path: path.to_owned(), source, size })
    }

    /// Starts to read. The thread ends with the input, or when nobody takes its chunks; one that
    /// waits for a silent stdin ends with the process, since nothing else could wake it.
    pub fn start(
        self,
        line_bytes_max: usize,
    ) -> anyhow::Result<mpsc::Receiver<anyhow::Result<Chunk>>> {
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
        let read = move || match self.source {
            Source::Stdin => read(io::stdin().lock(), line_bytes_max, &self.path, &sender),
            Source::File(file) => {
                let input = BufReader::with_capacity(BUFFER_BYTES, file);
                read(input, line_bytes_max, &self.path, &sender);
            }
        };
        let thread = thread::Builder::new().name("import-read".to_owned()).spawn(read);
        thread.context("cannot start the reading thread")?;
        Ok(receiver)
    }
}

fn read(
    input: impl BufRead,
    line_bytes_max: usize,
    path: &Path,
    chunks: &mpsc::Sender<anyhow::Result<Chunk>>,
) {
    let mut lines = Lines::new(input, line_bytes_max);
    loop {
        let (chunk, error) = next_chunk(&mut lines);
        let ended = chunk.last || error.is_some();
        // Lines before an error go in before it is told.
        let place = || format!("cannot read {} after line {}", path.display(), chunk.last_line);
        let error = error.map(|error| anyhow::Error::new(error).context(place()));
        for sent in [Some(Ok(chunk)), error.map(Err)].into_iter().flatten() {
            if chunks.blocking_send(sent).is_err() {
                return;
            }
        }
        if ended {
            return;
        }
    }
}

/// The next lines, and the error that kept them from being more.
fn next_chunk(lines: &mut Lines<impl BufRead>) -> (Chunk, Option<io::Error>) {
    let mut found = Vec::new();
    let start = lines.bytes();
    let (mut last, mut failure) = (false, None);
    while found.len() < CHUNK_LINES_MAX && lines.bytes() - start < CHUNK_BYTES_MAX {
        match lines.next() {
            Ok(Some(line)) => {
                found.push(line);
                continue;
            }
            Ok(None) => last = true,
            Err(error) => failure = Some(error),
        }
        break;
    }
    let chunk = Chunk { lines: found, last, bytes: lines.bytes(), last_line: lines.number() };
    (chunk, failure)
}
