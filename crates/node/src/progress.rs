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

const COUNT: &str = "{bar:30} {human_pos}/{human_len} {msg} {per_sec} {eta} left";

/// Work of a known number of things.
pub fn count(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), COUNT)
}

/// Work of unknown size turns out to be of so many things.
pub fn turns_out(bar: &ProgressBar, total: u64) {
    bar.set_style(style(COUNT));
    bar.set_length(total);
    bar.reset();
}

/// The size of what is done is of no more use.
pub fn turns_vague(bar: &ProgressBar) {
    bar.set_style(style(SPINNER));
}

const SPINNER: &str = "{spinner} {elapsed} {msg}";

/// Work of unknown size.
pub fn spinner() -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), SPINNER);
    bar.enable_steady_tick(TICK);
    bar
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(style(template))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are valid")
}
