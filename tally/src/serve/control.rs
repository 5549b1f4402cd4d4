//! Modes and switches that an operator sets while the server runs; stored, so that they survive a
//! restart.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ingest::{Gate, Mode};
use prometheus::{IntGaugeVec, Opts, Registry};
use schema::Micros;
use serde::{Deserialize, Serialize};
use store::{Protocol, StoreError, StoreResult, switch::Switch};

const KEY: &str = "controls";

/// A loop that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The loop that counts what is published.
    Aggregator,
    /// The loop that counts what the journal holds.
    Sweep,
    /// Rebuilds.
    Rebuild,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aggregator, Self::Sweep, Self::Rebuild];

    /// Name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregator => "aggregator",
            Self::Sweep => "sweep",
            Self::Rebuild => "rebuild",
        }
    }
}

/// A loop that is paused, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Which.
    pub part: Part,
    /// The operator's reason.
    pub why: String,
    /// Since when, in store time.
    #[serde(with = "micros_text")]
    pub since: Micros,
}

/// What is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Controls {
    /// What is let in.
    pub mode: Mode,
    /// Why; empty where it was never set.
    #[serde(default)]
    pub why: String,
    /// Since when, in store time.
    #[serde(default, with = "micros_option")]
    pub since: Option<Micros>,
    /// What is paused.
    #[serde(default)]
    pub paused: Vec<Paused>,
}

/// Applies what is set to this process.
pub struct Control {
    protocol: Protocol,
    gate: Gate,
    switches: [Switch; Part::ALL.len()],
    controls: Mutex<Controls>,
    /// Changes go one after another.
    changing: tokio::sync::Mutex<()>,
    modes: IntGaugeVec,
    pauses: IntGaugeVec,
}

impl Control {
    /// Loads what is stored and applies it; `switches` pause the parts, in their order.
    pub async fn load(protocol: Protocol, gate: Gate, switches: [Switch; Part::ALL.len()]) -> StoreResult<Arc<Self>> {
        let stored = protocol.engine().get_meta(KEY).await?;
        let read = |bytes: Vec<u8>| serde_json::from_slice(&bytes).map_err(|e| StoreError::Damaged(format!("{KEY}: {e}")));
        let controls = stored.map(read).transpose()?.unwrap_or_default();
        let gauges = |name: &str, help: &str, label: &str| {
            IntGaugeVec::new(Opts::new(name, help), &[label]).expect("constant names are valid")
        };
        let modes = gauges("tally_mode", "1 for the mode that is set, 0 for the others", "mode");
        let pauses = gauges("tally_paused", "1 for a loop that an operator has paused", "part");
        let (controls, changing) = (Mutex::new(controls), tokio::sync::Mutex::default());
        let control = Self { protocol, gate, switches, controls, changing, modes, pauses };
        control.apply(&control.now());
        Ok(Arc::new(control))
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.modes.clone()))?;
        registry.register(Box::new(self.pauses.clone()))
    }

    /// What is set now.
    pub fn now(&self) -> Controls {
        self.lock().clone()
    }

    /// Stores and applies what `change` makes of what is set. A failed store changes nothing.
    pub async fn change(&self, change: impl FnOnce(&mut Controls, Micros) + Send) -> StoreResult<Controls> {
        let _turn = self.changing.lock().await;
        let mut next = self.now();
        change(&mut next, self.protocol.clock().now());
        let bytes = serde_json::to_vec(&next).expect("texts and numbers always serialise");
        self.protocol.engine().put_meta(KEY, &bytes).await?;
        self.apply(&next);
        self.lock().clone_from(&next);
        Ok(next)
    }

    fn apply(&self, controls: &Controls) {
        self.gate.set(controls.mode, &controls.why);
        for mode in Mode::ALL {
            self.modes.with_label_values(&[mode.name()]).set(i64::from(mode == controls.mode));
        }
        for (part, switch) in Part::ALL.into_iter().zip(&self.switches) {
            let paused = controls.paused.iter().any(|p| p.part == part);
            switch.set(paused);
            self.pauses.with_label_values(&[part.name()]).set(i64::from(paused));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod micros_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(at: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod micros_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(at: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        at.map(|at| at.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use store::{
        Settings,
        clock::ManualClock,
        memory::{Faults, Memory},
    };

    use super::*;

    #[tokio::test]
    async fn what_is_set_is_applied_and_survives_a_restart() {
        let engine = Arc::new(Memory::new(1, true, Faults::none()));
        let protocol = Protocol::new(engine, Arc::new(ManualClock::starting_at(5)), Settings::default());
        for restart in 0..3 {
            let (gate, switches): (Gate, [Switch; 3]) = Default::default();
            let control = Control::load(protocol.clone(), gate.clone(), switches.clone()).await.unwrap();
            let on = switches.each_ref().map(Switch::is_on);
            if restart == 0 {
                assert_eq!((control.now(), gate.mode(), on), (Controls::default(), Mode::Normal, [false; 3]));
                let paused = Paused { part: Part::Sweep, why: "disk".into(), since: 7 };
                let change = |controls: &mut Controls, now| {
                    (controls.mode, controls.why, controls.since) = (Mode::ReadOnly, "disk".into(), Some(now));
                    controls.paused.push(paused);
                };
                control.change(change).await.unwrap();
            } else {
                assert_eq!((control.now().since, gate.mode(), on), (Some(5), Mode::ReadOnly, [false, true, false]));
                assert_eq!(control.modes.with_label_values(&["read-only"]).get(), 1);
            }
        }
    }
}
