//! Gathers requests into micro-batches: takes what is queued, without a linger, and lets the next
//! batch fill while earlier ones are on their way.
//!
//! Requests of one (target, kind, member) go one after another. A double click joins a request that
//! is still *waiting*; never one on its way, whose version may already be older than a write that
//! another process has answered since.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use schema::{ChangeEvent, FactKey, Micros, ShardKey, TRACE_LOG, TraceId, add_trace};
use store::{
    Protocol,
    bus::EventSink,
    protocol::{EntryPlace, Lane, Outcome, WriteRequest, Written},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use tokio_util::sync::CancellationToken;

use crate::{Bar, Gate, Mode, admission::Admission, metrics::IngestMetrics, settings::IngestSettings};

/// What became of one request, or what barred it.
pub(crate) type Answer = Result<Written, Bar>;

/// Most traces of one micro-batch with a log line each.
const TRACES: usize = 16;
/// Batches on their way beside which another begins before it is full.
const PARTIAL: usize = 2;

/// One request on its way to the batcher.
pub(crate) struct Job {
    pub request: WriteRequest,
    pub trace: Option<TraceId>,
    pub reply: oneshot::Sender<Answer>,
}

/// A write and everybody who waits for it.
struct Entry {
    request: WriteRequest,
    /// Of those who wait, as many as travel together; nothing is allocated where nobody is followed.
    traces: Vec<TraceId>,
    replies: Vec<oneshot::Sender<Answer>>,
}

impl Entry {
    /// Whether `request` asks for the very same, so that one write serves both.
    fn serves(&self, request: &WriteRequest) -> bool {
        // Imports carry a time each, so they are never the same by accident.
        self.request.at.is_none() && self.request == *request
    }
}

/// What is known of one (target, kind, member) with requests under way.
#[derive(Default)]
struct Line {
    on_its_way: bool,
    waiting: VecDeque<Entry>,
}

/// What a micro-batch needs to be written. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writing {
    pub protocol: Protocol,
    pub lane: Arc<Lane>,
    pub sink: Arc<dyn EventSink>,
    pub admission: Admission,
    pub gate: Gate,
}

pub(crate) struct Batcher {
    writing: Writing,
    settings: IngestSettings,
    metrics: IngestMetrics,
    lines: HashMap<FactKey, Line>,
    /// Lines whose first entry can go now.
    ready: VecDeque<FactKey>,
    batches: JoinSet<Vec<FactKey>>,
    /// Requests taken out of the queue whose write has not begun.
    held: usize,
}

impl Batcher {
    pub fn new(writing: Writing, settings: IngestSettings, metrics: IngestMetrics) -> Self {
        let settings = IngestSettings {
            queue: settings.queue.max(1),
            batch: settings.batch.max(1),
            batches: settings.batches.max(1),
            ..settings
        };
        let (lines, ready, batches) = (HashMap::new(), VecDeque::new(), JoinSet::new());
        Self { writing, settings, metrics, lines, ready, batches, held: 0 }
    }

    /// Runs until `stop`, and until everything that was queued by then is answered.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Job>, stop: CancellationToken) {
        let mut open = true;
        let mut stopping = false;
        while open || !self.batches.is_empty() {
            // Requests that are taken out of the queue are bounded too: the rest stays in it.
            let room = self.held < self.settings.queue;
            tokio::select! {
                biased;
                Some(done) = self.batches.join_next() => match done {
                    Ok(keys) => self.finish(keys),
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
                job = queue.recv(), if open && room => match job {
                    Some(job) => {
                        self.take(job);
                        for _ in 1..self.settings.batch {
                            let Ok(job) = queue.try_recv() else { break };
                            self.take(job);
                        }
                    }
                    None => open = false,
                },
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    queue.close(); // What is in it is still received.
                }
            }
            self.metrics.queue.set(i64::try_from(queue.len() + self.held).unwrap_or(i64::MAX));
            self.dispatch();
        }
    }

    fn take(&mut self, job: Job) {
        let Job { request, trace, reply } = job;
        if reply.is_closed() {
            return; // Nobody waits any more and nothing was begun: nothing was promised.
        }
        self.held += 1;
        self.metrics.traced.inc_by(u64::from(trace.is_some()));
        let key = request.key.clone();
        let line = self.lines.entry(key.clone()).or_default();
        if let Some(last) = line.waiting.back_mut().filter(|e| e.serves(&request)) {
            last.replies.push(reply);
            trace.map(|id| add_trace(&mut last.traces, id));
            self.metrics.shared.inc();
            return;
        }
        line.waiting.push_back(Entry { request, traces: trace.into_iter().collect(), replies: vec![reply] });
        if !line.on_its_way && line.waiting.len() == 1 {
            self.ready.push_back(key);
        }
    }

    /// One batch on its way to the store's writer and one behind it keep the writer busy: a further one
    /// begins only if it is full. Until then requests gather, and share what a batch costs.
    fn may_begin(&self) -> bool {
        let on_their_way = self.batches.len();
        !self.ready.is_empty()
            && on_their_way < self.settings.batches
            && (on_their_way < PARTIAL || self.ready.len() >= self.settings.batch)
    }

    fn dispatch(&mut self) {
        while self.may_begin() {
            let mut entries = Vec::new();
            while entries.len() < self.settings.batch {
                let Some(key) = self.ready.pop_front() else { break };
                let Some(line) = self.lines.get_mut(&key) else { continue };
                let Some(entry) = line.waiting.pop_front() else { continue };
                line.on_its_way = true;
                self.held -= entry.replies.len();
                entries.push(entry);
            }
            self.metrics.batch.observe(entries.len() as f64);
            let writing = self.writing.clone();
            // A task of its own: a caller that goes away does not stop a write that was begun.
            self.batches.spawn(async move { write(&writing, entries).await });
        }
    }

    fn finish(&mut self, keys: Vec<FactKey>) {
        for key in keys {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            line.on_its_way = false;
            if line.waiting.is_empty() {
                self.lines.remove(&key);
            } else {
                self.ready.push_back(key);
            }
        }
    }
}

