//! Logs of a running node, on stderr: what happened and how often, and never what was said, by whom
//! or from where.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::config::{LogFormat, LogLevel, LogSection};

/// Begins logging. A program that has begun before goes on as it was.
pub fn start(section: &LogSection) {
    let level = match section.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    // Libraries do not know what must not be told: only their errors are of use.
    let targets = Targets::new().with_default(LevelFilter::ERROR).with_target("kukuri", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match section.format {
        LogFormat::Text => lines.with_target(false).with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    let _ = tracing_subscriber::registry().with(lines.with_filter(targets)).try_init();
}
