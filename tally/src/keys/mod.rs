//! Keys of callers: made once, stored as hashes, read again whenever the file changes.

mod command;
mod file;
mod ring;
mod token;

pub use command::run;
pub use ring::{KeyChanges, KeyRing};

/// A text that is never shown: not in logs, messages or `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for the one place that sends or prints it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_to_nobody_who_does_not_ask_for_it() {
        let secret = Secret::new("hunter2");
        assert_eq!((format!("{secret}"), format!("{secret:?}")), ("(hidden)".to_owned(), "(hidden)".to_owned()));
        assert!(!format!("{:?}", Some(&secret)).contains("hunter"));
        assert_eq!(secret.reveal(), "hunter2");
    }
}
