//! A bar on the terminal, with the time that is left.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Watch;
use crate::host;

/// Hidden where standard error is not a terminal, or not ours.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new() -> Bar {
        let target = match host::is_there() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{spinner} {elapsed} {msg} {wide_bar} {pos}/{len}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }
}

impl Default for Bar {
    fn default() -> Bar {
        Bar::new()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Watch for Bar {
    fn begin(&self, phase: &str, steps: usize) {
        self.0.reset();
        self.0.set_length(steps as u64);
        self.0.set_message(phase.to_owned());
    }

    fn step(&self) {
        self.0.inc(1);
    }
}
