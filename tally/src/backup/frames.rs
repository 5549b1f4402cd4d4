//! How blocks of rows are told apart, in a body and in a file: a tag, a length, the bytes.

use crate::failure::Failure;

/// Longest frame that is read, in bytes: a block and its last row.
const MAX_FRAME: usize = 32 << 20;
/// Bytes before a frame's own.
const HEAD: usize = 5;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// JSON about the copy; the first.
    Head,
    /// Rows.
    Block,
    /// JSON with totals; the last: without it the copy was cut off.
    End,
}

impl Tag {
    fn byte(self) -> u8 {
        match self {
            Self::Head => b'H',
            Self::Block => b'B',
            Self::End => b'E',
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Head, Self::Block, Self::End].into_iter().find(|tag| tag.byte() == byte)
    }
}

/// A frame's bytes.
pub fn frame(tag: Tag, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + bytes.len());
    out.push(tag.byte());
    out.extend_from_slice(&u32::try_from(bytes.len()).expect("a block is far below 4 GiB").to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

/// Takes frames out of bytes that come in pieces.
#[derive(Default)]
pub struct Frames {
    held: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.drain(..self.at);
        self.at = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame; `None`: more bytes are needed.
    pub fn next(&mut self) -> Result<Option<(Tag, Vec<u8>)>, Failure> {
        let rest = &self.held[self.at..];
        let Some((head, body)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).unwrap_or(usize::MAX);
        let tag = Tag::of(head[0]).filter(|_| length <= MAX_FRAME);
        let tag = tag.ok_or_else(|| Failure::unreachable("these are not the rows of a backup of this version"))?;
        let Some(body) = body.get(..length) else { return Ok(None) };
        let body = body.to_vec();
        self.at += HEAD + length;
        Ok(Some((tag, body)))
    }

    /// Whether nothing is left over.
    pub fn is_empty(&self) -> bool {
        self.at == self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_pieces() {
        let mut wire = Vec::new();
        let sent = [(Tag::Head, b"{}".to_vec()), (Tag::Block, vec![7; 300]), (Tag::Block, Vec::new()), (Tag::End, b"x".to_vec())];
        for (tag, bytes) in &sent {
            wire.extend(frame(*tag, bytes));
        }
        for piece in [1, 2, 7, 64, wire.len()] {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for bytes in wire.chunks(piece) {
                frames.feed(bytes);
                while let Some(frame) = frames.next().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, sent, "pieces of {piece}");
            assert!(frames.is_empty());
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_memory_is_set_aside() {
        for bytes in [&b"X\0\0\0\x01a"[..], b"B\xff\xff\xff\xff", b"<html>"] {
            let mut frames = Frames::default();
            frames.feed(bytes);
            assert!(frames.next().is_err(), "{bytes:?}");
        }
    }
}
