//! How a command ends when it does not end well.

use std::process::ExitCode;

/// Everything is as asked.
pub const OK: u8 = 0;
/// The answer is no: drift was found, rows were refused.
pub const NEGATIVE: u8 = 1;
/// The command line or the configuration is at fault.
pub const USAGE: u8 = 2;
/// A server, file or data directory cannot be reached, opened or used.
pub const UNREACHABLE: u8 = 3;
/// A bug in Tally.
pub const INTERNAL: u8 = 4;

/// An exit code and one line that says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The process's exit code.
    pub code: u8,
    /// One line for people.
    pub message: String,
}

impl Failure {
    /// The answer is no.
    pub fn negative(message: impl Into<String>) -> Self {
        Self { code: NEGATIVE, message: message.into() }
    }

    /// The command line or the configuration is at fault.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }

    /// Something outside cannot be reached or used.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self { code: UNREACHABLE, message: message.into() }
    }

    /// The exit code for the system.
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// Ends the process at the first panic of any thread, with one line instead of a backtrace: a
/// process with a dead task would look alive and count nothing. Every answered change is durable.
pub fn end_at_first_panic() {
    std::panic::set_hook(Box::new(|info| {
        if store::embedded::opening() {
            return; // Damaged files; the store catches it and says which directory.
        }
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        eprintln!("tally: stopped by a bug{place}: {}; please report this line", text.unwrap_or("no message"));
        std::process::exit(i32::from(INTERNAL));
    }));
}
