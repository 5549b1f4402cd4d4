//! The one thread that writes: everything that reads before it writes is done in it, so nothing
//! needs a lock, and whatever waits in the queue shares one commit and one fsync.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    EmbeddedSettings,
    rows::Rows,
    txn::{Recent, Txn},
};
use crate::{
    clock::Stopwatch,
    engine::{StoreError, StoreResult},
};

/// A job weighs at least one permit, so this also bounds how many there are.
const PERMIT_BYTES: usize = 512;
/// How often a writer that waits for the background workers looks again.
const STALL_STEP: Duration = Duration::from_millis(2);

/// Plain running totals since opening.
#[derive(Debug, Default)]
pub struct Totals {
    pub queued: AtomicU64,
    pub groups: AtomicU64,
    pub durable_groups: AtomicU64,
    pub jobs: AtomicU64,
    pub rows: AtomicU64,
    pub durable_micros: AtomicU64,
    pub stalls: AtomicU64,
    /// Everything is durable and nothing more will be written.
    pub settled: AtomicBool,
}

/// Work for the writer's thread, with its answer.
trait Job: Send {
    fn durable(&self) -> bool;
    fn run(&mut self, txn: &mut Txn<'_>);
    /// Tells the caller, once the group is committed or failed.
    fn answer(self: Box<Self>, committed: &StoreResult<()>);
}

enum Message {
    Job(Box<dyn Job>),
    Close(oneshot::Sender<StoreResult<()>>),
}

struct Task<W, T> {
    work: Option<W>,
    durable: bool,
    result: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
    _place: Place,
}

/// A job's place in the queue, given back however the job ends.
struct Place {
    totals: Arc<Totals>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.totals.queued.fetch_sub(1, Relaxed);
    }
}

impl<W, T> Job for Task<W, T>
where
    W: FnOnce(&mut Txn<'_>) -> StoreResult<T> + Send,
    T: Send,
{
    fn durable(&self) -> bool {
        self.durable
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        let Some(work) = self.work.take() else { return };
        let result = work(txn);
        txn.end_job(result.is_ok());
        self.result = Some(result);
    }

    fn answer(self: Box<Self>, committed: &StoreResult<()>) {
        let Self { result, reply, _place: place, .. } = *self;
        let result = match (result, committed) {
            (_, Err(e)) => Err(e.clone()),
            (Some(result), Ok(())) => result,
            (None, Ok(())) => return,
        };
        drop(place);
        // A caller that no longer waits does not need the answer.
        let _ = reply.send(result);
    }
}

/// Hands jobs to the thread.
pub struct Writer {
    rows: Arc<Rows>,
    queue: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
    permits: usize,
    totals: Arc<Totals>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(rows: Arc<Rows>, settings: &EmbeddedSettings) -> std::io::Result<(Self, JoinHandle<()>)> {
        // Not bounded by itself: every job in it holds permits of `room`.
        let (queue, receiver) = mpsc::unbounded_channel();
        let permits = (settings.queue_bytes / PERMIT_BYTES).clamp(64, u32::MAX as usize >> 4);
        let totals = Arc::<Totals>::default();
        let thread = Thread {
            rows: rows.clone(),
            receiver,
            totals: totals.clone(),
            group_rows: settings.group_rows.max(1),
            group_bytes: settings.group_bytes.max(1),
        };
        let handle = std::thread::Builder::new().name("tally-writer".into()).spawn(move || thread.run())?;
        Ok((Self { rows, queue, room: Arc::new(Semaphore::new(permits)), permits, totals }, handle))
    }

    /// Runs `work` in the writer's thread and answers when its group is committed, durably where
    /// `durable`. Waits while the queue is full. `weight` is about what the job holds, in bytes.
    /// A caller that stops waiting does not stop the job.
    pub async fn call<T, W>(&self, durable: bool, weight: usize, work: W) -> StoreResult<T>
    where
        W: FnOnce(&mut Txn<'_>) -> StoreResult<T> + Send + 'static,
        T: Send + 'static,
    {
        self.rows.stop.check()?;
        let permits = (weight / PERMIT_BYTES + 1).min(self.permits);
        let permits = u32::try_from(permits).expect("clamped below u32::MAX when it was started");
        let room = self.room.clone().acquire_many_owned(permits).await;
        let permit = room.map_err(|_| self.gone())?;
        let (reply, answer) = oneshot::channel();
        self.totals.queued.fetch_add(1, Relaxed);
        let place = Place { totals: self.totals.clone(), _permit: permit };
        let task = Task { work: Some(work), durable, result: None, reply, _place: place };
        self.queue.send(Message::Job(Box::new(task))).map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Commits what is queued, makes all of it durable, and ends the thread. Later calls are
    /// answered [`StoreError::Stopped`].
    pub async fn close(&self) -> StoreResult<()> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Close(reply)).is_err() {
            return Ok(());
        }
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Lets the thread end as [`Self::close`] does, without waiting for it.
    pub fn hang_up(&self) {
        // A thread that is gone has nothing to end.
        let _ = self.queue.send(Message::Close(oneshot::channel().0));
    }

    /// Running totals.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    fn gone(&self) -> StoreError {
        self.rows.stop.because("its writer has ended")
    }
}

struct Thread {
    rows: Arc<Rows>,
    receiver: mpsc::UnboundedReceiver<Message>,
    totals: Arc<Totals>,
    group_rows: usize,
    group_bytes: usize,
}

/// Nobody may wait for a thread that died of a panic.
struct StopOnPanic(Arc<Rows>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.because("the writer failed");
        }
    }
}

