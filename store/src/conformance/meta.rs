//! Properties of [`MetaTable`](crate::engine::MetaTable).

use super::{Subject, names::unique};

/// Put, replaced, listed by prefix up to a limit, dropped.
pub async fn meta_rows_are_replaced_listed_and_dropped(engine: Subject) {
    let prefix = format!("{}/", unique("meta"));
    let key = |n: usize| format!("{prefix}{n}");
    for n in 0..5 {
        assert_eq!(engine.get_meta(&key(n)).await, Ok(None));
        engine.put_meta(&key(n), &[0, n as u8, 255]).await.expect("put");
        engine.put_meta(&key(n), &[n as u8]).await.expect("put");
        assert_eq!(engine.get_meta(&key(n)).await, Ok(Some(vec![n as u8])));
    }
    engine.put_meta(&key(9), &[]).await.expect("put");
    assert_eq!(engine.get_meta(&key(9)).await, Ok(Some(vec![])));
    for _ in 0..2 {
        engine.drop_meta(&key(2)).await.expect("drop");
        assert_eq!(engine.get_meta(&key(2)).await, Ok(None));
    }
    let want: Vec<_> = [(0, vec![0]), (1, vec![1]), (3, vec![3]), (4, vec![4]), (9, vec![])].map(|(n, v)| (key(n), v)).into();
    let mut listed = engine.list_meta(&prefix, 100).await.expect("list");
    listed.sort();
    assert_eq!(listed, want);
    let some = engine.list_meta(&prefix, 2).await.expect("list");
    assert!(some.len() == 2 && some.iter().all(|row| want.contains(row)));
    assert_eq!(engine.list_meta(&format!("{prefix}none"), 5).await, Ok(vec![]));
}

/// Absent, other and equal expectations; an empty value is not an absent one.
pub async fn a_meta_row_is_swapped_only_where_it_is_as_expected(engine: Subject) {
    let key = unique("swap");
    assert_eq!(engine.swap_meta(&key, Some(b"x"), b"a").await, Ok(false));
    assert_eq!(engine.swap_meta(&key, Some(b""), b"a").await, Ok(false));
    assert_eq!(engine.get_meta(&key).await, Ok(None));
    assert_eq!(engine.swap_meta(&key, None, b"").await, Ok(true));
    assert_eq!(engine.swap_meta(&key, None, b"a").await, Ok(false));
    assert_eq!(engine.get_meta(&key).await, Ok(Some(vec![])));
    assert_eq!(engine.swap_meta(&key, Some(b""), b"a").await, Ok(true));
    assert_eq!(engine.swap_meta(&key, Some(b"b"), b"c").await, Ok(false));
    assert_eq!(engine.swap_meta(&key, Some(b"a"), b"c").await, Ok(true));
    assert_eq!(engine.get_meta(&key).await, Ok(Some(b"c".to_vec())));
}

/// Eight tasks count up one row together: no step is lost, so no two swaps of one value both won.
pub async fn racing_meta_swaps_let_one_win_each_time(engine: Subject) {
    let key = unique("race");
    let tasks = (0..8).map(|_| {
        let (engine, key) = (engine.clone(), key.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let now = engine.get_meta(&key).await.expect("get");
                    let next = now.as_ref().map_or(1, |bytes| bytes[0] + 1);
                    if engine.swap_meta(&key, now.as_deref(), &[next]).await.expect("swap") {
                        break;
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task");
    }
    assert_eq!(engine.get_meta(&key).await, Ok(Some(vec![80])));
}
