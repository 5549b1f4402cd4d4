//! Values of fixed shape, which need no serializer. All others are [`schema::codec`]'s.

use schema::{CounterRow, LaneId, Micros, codec};

use crate::engine::LaneState;

/// A format byte and one byte: a choice or a level.
pub fn encode_byte(byte: u8) -> Vec<u8> {
    vec![codec::FORMAT, byte]
}

/// Reverse of [`encode_byte`].
pub fn decode_byte(bytes: &[u8]) -> Option<u8> {
    let &[codec::FORMAT, byte] = bytes else { return None };
    Some(byte)
}

/// `order`, big-endian, and the counter's blob.
pub fn encode_counter(row: &CounterRow) -> Vec<u8> {
    let mut out = row.order.to_be_bytes().to_vec();
    out.extend_from_slice(&codec::encode_counter(row));
    out
}

/// Order and blob of a stored counter.
pub fn split_counter(bytes: &[u8]) -> Option<(Micros, &[u8])> {
    let (order, blob) = bytes.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*order), blob))
}

/// Reverse of [`encode_counter`].
pub fn decode_counter(bytes: &[u8]) -> Option<CounterRow> {
    let (order, blob) = split_counter(bytes)?;
    codec::decode_counter(order, blob).ok()
}

/// A format byte; first, closed, swept, seen; 1 where retired. The lane is the key.
pub fn encode_lane(state: &LaneState) -> Vec<u8> {
    let mut out = vec![codec::FORMAT];
    for n in [state.first, state.closed_through, state.swept_through, state.seen] {
        out.extend_from_slice(&n.to_be_bytes());
    }
    out.push(u8::from(state.retired));
    out
}

/// Reverse of [`encode_lane`].
pub fn decode_lane(lane: LaneId, bytes: &[u8]) -> Option<LaneState> {
    let (&codec::FORMAT, rest) = bytes.split_first()? else { return None };
    let (&[first, closed_through, swept_through, seen], &[retired @ (0 | 1)]) = rest.as_chunks::<8>() else { return None };
    let number = i64::from_be_bytes;
    Some(LaneState {
        lane,
        first: number(first),
        closed_through: number(closed_through),
        swept_through: number(swept_through),
        retired: retired == 1,
        seen: number(seen),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_survive_the_round_trip_and_garbage_is_refused() {
        let lane =
            LaneState { lane: LaneId(5), first: 3, closed_through: -2, swept_through: i64::MAX, retired: true, seen: 1 << 50 };
        let bytes = encode_lane(&lane);
        assert_eq!(decode_lane(LaneId(5), &bytes), Some(lane));
        for len in 0..bytes.len() {
            assert_eq!(decode_lane(LaneId(5), &bytes[..len]), None);
        }
        assert_eq!(decode_lane(LaneId(5), &[&bytes[..], &[0]].concat()), None);
        assert_eq!(decode_lane(LaneId(5), &[&[9], &bytes[1..]].concat()), None);
        assert_eq!(decode_byte(&encode_byte(63)), Some(63));
        assert_eq!(decode_byte(&[9, 63]), None);
        let row = CounterRow { order: 7, rank: 9, counts: [(1, 2)].into_iter().collect(), as_of: 6 };
        assert_eq!(decode_counter(&encode_counter(&row)), Some(row));
        assert_eq!(decode_counter(b"short"), None);
    }

    #[test]
    fn lane_bytes_are_a_storage_format() {
        let lane = LaneState { lane: LaneId(5), first: 1, closed_through: 2, swept_through: 3, retired: false, seen: 4 };
        let want = b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0";
        assert_eq!(encode_lane(&lane), want);
    }
}
