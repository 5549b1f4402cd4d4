//! Tokens: `tally_<id>_<secret>`, 12 and 64 hexadecimal digits.
//!
//! The secret is 256 random bits, so nobody can guess it from its hash, however fast the hash is: a
//! slow one protects what people think up, and would cost each request milliseconds. The id is for
//! looking up; the hash covers both.

use sha2::{Digest, Sha256};

use super::Secret;

const PREFIX: &str = "tally_";
const ID: usize = 12;
const SECRET: usize = 64;
/// Bytes of every token.
pub const LENGTH: usize = PREFIX.len() + ID + 1 + SECRET;

/// SHA-256 of a whole token.
pub type Hash = [u8; 32];

/// A new token from 320 random bits.
pub fn new(mut random: impl FnMut() -> u64) -> Secret {
    let id = random() & 0xffff_ffff_ffff;
    let secret: String = (0..4).map(|_| format!("{:016x}", random())).collect();
    Secret::new(format!("{PREFIX}{id:012x}_{secret}"))
}

/// The id in a token, if it has the right form.
pub fn id(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (hex(id, ID) && hex(secret, SECRET)).then_some(id)
}

/// Whether `text` can be an id.
pub fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hash that is stored; no more of a text is read than a token has.
pub fn hash(token: &str) -> Hash {
    let bytes = token.as_bytes();
    Sha256::digest(&bytes[..bytes.len().min(LENGTH + 1)]).into()
}

/// A hash as it is written in files.
pub fn hash_text(hash: &Hash) -> String {
    let hex: String = hash.iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// The hash in a file.
pub fn parse_hash(text: &str) -> Option<Hash> {
    let hex = text.strip_prefix("sha256:").filter(|h| h.len() == 64 && h.is_ascii())?;
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients hold tokens for years: the form and the hash are an interface.
    #[test]
    fn the_form_and_the_hash_of_a_token_do_not_change() {
        let mut n = 0;
        let token = new(|| {
            n += 1;
            n << 60 | n
        });
        let text = "tally_000000000001_2000000000000002300000000000000340000000000000045000000000000005";
        assert_eq!((token.reveal(), token.reveal().len()), (text, LENGTH));
        assert_eq!(id(text), Some("000000000001"));
        assert_eq!(hash_text(&hash(text)), "sha256:cd1c57650a40760c64e5eeeb64a2e41032127e45585fe19ffdf722277bf03862");
        assert_eq!(parse_hash(&hash_text(&hash(text))), Some(hash(text)));
    }

    #[test]
    fn what_is_not_a_token_has_no_id() {
        let good = new(|| 0xabcd_ef01_2345_6789);
        let good = good.reveal();
        assert!(id(good).is_some());
        for bad in ["", "tally_", "tally__", &good[1..], &good[..LENGTH - 1], &good.to_uppercase(), &format!("{good}0")] {
            assert_eq!(id(bad), None, "{bad}");
        }
        assert_ne!(hash(good), hash(&format!("{good}0")), "a longer text is not taken for the token");
        for bad in ["", "sha256:", "md5:00", &"sha256:zz".repeat(8)] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }
}
