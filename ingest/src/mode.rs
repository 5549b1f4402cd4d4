//! What an operator lets in (design, section 12).

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU8, Ordering},
};

use serde::{Deserialize, Serialize};

/// What is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Everything.
    #[default]
    Normal,
    /// Change events are not published, so that the sweep counts later; bulk writes are refused.
    Shed,
    /// Writes are refused.
    ReadOnly,
    /// Everything is refused but health and the operators' routes.
    Closed,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Shed, Self::ReadOnly, Self::Closed];

    /// Name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Shed => "shed",
            Self::ReadOnly => "read-only",
            Self::Closed => "closed",
        }
    }
}

/// The mode of this process, and why. Cheap to clone; one for the whole process.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    mode: Arc<AtomicU8>,
    why: Arc<Mutex<String>>,
}

impl Gate {
    /// The mode now.
    pub fn mode(&self) -> Mode {
        Mode::ALL[usize::from(self.mode.load(Ordering::Relaxed))]
    }

    /// Changes the mode; `why` is told to whoever is refused.
    pub fn set(&self, mode: Mode, why: &str) {
        why.clone_into(&mut self.why.lock().unwrap_or_else(PoisonError::into_inner));
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Whether a write may pass; the error says why not.
    pub fn admits_write(&self, bulk: bool) -> Result<(), Refused> {
        match self.mode() {
            Mode::Normal => Ok(()),
            Mode::Shed if !bulk => Ok(()),
            mode => Err(self.refused(mode)),
        }
    }

    /// Whether anything but health and the operators' routes may pass.
    pub fn admits(&self) -> Result<(), Refused> {
        match self.mode() {
            Mode::Closed => Err(self.refused(Mode::Closed)),
            _ => Ok(()),
        }
    }

    fn refused(&self, mode: Mode) -> Refused {
        Refused { mode, why: self.why.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }
}

/// The mode does not let this in; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an operator has set this server to {}{}{why}; try again later", mode.name(), if why.is_empty() { "" } else { ": " })]
pub struct Refused {
    /// The mode.
    pub mode: Mode,
    /// The operator's reason.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_lets_in_what_it_says() {
        let gate = Gate::default();
        for (mode, reads, writes, bulk) in [
            (Mode::Normal, true, true, true),
            (Mode::Shed, true, true, false),
            (Mode::ReadOnly, true, false, false),
            (Mode::Closed, false, false, false),
        ] {
            gate.set(mode, "disk swap");
            let told = (gate.admits().is_ok(), gate.admits_write(false).is_ok(), gate.admits_write(true).is_ok());
            assert_eq!((gate.mode(), told), (mode, (reads, writes, bulk)));
        }
        assert!(gate.admits().unwrap_err().to_string().contains("closed: disk swap"));
    }
}
