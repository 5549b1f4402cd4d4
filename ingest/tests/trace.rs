//! `traceparent` from outside: it is followed, or it is as if it were not there; no answer depends on it.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use axum::{
    body::Body,
    http::{HeaderValue, Method, Request},
};
use common::{Answer, World, setup, setup_with};
use store::Settings;
use tally_ingest::IngestSettings;

const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn parent(flags: &str) -> Vec<u8> {
    format!("00-{ID}-00f067aa0ba902b7-{flags}").into_bytes()
}

async fn send(w: &World, method: Method, path: &str, parent: Option<&[u8]>) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(value) = parent {
        request = request.header("traceparent", HeaderValue::from_bytes(value).unwrap());
    }
    w.send(request.body(Body::empty()).unwrap()).await
}

/// The trace id of a well-formed `traceresponse`.
fn id_of(answer: &Answer) -> Option<&str> {
    let text = answer.trace_response.as_deref()?;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| part.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
    assert!(lengths == [2, 32, 16, 2] && parts.iter().all(|p| hex(p)) && parts[2] != "0000000000000000", "{text}");
    Some(parts[1])
}

#[tokio::test]
async fn an_answer_that_somebody_may_ask_about_says_its_trace() {
    let w = setup().await;
    let fine = "/v1/video/targets/p1";
    for (flags, said) in [("01", Some(ID)), ("00", None)] {
        assert_eq!(id_of(&send(&w, Method::GET, fine, Some(&parent(flags))).await), said, "{flags}");
    }
    assert_eq!(id_of(&send(&w, Method::GET, fine, None).await), None);
    let failing = [
        (Method::GET, "/v1/Video/targets/p1"),
        (Method::POST, "/v1/video/targets/p1/like/u1"),
        (Method::GET, "/nowhere"),
        (Method::POST, "/healthz"),
        (Method::POST, "/readyz"),
    ];
    for (method, path) in failing {
        let made = send(&w, method.clone(), path, None).await;
        assert!(made.status.is_client_error(), "{path}: {made:?}");
        let made = id_of(&made).unwrap_or_else(|| panic!("{method} {path} has no traceresponse")).to_owned();
        assert_ne!(made, "0".repeat(32));
        let again = send(&w, method.clone(), path, None).await;
        assert_ne!(id_of(&again), Some(made.as_str()), "each has its own");
        assert_eq!(id_of(&send(&w, method, path, Some(&parent("00"))).await), Some(ID), "{path}");
    }
}

#[tokio::test]
async fn a_request_that_takes_as_long_as_is_slow_says_its_trace() {
    let settings = IngestSettings { slow_request: std::time::Duration::from_nanos(1), ..IngestSettings::default() };
    let w = setup_with(Settings { small_limit: 8, level: 2, ..Settings::default() }, settings).await;
    assert!(id_of(&send(&w, Method::GET, "/v1/video/targets/p1", None).await).is_some());
}

#[tokio::test]
async fn a_malformed_header_is_as_none() {
    let w = setup().await;
    let good = String::from_utf8(parent("01")).unwrap();
    let zeros = "0".repeat(32);
    let bad = [
        String::new(),
        "00".to_owned(),
        good.to_ascii_uppercase(),
        good.replace(ID, &zeros),
        good.replace("00f067aa0ba902b7", &zeros[..16]),
        good.replacen("00", "ff", 1),
        good.replace('-', "_"),
        format!("{good}-more"),
        format!("{good}, {good}"),
        "x".repeat(8_000),
    ];
    for text in bad {
        let answer = send(&w, Method::PUT, "/v1/video/targets/p1/like/u1", Some(text.as_bytes())).await;
        assert_eq!((answer.status.as_u16(), id_of(&answer)), (200, None), "{text}");
        let failed = send(&w, Method::GET, "/v1/video/targets/p1/nope", Some(text.as_bytes())).await;
        assert_eq!(failed.status, 400, "{text}");
        assert!(id_of(&failed).is_some_and(|id| id != ID && id != zeros), "{text}: a new id");
    }
}

/// A splitmix generator: the same bytes for the same seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Any bytes that a header may hold: near misses of the form, and noise of any length.
fn value(state: &mut u64) -> Vec<u8> {
    let mut bytes = match next(state) % 3 {
        0 => parent("01"),
        1 => (0..55).map(|_| b"0123456789abcdef-"[(next(state) % 17) as usize]).collect(),
        _ => (0..next(state) % 200).map(|_| (next(state) % 256) as u8).collect(),
    };
    for _ in 0..next(state) % 4 {
        if let Some(place) = (next(state) as usize).checked_rem(bytes.len()) {
            bytes[place] = (next(state) % 256) as u8;
        }
    }
    bytes.retain(|b| (32..=255).contains(b) && *b != 127);
    bytes
}

#[tokio::test]
async fn no_bytes_in_the_header_change_an_answer() {
    let (w, seed) = (setup().await, 20_250_301_u64);
    println!("seed {seed}");
    let mut state = seed;
    let asked = [
        (Method::GET, "/v1/video/targets/p1"),
        (Method::GET, "/v1/video/targets/p1/like/u1"),
        (Method::DELETE, "/v1/video/targets/p1/like/u1?x=1"),
        (Method::GET, "/nowhere"),
        (Method::GET, "/healthz"),
    ];
    let plain = |mut answer: Answer| {
        answer.trace_response = None;
        // The watermark goes on with time, whatever is asked.
        for name in ["complete_until", "as_of"] {
            answer.json.as_object_mut().map(|o| o.remove(name));
        }
        answer
    };
    for (method, path) in asked {
        let expected = plain(send(&w, method.clone(), path, None).await);
        for _ in 0..400 {
            let bytes = value(&mut state);
            let answer = plain(send(&w, method.clone(), path, Some(&bytes)).await);
            assert_eq!(answer, expected, "{path}: {:?}", bytes.escape_ascii().to_string());
        }
    }
    for _ in 0..200 {
        let bytes = value(&mut state);
        let answer = send(&w, Method::PUT, "/v1/video/targets/p2/like/u1", Some(&bytes)).await;
        assert_eq!(answer.status, 200, "{:?}", bytes.escape_ascii().to_string());
    }
}
