//! Lines of a file or of standard input, plain or gzip, in bounded memory.

use std::{
    fs::File,
    io::{BufRead, BufReader, Cursor, Read, stdin},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;

/// Longest line that is read; a longer one is a bad row.
pub const MAX_LINE: usize = 64 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 256 << 10;

/// Lines with their numbers, from 1.
pub struct Source {
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    read: Arc<AtomicU64>,
    size: Option<u64>,
}

/// One line, or why it cannot be used.
pub enum Next<'a> {
    /// The line without its end.
    Line(&'a [u8]),
    /// It has more than [`MAX_LINE`] bytes.
    TooLong,
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl Source {
    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Self::from_reader(stdin(), None);
        }
        let unreadable = |e: std::io::Error| Failure::unreachable(format!("cannot read {}: {e}", path.display()));
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.is_dir() {
            return Err(Failure::unreachable(format!("{} is a directory", path.display())));
        }
        Self::from_reader(file, about.is_file().then_some(about.len()))
    }

    /// Reads `input`, which is gzip if it begins as such.
    pub fn from_reader(input: impl Read + Send + 'static, size: Option<u64>) -> Result<Self, Failure> {
        let read = Arc::new(AtomicU64::new(0));
        let mut input = Counted { inner: input, read: read.clone() };
        let mut head = Vec::with_capacity(2);
        input.by_ref().take(2).read_to_end(&mut head).map_err(|e| Failure::unreachable(format!("cannot read the input: {e}")))?;
        let gzip = head == GZIP;
        let whole = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(input));
        let reader: Box<dyn BufRead + Send> = match gzip {
            true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole))),
            false => Box::new(whole),
        };
        Ok(Self { reader, line: Vec::new(), number: 0, read, size })
    }

    /// Bytes read so far (compressed, where the input is), shared with whoever shows progress.
    pub fn read_so_far(&self) -> Arc<AtomicU64> {
        self.read.clone()
    }

    /// Size of the file in bytes, where it is one.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next line with its number; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Next<'_>)>, Failure> {
        self.line.clear();
        let number = self.number + 1;
        let failed = |e: std::io::Error| Failure::unreachable(format!("line {number}: the input cannot be read on: {e}"));
        let mut too_long = false;
        loop {
            let chunk = self.reader.fill_buf().map_err(failed)?;
            if chunk.is_empty() {
                if self.line.is_empty() && !too_long {
                    return Ok(None);
                }
                break;
            }
            let end = chunk.iter().position(|&b| b == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + part.len() > MAX_LINE {
                too_long = true;
                self.line.clear();
            } else if !too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number = number;
        let mut line = self.line.as_slice();
        if number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        Ok(Some((number, if too_long { Next::TooLong } else { Next::Line(line) })))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn lines(bytes: Vec<u8>) -> Result<Vec<String>, Failure> {
        let mut source = Source::from_reader(Cursor::new(bytes), None)?;
        let mut out = Vec::new();
        while let Some((number, next)) = source.next()? {
            out.push(match next {
                Next::Line(line) => format!("{number}:{}", String::from_utf8_lossy(line)),
                Next::TooLong => format!("{number}!"),
            });
        }
        Ok(out)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn plain_and_gzip_in_several_members_give_the_same_lines() {
        let expected = vec!["1:a", "2:", "3:b"];
        assert_eq!(lines(b"a\n\nb".to_vec()).unwrap(), expected);
        assert_eq!(lines(b"a\n\nb\n".to_vec()).unwrap(), expected);
        assert_eq!(lines([gzip("a\n\n"), gzip("b\n")].concat()).unwrap(), expected);
        assert_eq!(lines(b"\xef\xbb\xbfa\n".to_vec()).unwrap(), ["1:a"]);
        assert!(lines(Vec::new()).unwrap().is_empty());
        assert_eq!(lines(b"a".to_vec()).unwrap(), ["1:a"]);
    }

    #[test]
    fn a_line_without_end_is_skipped_in_bounded_memory() {
        let long = "x".repeat(3 * BUFFER);
        assert_eq!(lines(format!("a\n{long}\nb\n{long}").into_bytes()).unwrap(), ["1:a", "2!", "3:b", "4!"]);
        let most = "x".repeat(MAX_LINE);
        assert_eq!(lines(format!("{most}\n{most}x\n").into_bytes()).unwrap(), [format!("1:{most}"), "2!".into()]);
    }

    #[test]
    fn damaged_gzip_is_an_error_that_names_the_line() {
        let mut bytes = gzip(&"some text that is long enough\n".repeat(1000));
        bytes.truncate(bytes.len() / 2);
        let error = lines(bytes).unwrap_err();
        assert!(error.message.starts_with("line "), "{error}");
    }
}
