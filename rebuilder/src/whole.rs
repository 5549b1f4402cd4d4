//! Everything, or one part of the key space: slices side by side on all cores, leased where the run
//! repairs, then the per-user index.

use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{TryStreamExt, future::BoxFuture, stream::FuturesUnordered};
use schema::Micros;
use store::{StoreError, StoreResult, engine::Slice};

use crate::{
    join::{UserCheck, add_facts, differing_facts},
    lease::{Claim, Leases},
    scope::PARTS,
    shared::Shared,
    slice::{Index, SliceCheck},
    sums::Sums,
};

/// Slices of one part.
const SLICES_OF_A_PART: u32 = 8;
/// Pause before asking again for slices that others hold.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Checks the whole key space. Store time as of which all of it is verified.
pub(crate) async fn check_all(shared: &Arc<Shared>, leases: Option<Arc<Leases>>) -> StoreResult<Micros> {
    let of = shared.settings.slices.max(1);
    shared.progress.slices.store(2 * u64::from(of), Ordering::Relaxed);
    let sums = Arc::new(Sums::new(shared.settings.classes, shared.seed()));
    note_resumed(shared, leases.as_deref());
    each_slice(shared, leases.clone(), 0..of, true, {
        let sums = sums.clone();
        move |shared, index| {
            let sums = sums.clone();
            Box::pin(async move { SliceCheck::new(&shared, Slice { index, of }, Index::Sums(&sums)).run().await })
        }
    })
    .await?;
    note_shared(shared, leases.as_deref(), of);
    let started = leases.as_ref().map_or_else(|| shared.report().started, |l| l.round().started);
    // The index of all users is one more slice: it wants the sums of all facts in one place.
    each_slice(shared, leases.clone(), of..of + 1, false, move |shared, _| {
        let (sums, leases) = (sums.clone(), leases.clone());
        Box::pin(async move { index_of_all(&shared, sums, leases, of).await })
    })
    .await?;
    Ok(started)
}

/// Checks one part of the key space, targets and users, the index row by row.
pub(crate) async fn check_part(shared: &Arc<Shared>, leases: Option<Arc<Leases>>, part: u32) -> StoreResult<Micros> {
    let (of, first) = (PARTS * SLICES_OF_A_PART, part * SLICES_OF_A_PART);
    shared.progress.slices.store(u64::from(SLICES_OF_A_PART), Ordering::Relaxed);
    note_resumed(shared, leases.as_deref());
    each_slice(shared, leases.clone(), 0..SLICES_OF_A_PART, true, move |shared, n| {
        Box::pin(async move {
            let slice = Slice { index: first + n, of };
            SliceCheck::new(&shared, slice, Index::Rows).run().await?;
            UserCheck::new(&shared, slice).row_by_row(None).await
        })
    })
    .await?;
    note_shared(shared, leases.as_deref(), SLICES_OF_A_PART);
    Ok(leases.map_or_else(|| shared.report().started, |l| l.round().started))
}

/// Slices that [`check_part`] cuts a part into.
pub(crate) fn slices_of_a_part() -> u32 {
    SLICES_OF_A_PART
}

fn note_resumed(shared: &Shared, leases: Option<&Leases>) {
    let resumed = leases.map_or(0, |l| l.resumed);
    shared.progress.slices_done.store(u64::from(resumed), Ordering::Relaxed);
    shared.note(|r| r.resumed_slices = resumed);
}

fn note_shared(shared: &Shared, leases: Option<&Leases>, slices: u32) {
    if let Some(leases) = leases {
        let mine = u32::try_from((0..slices).filter(|&n| leases.did(n)).count()).unwrap_or(0);
        shared.note(|r| r.shared_slices = slices.saturating_sub(mine).saturating_sub(r.resumed_slices));
    }
}

