//! File systems that a test may fill up or cut the power of. They need root; without it a test is
//! skipped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::scratch::Scratch;

/// How many copies of a power-cut image fit beside the live one.
const IMAGES_AT_ONCE: u64 = 8;

/// The machine does not let this process mount; the test has to be skipped.
#[derive(Debug, thiserror::Error)]
#[error("mounting is impossible here: {reason}")]
pub struct Unmountable {
    reason: String,
}

impl Unmountable {
    /// Says loudly that `test` proved nothing on this machine. The test runner shows it at the end
    /// of a run.
    pub fn skip(&self, test: &str) {
        eprintln!("SKIPPED {test}: {self}");
    }
}

impl From<io::Error> for Unmountable {
    fn from(error: io::Error) -> Unmountable {
        Unmountable { reason: error.to_string() }
    }
}

/// A file system in memory with a fixed size. Dropping it unmounts it.
#[derive(Debug)]
pub struct Tmpfs {
    point: Point,
    /// Dropped after the mount it carries.
    _scratch: Scratch,
}

impl Tmpfs {
    /// # Errors
    /// `Unmountable` without the rights to mount.
    pub fn mount(size_bytes: u64) -> Result<Tmpfs, Unmountable> {
        let scratch = Scratch::new()?;
        let size = format!("size={size_bytes},mode=0755");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]);
        let point = Point::mount(scratch.path().join("tmpfs"), command)?;
        Ok(Tmpfs { point, _scratch: scratch })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.path
    }
}

/// An ext4 file system whose disk is a file in memory, so that the disk can be copied as a power
/// cut would leave it: with what was synced, without what only the page cache holds.
#[derive(Debug)]
pub struct PowerCut {
    point: Point,
    disk: PathBuf,
    images: AtomicU32,
    /// Shared with the images, which lie on it too. Dropped after the mount it carries.
    memory: Arc<Tmpfs>,
}

impl PowerCut {
    /// # Errors
    /// `Unmountable` without the rights to mount, loop devices or `mkfs.ext4`.
    pub fn mount(size_bytes: u64) -> Result<PowerCut, Unmountable> {
        let memory = Arc::new(Tmpfs::mount(size_bytes * (1 + IMAGES_AT_ONCE))?);
        let disk = memory.path().join("disk");
        File::create(&disk)?.set_len(size_bytes)?;
        done(Command::new("mkfs.ext4").arg("-q").arg(&disk).output())?;
        // The long commit interval keeps ext4 from syncing by its own timer what the node forgot to
        // sync.
        let point = loop_mount(&disk, memory.path().join("live"), "loop,commit=300")?;
        Ok(PowerCut { point, disk, images: AtomicU32::new(0), memory })
    }

    /// The live file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.path
    }

    /// Copies the disk as it is now. The caller has stopped every process that writes to it.
    ///
    /// # Errors
    /// When the memory for the copy is used up by images that are still alive.
    pub fn cut(&self) -> io::Result<Image> {
        let number = self.images.fetch_add(1, Ordering::Relaxed);
        let file = self.memory.path().join(format!("image-{number}"));
        let image = Image { file, memory: Arc::clone(&self.memory) };
        fs::copy(&self.disk, &image.file)?;
        Ok(image)
    }
}

/// What was on the disk at the moment of a cut. Dropping it frees its memory.
#[derive(Debug)]
pub struct Image {
    file: PathBuf,
    memory: Arc<Tmpfs>,
}

impl Image {
    /// Mounts the image elsewhere, as the machine would after the power came back.
    ///
    /// # Errors
    /// When the file system cannot be mounted, which is a finding and not a reason to skip.
    pub fn mount(self) -> io::Result<Restored> {
        let name = self.file.file_name().expect("an image has a name").display().to_string();
        let path = self.memory.path().join(format!("{name}-restored"));
        let point =
            loop_mount(&self.file, path, "loop").map_err(|error| io::Error::other(error.reason))?;
        Ok(Restored { point, _image: self })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A copy that failed half-way may have left nothing to remove.
        let _ = fs::remove_file(&self.file);
    }
}

/// A mounted image. Dropping it unmounts it.
#[derive(Debug)]
pub struct Restored {
    point: Point,
    /// Dropped after the mount it carries.
    _image: Image,
}

impl Restored {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.path
    }
}

/// A mount point that is unmounted when dropped.
#[derive(Debug)]
struct Point {
    path: PathBuf,
}

impl Point {
    /// Runs `command`, which lacks only the directory, on a new directory `path`.
    fn mount(path: PathBuf, mut command: Command) -> Result<Point, Unmountable> {
        fs::create_dir(&path)?;
        done(command.arg(&path).output())?;
        Ok(Point { path })
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        let tried = done(Command::new("umount").arg(&self.path).output());
        if tried.is_err() {
            // A process that still runs here keeps the file system until it ends.
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).output();
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Writes a file until its disk is full, and gives back so many bytes.
///
/// # Errors
/// Any but that the disk is full.
pub fn fill(file: &Path, free_bytes: u64) -> io::Result<()> {
    let mut ballast = File::create(file)?;
    for piece_bytes in [1 << 16, 1 << 12] {
        let piece = vec![0; piece_bytes];
        loop {
            match ballast.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
    }
    let length = ballast.metadata()?.len();
    ballast.set_len(length - free_bytes)
}

fn loop_mount(disk: &Path, path: PathBuf, options: &str) -> Result<Point, Unmountable> {
    let mut command = Command::new("mount");
    command.args(["-t", "ext4", "-o", options]).arg(disk);
    Point::mount(path, command)
}

fn done(output: io::Result<Output>) -> Result<(), Unmountable> {
    let output = output?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Unmountable { reason })
}
