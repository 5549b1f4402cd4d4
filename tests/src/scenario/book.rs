//! What was asked and what was answered, for the oracle that holds the store to its answers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use schema::{Fact, FactKey, Micros, Register};
use store::protocol::{Outcome, WriteRequest, Written};

/// What is known of one register of one fact.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The newest (version, value) that was promised to stand unless a newer one comes.
    promised: Option<(Micros, u8)>,
    /// The newest version that was answered as durable.
    durable: Micros,
    /// Requests by value whose end nobody told: each may have happened or not, or yet happen.
    doubt: BTreeMap<u8, usize>,
}

/// A request under way.
#[derive(Debug)]
#[must_use = "its answer is to be booked"]
pub struct Ticket {
    request: WriteRequest,
    /// What was durable before it began.
    floor: Micros,
}

/// All answers of a scenario, whichever process gave them.
#[derive(Debug, Default)]
pub struct Book(Mutex<BTreeMap<(FactKey, Register), Known>>);

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(FactKey, Register), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is about to be sent. Until it is answered its effect is in doubt.
    pub fn begin(&self, request: &WriteRequest) -> Ticket {
        let mut all = self.lock();
        let known = all.entry((request.key.clone(), request.register)).or_default();
        *known.doubt.entry(request.value).or_default() += 1;
        Ticket { request: request.clone(), floor: known.durable }
    }

    /// Books an answer.
    ///
    /// # Panics
    /// Where a durable answer has a version that does not beat those answered before it began.
    pub fn end(&self, ticket: Ticket, written: &Written) {
        let Ticket { request, floor } = ticket;
        let mut all = self.lock();
        let known = all.entry((request.key.clone(), request.register)).or_default();
        let settled = match &written.outcome {
            Outcome::Applied | Outcome::Unchanged => {
                assert!(
                    request.at.is_some() || written.version > floor,
                    "O4: {request:?} began after version {floor} was answered, and got {written:?}"
                );
                known.durable = known.durable.max(written.version);
                known.promised = known.promised.max(Some((written.version, request.value)));
                true
            }
            Outcome::Accepted => {
                known.promised = known.promised.max(Some((written.version, request.value)));
                true
            }
            Outcome::Superseded | Outcome::Unavailable(_) | Outcome::Refused(_) => true,
            Outcome::Unknown(_) => false,
        };
        if settled && let Some(n) = known.doubt.get_mut(&request.value) {
            *n -= 1;
        }
    }

    /// O4: every promise is kept, and nothing is there that nobody asked for.
    ///
    /// # Panics
    /// Where it is not so.
    pub fn check(&self, fact_of: impl Fn(&FactKey) -> Fact) {
        for ((key, register), known) in &*self.lock() {
            let (version, value) = fact_of(key).register(*register);
            let asked = known.doubt.get(&value).is_some_and(|&n| n > 0);
            let fits = match known.promised {
                Some(promised) => (version, value) == promised || ((version, value) > promised && asked),
                None => version == 0 || asked,
            };
            assert!(fits, "O4: {key:?} {register:?} is {value} at {version}, answered was {known:?}");
        }
    }

    /// How many registers were asked for.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
