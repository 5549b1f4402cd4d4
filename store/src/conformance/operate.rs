//! Properties of [`StatusTable`](crate::engine::StatusTable) and [`LogTable`](crate::engine::LogTable).

use schema::{Status, StatusKey, StatusRow};

use super::{
    Subject,
    names::{target, unique, user},
};
use crate::{
    StoreError,
    engine::{LogEntry, MAX_LOG_VALUE},
};

fn row(version: i64, status: Status, run: Option<u64>) -> StatusRow {
    StatusRow { version, status, run }
}

/// Whatever the order of arrival; at equal versions the larger of the rest.
pub async fn the_status_with_the_larger_version_wins(engine: Subject) {
    let (closed, open, gone) = (row(5, Status::Closed, None), row(6, Status::Open, None), row(6, Status::Gone, Some(3)));
    for (order, want) in [
        (vec![closed, open], open),
        (vec![open, closed], open),
        (vec![open, gone, closed], gone),
        (vec![gone, open], gone),
        (vec![gone, row(7, Status::Open, None)], row(7, Status::Open, None)),
    ] {
        let key = StatusKey::Target(target("status"));
        for row in order {
            engine.put_status(&key, row).await.expect("put");
        }
        assert_eq!(engine.read_status(&[key]).await, Ok(vec![Some(want)]));
    }
}

/// In the order asked for; a target and a user of one name are two.
pub async fn statuses_of_targets_and_users_are_apart(engine: Subject) {
    let (target, user) = (target("both"), user("other"));
    let twin = schema::UserKey::parse(target.as_str()).expect("the same rules");
    let keys = [StatusKey::Target(target), StatusKey::User(user), StatusKey::User(twin)];
    assert_eq!(engine.read_status(&keys).await, Ok(vec![None; 3]));
    let (gone, suspended) = (row(9, Status::Gone, None), row(8, Status::Suspended, Some(u64::MAX)));
    engine.put_status(&keys[0], gone).await.expect("put");
    engine.put_status(&keys[2], suspended).await.expect("put");
    assert_eq!(engine.read_status(&keys).await, Ok(vec![Some(gone), None, Some(suspended)]));
    assert_eq!(engine.any_status().await, Ok(true));
    assert_eq!(engine.read_status(&[]).await, Ok(vec![]));
}

/// Both ways, any page size, by (time, id); logs whose names begin alike are apart.
pub async fn pages_of_a_log_reach_the_end_without_skip_or_repeat(engine: Subject) {
    let name = unique("log");
    let entry = |at: i64, id: u64| LogEntry { at, id, value: format!("{at}/{id}").into_bytes() };
    let mut want: Vec<LogEntry> =
        [(-5, 1), (0, 0), (7, 1), (7, 2), (7, 256), (256, 0), (1 << 50, u64::MAX)].map(|(at, id)| entry(at, id)).into();
    for e in want.iter().rev() {
        engine.append_log(&name, e.at, e.id, &e.value).await.expect("append");
    }
    engine.append_log(&format!("{name}x"), 1, 1, b"another log").await.expect("append");
    for newest_first in [false, true] {
        for limit in [1, 3, 7, 100] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let (page, end) = engine.page_log(&name, newest_first, after, limit).await.expect("page");
                assert!(page.len() <= limit && (end || !page.is_empty()));
                after = page.last().map(|e| (e.at, e.id)).or(after);
                found.extend(page);
                if end {
                    break;
                }
            }
            assert_eq!(found, want, "newest first: {newest_first}, limit {limit}");
        }
        want.reverse();
    }
    engine.append_log(&name, 7, 1, b"").await.expect("append");
    let (page, _) = engine.page_log(&name, false, Some((0, 0)), 1).await.expect("page");
    assert_eq!(page, vec![LogEntry { at: 7, id: 1, value: vec![] }], "the same place is replaced");
}

/// That one and no other; a second time changes nothing.
pub async fn a_dropped_entry_is_gone_and_its_neighbours_stay(engine: Subject) {
    let name = unique("log");
    let places = [(1, 1), (1, 2), (2, 0)];
    for (at, id) in places {
        engine.append_log(&name, at, id, b"x").await.expect("append");
    }
    for _ in 0..2 {
        engine.drop_log_entry(&name, 1, 2).await.expect("drop");
        let (page, end) = engine.page_log(&name, false, None, 10).await.expect("page");
        assert_eq!((page.iter().map(|e| (e.at, e.id)).collect::<Vec<_>>(), end), (vec![(1, 1), (2, 0)], true));
    }
    engine.drop_log_entry(&unique("none"), 1, 1).await.expect("no log of that name");
}

/// All of it, and nothing else; it may be begun again.
pub async fn a_dropped_log_is_empty_and_others_stay(engine: Subject) {
    let (name, other) = (unique("log"), unique("log"));
    for id in 0..2_500 {
        // Few enough for an engine over the network, more than one step of removing takes.
        if id % 500 == 0 {
            engine.append_log(&other, 1, id, b"kept").await.expect("append");
        }
        if id < 40 || id % 50 == 0 {
            engine.append_log(&name, 1, id, b"x").await.expect("append");
        }
    }
    for _ in 0..2 {
        engine.drop_log(&name).await.expect("drop");
        assert_eq!(engine.page_log(&name, false, None, 10).await, Ok((vec![], true)));
    }
    assert_eq!(engine.page_log(&other, true, None, 10).await.expect("page").0.len(), 5);
    engine.append_log(&name, 2, 2, b"again").await.expect("append");
    assert_eq!(engine.page_log(&name, true, None, 10).await.expect("page").0.len(), 1);
}

/// A name that could not be told from its neighbour's, a value without bound.
pub async fn a_log_refuses_what_it_cannot_hold(engine: Subject) {
    let name = unique("log");
    for (log, len) in [(String::new(), 0), ("a\0b".to_owned(), 0), (name.clone(), MAX_LOG_VALUE + 1)] {
        let refused = engine.append_log(&log, 1, 1, &vec![0; len]).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    engine.append_log(&name, 1, 1, &vec![7; MAX_LOG_VALUE]).await.expect("the largest");
    assert_eq!(engine.page_log(&name, true, None, 1).await.expect("page").0[0].value.len(), MAX_LOG_VALUE);
}
