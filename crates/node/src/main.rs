use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    kukuri_node::execute(kukuri_node::cli::Cli::parse())
}
