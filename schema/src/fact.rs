//! A fact is a few registers, each last-writer-wins by its own version (design, section 3).

use serde::{Deserialize, Serialize};

use crate::{Choice, Micros};

/// The member's own register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ChoiceRegister {
    /// Orders writes to this register; 0: never written.
    pub version: Micros,
    /// What the member picked; 0: withdrawn.
    pub choice: Choice,
    /// When the choice last changed; kept when the same choice is written again.
    pub since: Micros,
}

/// A register that hides: one for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct HideRegister {
    /// Orders writes to this register; 0: never written.
    pub version: Micros,
    /// 1: hidden for this reason, 0: not.
    pub value: u8,
}

/// Why an operator hides a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The content was removed.
    Moderation,
    /// The account is suspended.
    Suspension,
    /// The like was bought.
    Fraud,
}

impl Reason {
    /// All reasons, in storage order.
    pub const ALL: [Self; 3] = [Self::Moderation, Self::Suspension, Self::Fraud];

    /// Lower-case name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moderation => "moderation",
            Self::Suspension => "suspension",
            Self::Fraud => "fraud",
        }
    }
}

/// Which register a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Register {
    /// The member's choice.
    Choice,
    /// The register of one reason to hide.
    Hide(Reason),
}

/// All registers of one (target, kind, member). The default is "never written".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Fact {
    /// The member's choice.
    pub choice: ChoiceRegister,
    /// The three registers that hide, in the order of [`Reason::ALL`].
    pub hides: [HideRegister; 3],
}

impl ChoiceRegister {
    /// The newer of two copies; at equal versions the larger of each field.
    pub fn join(self, other: Self) -> Self {
        match self.version.cmp(&other.version) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => {
                Self { version: self.version, choice: self.choice.max(other.choice), since: self.since.max(other.since) }
            }
        }
    }
}

impl HideRegister {
    /// The newer of two copies; at equal versions the larger value.
    pub fn join(self, other: Self) -> Self {
        if (other.version, other.value) > (self.version, self.value) { other } else { self }
    }
}

impl Fact {
    /// A fact in which only `register` is written. `since` is used for the choice only.
    pub fn of(register: Register, version: Micros, value: u8, since: Micros) -> Self {
        let mut fact = Self::default();
        match register {
            Register::Choice => fact.choice = ChoiceRegister { version, choice: value, since },
            Register::Hide(reason) => fact.hides[reason as usize] = HideRegister { version, value },
        }
        fact
    }

    /// Register by register, the one with the larger version: commutative, associative, idempotent.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let mut hides = self.hides;
        for (mine, theirs) in hides.iter_mut().zip(other.hides) {
            *mine = mine.join(theirs);
        }
        Self { choice: self.choice.join(other.choice), hides }
    }

    /// What is counted: the choice if nothing hides it, else 0.
    pub fn counted(&self) -> Choice {
        if self.hides.iter().any(|h| h.value != 0) { 0 } else { self.choice.choice }
    }

    /// Reasons that hide this fact now.
    pub fn hidden(&self) -> impl Iterator<Item = Reason> + '_ {
        Reason::ALL.into_iter().filter(|&r| self.hides[r as usize].value != 0)
    }

    /// (version, value) of one register.
    pub fn register(&self, register: Register) -> (Micros, u8) {
        match register {
            Register::Choice => (self.choice.version, self.choice.choice),
            Register::Hide(reason) => {
                let hide = self.hides[reason as usize];
                (hide.version, hide.value)
            }
        }
    }

    /// Largest version of any register; 0 where nothing was ever written.
    pub fn newest(&self) -> Micros {
        self.hides.iter().map(|h| h.version).fold(self.choice.version, Micros::max)
    }

    /// `sum over registers of 256 * version + value`: grows strictly whenever a register grows
    /// in (version, value). Orders the counter rows of small targets (design, section 4).
    pub fn rank(&self) -> u128 {
        let one = |version: Micros, value: u8| 256 * u128::from(version.max(0).unsigned_abs()) + u128::from(value);
        self.hides.iter().fold(one(self.choice.version, self.choice.choice), |sum, h| sum + one(h.version, h.value))
    }
}