/// Asks who may, writes, answers, publishes, in that order. All keys, for the batcher to go on with.
async fn write(writing: &Writing, entries: Vec<Entry>) -> Vec<FactKey> {
    let Writing { protocol, lane, sink, admission, gate } = writing;
    let (mut requests, (mut traces, mut replies)): (Vec<WriteRequest>, (Vec<_>, Vec<_>)) =
        entries.into_iter().map(|e| (e.request, (e.traces, e.replies))).unzip();
    let mut refused = Vec::new();
    match admission.bars(&requests).await {
        Ok(bars) => {
            // From the back, so that places before stay what they are.
            for (i, bar) in bars.into_iter().enumerate().rev() {
                let Some(bar) = bar else { continue };
                refused.push(requests.remove(i).key);
                traces.remove(i);
                answer(replies.remove(i), &Err(bar));
            }
        }
        Err(error) => {
            let failed = Written::failed(Outcome::Unavailable(error.to_string()));
            replies.into_iter().for_each(|replies| answer(replies, &Ok(failed.clone())));
            return requests.into_iter().map(|r| r.key).collect();
        }
    }
    if requests.is_empty() {
        return refused;
    }
    let (written, completion) = protocol.write(lane, &requests).await;
    let now = protocol.clock().now();
    let mut keys: Vec<FactKey> = requests.into_iter().map(|r| r.key).collect();
    // Under `shed` the sweep counts what was written.
    let events = if gate.mode() == Mode::Shed { Vec::new() } else { events(&keys, &written, &traces, now) };
    follow(&written, &traces);
    for (written, replies) in written.into_iter().zip(replies) {
        answer(replies, &Ok(written));
    }
    if !events.is_empty() {
        sink.publish(events).await;
    }
    if let Some(completion) = completion {
        protocol.complete(completion).await;
    }
    keys.append(&mut refused);
    keys
}

fn answer(replies: Vec<oneshot::Sender<Answer>>, answer: &Answer) {
    for reply in replies {
        let _ = reply.send(answer.clone()); // A caller that has gone needs no answer.
    }
}

/// One event for each shard that was written to.
fn events(keys: &[FactKey], written: &[Written], traces: &[Vec<TraceId>], at: Micros) -> Vec<ChangeEvent> {
    let mut by_shard: HashMap<ShardKey, ChangeEvent> = HashMap::new();
    for ((key, written), traces) in keys.iter().zip(written).zip(traces).filter(|((_, w), _)| w.landed()) {
        let shard = key.shard(written.shard);
        let event =
            by_shard.entry(shard.clone()).or_insert_with(|| ChangeEvent { shard, members: Vec::new(), at, traces: Vec::new() });
        event.members.push(key.member.clone());
        for &id in traces {
            add_trace(&mut event.traces, id);
        }
    }
    by_shard.into_values().collect()
}

/// A line for each trace: where its intents stand in the journal, by which dead letters name them.
fn follow(written: &[Written], traces: &[Vec<TraceId>]) {
    let mut lines: Vec<(TraceId, Option<EntryPlace>, usize)> = Vec::new();
    for (id, written) in traces.iter().zip(written).flat_map(|(ids, written)| ids.iter().map(move |&id| (id, written))) {
        match lines.iter().position(|(known, ..)| *known == id) {
            Some(i) => {
                lines[i].1 = lines[i].1.or(written.journalled);
                lines[i].2 += 1;
            }
            None if lines.len() < TRACES => lines.push((id, written.journalled, 1)),
            None => {}
        }
    }
    for (id, place, writes) in lines {
        match place {
            Some(EntryPlace { lane, slot, id: entry }) => {
                tracing::debug!(target: TRACE_LOG, trace_id = %id, %lane, slot, entry, writes, "journalled");
            }
            None => tracing::debug!(target: TRACE_LOG, trace_id = %id, writes, "not journalled"),
        }
    }
}
