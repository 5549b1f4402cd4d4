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