impl Thread {
    fn run(mut self) {
        let _guard = StopOnPanic(self.rows.clone());
        let mut closing = Vec::new();
        let mut recent = Recent::default();
        while closing.is_empty() {
            let Some(first) = self.receiver.blocking_recv() else { break };
            self.group(first, &mut recent, &mut closing);
        }
        self.receiver.close();
        while let Ok(message) = self.receiver.try_recv() {
            self.group(message, &mut recent, &mut closing);
        }
        let settled = self.settle();
        self.totals.settled.store(settled.is_ok(), Relaxed);
        self.rows.stop.because("it is closed");
        for reply in closing {
            let _ = reply.send(settled.clone());
        }
    }

    /// Commits `first` together with what else is queued, up to the bounds of a group.
    fn group(&mut self, first: Message, recent: &mut Recent, closing: &mut Vec<oneshot::Sender<StoreResult<()>>>) {
        let mut jobs = Vec::new();
        let mut durable = false;
        let rows = self.rows.clone();
        let mut txn = Txn::new(&rows, recent);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Close(reply) => {
                    closing.push(reply);
                    break;
                }
                Message::Job(mut job) => {
                    if rows.stop.check().is_ok() {
                        job.run(&mut txn);
                    }
                    durable |= job.durable();
                    jobs.push(job);
                }
            }
            let full = txn.len() >= self.group_rows || txn.bytes() >= self.group_bytes || jobs.len() >= self.group_rows;
            next = if full { None } else { self.receiver.try_recv().ok() };
        }
        if jobs.is_empty() {
            return;
        }
        let count = jobs.len() as u64;
        let committed = self.commit(txn, durable);
        self.totals.jobs.fetch_add(count, Relaxed);
        for job in jobs {
            job.answer(&committed);
        }
    }

    fn commit(&self, txn: Txn<'_>, durable: bool) -> StoreResult<()> {
        self.wait_for_workers()?;
        let bytes = txn.bytes() as u64;
        let watch = Stopwatch::start();
        let rows = txn.commit(durable)?;
        if durable {
            let micros = u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.totals.durable_groups.fetch_add(1, Relaxed);
            self.totals.durable_micros.fetch_add(micros, Relaxed);
        }
        self.totals.groups.fetch_add(1, Relaxed);
        self.totals.rows.fetch_add(rows, Relaxed);
        // The group is committed: an error here is for those who come later.
        if let Err(error) = self.rows.wrote(bytes) {
            tracing::error!(%error, "memtables could not be rotated");
        }
        Ok(())
    }

    fn wait_for_workers(&self) -> StoreResult<()> {
        self.rows.stop.check()?;
        if !self.rows.behind() {
            return Ok(());
        }
        self.totals.stalls.fetch_add(1, Relaxed);
        while self.rows.behind() {
            self.rows.probe()?;
            std::thread::sleep(STALL_STEP);
        }
        Ok(())
    }

    /// Writes memtables out, so that the next process opens quickly.
    fn settle(&self) -> StoreResult<()> {
        self.rows.settle()?;
        while self.rows.unsettled() {
            self.rows.probe()?;
            std::thread::sleep(STALL_STEP);
        }
        Ok(())
    }
}
