//! Standard output that ends quietly when its reader has gone (`tally top | head -1`).

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` as it is.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::unreachable(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes `value` as one line of JSON.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let mut text = serde_json::to_string(value).expect("numbers, texts and lists always serialise");
    text.push('\n');
    print(&text)
}

/// A whole number with a thin mark at each thousand, for people: `328'132`.
pub fn grouped(n: impl Into<i128>) -> String {
    let n: i128 = n.into();
    let digits = n.unsigned_abs().to_string();
    let mut out = if n < 0 { String::from("-") } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\'');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases: [(i128, &str); 5] =
            [(0, "0"), (999, "999"), (1000, "1'000"), (328_132, "328'132"), (-1_234_567, "-1'234'567")];
        for (n, text) in cases {
            assert_eq!(grouped(n), text);
        }
    }
}
