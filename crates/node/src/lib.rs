//! The community node: configuration, wiring and commands. Must not know rules, SQL or wire formats:
//! those belong to the crates it puts together.
//!
//! What a user asked for goes to stdout, as JSON where programs read it; everything else goes to
//! stderr. Every error names the object at fault and the next step.

mod admin;
mod api;
pub mod backfill;
mod backup;
pub mod cli;
mod clock;
pub mod config;
pub mod consumers;
pub mod doctor;
mod exit;
mod export;
mod feed;
pub mod gossip;
pub mod import;
mod log;
pub mod open;
mod output;
mod progress;
mod purge;
mod run;
mod search;
mod signal;
mod status;
mod sync;
mod tenure;
mod topic;
pub mod upkeep;

use std::process::ExitCode;

use cli::{Cli, Command, Common};
use config::{Config, Layers};
use exit::Exit;
use output::StdoutClosed;

/// Events are taken apart on one thread and dropped on another, which the allocator of the system is
/// slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Some batches of a consumer compute for a while: somebody must answer meanwhile.
const WORKERS_MIN: usize = 2;

/// Runs a command to its end and says how it ended.
pub fn execute(cli: Cli) -> ExitCode {
    let layers = cli.layers();
    let config = match layers.load() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return Exit::Usage.into();
        }
    };
    let ended = match runtime(&config) {
        Ok(runtime) => runtime.block_on(dispatch(cli, config, layers)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot start the runtime")),
    };
    let exit = ended.unwrap_or_else(|error| {
        // Who reads our output has seen enough: `export | head` is no failure.
        if error.is::<StdoutClosed>() {
            return Exit::Done;
        }
        eprintln!("error: {error:#}");
        Exit::Failed
    });
    exit.into()
}

/// A worker per core, so that who commits does not wait for its turn behind many who verify. Reads of an
/// embedded store hold a worker each: as many more as there can be at once, and the others go on meanwhile
/// without being told.
fn runtime(config: &Config) -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = match config.database {
        Some(_) => cores.max(WORKERS_MIN),
        None => cores + kukuri_store_sqlite::READS_MAX,
    };
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

async fn dispatch(cli: Cli, config: Config, layers: Layers) -> anyhow::Result<Exit> {
    let common = Common::new(&config, &cli.common);
    match cli.command {
        None | Some(Command::Run(_)) => run::run(&common, config, layers).await,
        Some(Command::Topic(command)) => topic::run(&common, &config, command).await,
        Some(Command::Gossip(command)) => gossip::command(&common, &config, command),
        Some(Command::Import(args)) => import::run(&common, &config, args).await,
        Some(Command::Export(args)) => export::run(&common, args).await,
        Some(Command::Feed(args)) => feed::run(&common, args).await,
        Some(Command::Doctor(args)) => doctor::run(&common, args).await,
        Some(Command::Backup { dir }) => backup::back_up(&common, &dir).await,
        Some(Command::Restore { dir }) => backup::restore(&common, &dir).await,
        Some(Command::Sync(args)) => sync::run(&common, &config, args).await,
        Some(Command::Purge(args)) => purge::run(&common, &config, args).await,
        Some(Command::Consumer(command)) => consumers::run(&common, &config, command).await,
        Some(Command::Status { json }) => status::run(&common, json).await,
        Some(Command::Config { example }) => show(&config, example),
    }
}

fn show(config: &Config, example: bool) -> anyhow::Result<Exit> {
    let text = if example { config::example() } else { config.masked().to_toml() };
    let mut out = output::Output::stdout();
    out.line(text.trim_end())?;
    out.flush()?;
    Ok(Exit::Done)
}
