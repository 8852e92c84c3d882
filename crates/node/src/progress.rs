//! Bars on stderr. They hide themselves where stderr is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// Work of a known number of bytes.
pub fn bytes(total: u64) -> ProgressBar {
    let template =
        "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg} {eta} left";
    styled(ProgressBar::new(total), template)
}

/// Work of a known number of things.
pub fn count(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} {msg} {per_sec} {eta} left")
}

/// Work of unknown size.
pub fn spinner() -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {elapsed} {msg}");
    bar.enable_steady_tick(TICK);
    bar
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates above are valid");
    bar.with_style(style)
}
