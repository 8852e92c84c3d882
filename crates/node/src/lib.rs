//! The community node: configuration, wiring and commands. Must not know rules, SQL or wire formats:
//! those belong to the crates it puts together.
//!
//! What a user asked for goes to stdout, as JSON where programs read it; everything else goes to
//! stderr. Every error names the object at fault and the next step.

pub mod cli;
mod clock;
pub mod doctor;
mod exit;
mod export;
mod feed;
pub mod import;
pub mod open;
mod output;
mod progress;
mod run;
mod signal;
mod topic;

use std::process::ExitCode;

use cli::{Cli, Command};
use exit::Exit;
use output::StdoutClosed;

/// Events are taken apart on one thread and dropped on another, which the allocator of the system is
/// slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a command to its end and says how it ended.
pub fn execute(cli: Cli) -> ExitCode {
    if let Err(problem) = cli.common.check() {
        eprintln!("error: {problem}");
        return Exit::Usage.into();
    }
    let ended = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(dispatch(cli)),
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

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let common = cli.common;
    match cli.command.unwrap_or_default() {
        Command::Run(args) => run::run(&common, args).await,
        Command::Topic(command) => topic::run(&common, command).await,
        Command::Import(args) => import::run(&common, args).await,
        Command::Export(args) => export::run(&common, args).await,
        Command::Feed(args) => feed::run(&common, args).await,
        Command::Doctor(args) => doctor::run(&common, args).await,
    }
}
