//! How far long work is: a bar on a terminal, elsewhere a plain line now and then; always on standard
//! error, so that results can be piped.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use store::clock::Stopwatch;

/// Time between two plain lines, and until the first.
const LINE: Duration = Duration::from_secs(5);

/// Progress as it is shown.
pub struct Shown {
    bar: ProgressBar,
    line: Stopwatch,
}

impl Shown {
    /// Of work of this size, where it is known before.
    pub fn new(total: Option<u64>) -> Self {
        let bar = match (std::io::stderr().is_terminal(), total) {
            (false, _) => ProgressBar::hidden(),
            (true, Some(total)) => ProgressBar::new(total),
            (true, None) => ProgressBar::new_spinner(),
        };
        let template = match total {
            Some(_) => "{bar:32} {percent:>3}%  {msg}  ETA {eta}",
            None => "{spinner} {msg}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("a constant template"));
        bar.set_length(total.unwrap_or(0).max(1));
        Self { bar, line: Stopwatch::start() }
    }

    /// So much is done; `text` says of what.
    pub fn update(&mut self, done: u64, text: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_position(done);
            self.bar.set_message(text());
        } else if self.line.elapsed() >= LINE {
            self.line = Stopwatch::start();
            eprintln!("{}", text());
        }
    }

    /// The size, where it is known only now.
    pub fn size(&self, total: u64) {
        self.bar.set_length(total.max(1));
    }

    /// Takes the bar away; so does dropping it.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.end();
    }
}
