//! Between ingest and its queues: remembers what passes, loses it, or holds it back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregator::MemoryBus;
use async_trait::async_trait;
use schema::ChangeEvent;
use store::bus::EventSink;

/// What becomes of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They go on.
    Through,
    /// They are lost: the queues are away.
    Lost,
    /// They are kept, for a test that delivers them as it likes.
    Held,
}

struct State {
    way: Way,
    seen: Vec<ChangeEvent>,
}

/// A sink in front of a process's queues.
pub struct Tap {
    bus: Arc<MemoryBus>,
    state: Mutex<State>,
}

impl Tap {
    /// Lets everything through.
    pub fn new(bus: Arc<MemoryBus>) -> Arc<Self> {
        Arc::new(Self { bus, state: Mutex::new(State { way: Way::Through, seen: Vec::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on.
    pub fn set(&self, way: Way) {
        self.lock().way = way;
    }

    /// Everything that was published so far, one event for each member, and forgets it.
    pub fn take(&self) -> Vec<ChangeEvent> {
        std::mem::take(&mut self.lock().seen)
    }
}

#[async_trait]
impl EventSink for Tap {
    async fn publish(&self, events: Vec<ChangeEvent>) {
        let mut state = self.lock();
        for event in &events {
            let one = |member: &schema::Member| ChangeEvent { members: vec![member.clone()], ..event.clone() };
            state.seen.extend(event.members.iter().map(one));
        }
        if state.way == Way::Through {
            events.into_iter().for_each(|event| self.bus.push(event));
        }
    }
}