async fn index_of_all(shared: &Arc<Shared>, sums: Arc<Sums>, leases: Option<Arc<Leases>>, of: u32) -> StoreResult<()> {
    // Slices that an earlier run finished, or another one: their facts are read again, nothing else.
    each_slice(shared, None, 0..of, false, {
        let sums = sums.clone();
        move |shared, index| {
            let (sums, leases) = (sums.clone(), leases.clone());
            Box::pin(async move {
                match leases.is_none_or(|l| l.did(index)) {
                    true => Ok(()),
                    false => add_facts(&shared, &sums, Slice { index, of }).await,
                }
            })
        }
    })
    .await?;
    each_slice(shared, None, 0..of, true, {
        let sums = sums.clone();
        move |shared, index| {
            let sums = sums.clone();
            Box::pin(async move { UserCheck::new(&shared, Slice { index, of }).against(&sums).await })
        }
    })
    .await?;
    if !sums.any() {
        return Ok(());
    }
    each_slice(shared, None, 0..of, false, move |shared, index| {
        let sums = sums.clone();
        Box::pin(async move {
            let slice = Slice { index, of };
            differing_facts(&shared, &sums, slice).await?;
            UserCheck::new(&shared, slice).row_by_row(Some(&sums)).await
        })
    })
    .await
}

/// Runs `work` for each of `slices`, several side by side, each once among all runs that share
/// `leases`; `shown`: as steps of the progress.
async fn each_slice<W>(
    shared: &Arc<Shared>,
    leases: Option<Arc<Leases>>,
    slices: Range<u32>,
    shown: bool,
    work: W,
) -> StoreResult<()>
where
    W: Fn(Arc<Shared>, u32) -> BoxFuture<'static, StoreResult<()>> + Clone + Send + Sync + 'static,
{
    let next = Arc::new(AtomicU32::new(slices.start));
    let worker = || {
        let (shared, leases, next, slices, work) = (shared.clone(), leases.clone(), next.clone(), slices.clone(), work.clone());
        async move {
            loop {
                let slice = match &leases {
                    None => next.fetch_add(1, Ordering::Relaxed),
                    Some(leases) => match leases.claim(slices.clone()).await? {
                        Claim::Mine(slice) => slice,
                        Claim::Wait => {
                            shared.protocol.clock().sleep(ASK_AGAIN).await;
                            continue;
                        }
                        Claim::Done => return Ok(()),
                    },
                };
                if slice >= slices.end {
                    return Ok(());
                }
                match &leases {
                    None => work(shared.clone(), slice).await?,
                    Some(leases) => alive(leases, &shared, slice, work(shared.clone(), slice)).await?,
                }
                if shown {
                    shared.progress.slices_done.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    side_by_side(shared.settings.parallel.max(1).min(slices.len().max(1)), worker).await
}

/// Works on a leased slice, with a sign of life now and then.
async fn alive(leases: &Leases, shared: &Shared, slice: u32, work: BoxFuture<'static, StoreResult<()>>) -> StoreResult<()> {
    let pause = shared.settings.lease / 3;
    let mut work = work;
    loop {
        match futures::future::select(work, shared.protocol.clock().sleep(pause)).await {
            futures::future::Either::Left((done, _)) => {
                done?;
                return leases.renew(slice, true).await;
            }
            futures::future::Either::Right(((), rest)) => {
                work = rest;
                leases.renew(slice, false).await?;
            }
        }
    }
}

/// Runs `n` workers to their end, on all cores where there is a runtime to spread them over: reading
/// the embedded store is work, not waiting.
async fn side_by_side<F>(n: usize, worker: impl Fn() -> F) -> StoreResult<()>
where
    F: Future<Output = StoreResult<()>> + Send + 'static,
{
    if tokio::runtime::Handle::try_current().is_err() {
        return (0..n).map(|_| worker()).collect::<FuturesUnordered<F>>().try_collect().await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..n {
        tasks.spawn(worker());
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|e| StoreError::Unavailable(format!("a task of the rebuilder failed: {e}")))??;
    }
    Ok(())
}
