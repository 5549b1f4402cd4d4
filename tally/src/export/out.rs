//! Where lines go: standard output, or a file that gets its name when it is whole.

use std::{
    fs::File,
    io::{BufWriter, ErrorKind, Stdout, Write, stdout},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

use crate::failure::Failure;

enum To {
    Stdout(Stdout),
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

/// An output under way.
pub struct Out {
    to: To,
    /// Its name, and the one that it has until it is whole.
    file: Option<(PathBuf, PathBuf)>,
}

impl Out {
    /// `-` is standard output; a name that ends in `.gz` is compressed.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self { to: To::Stdout(stdout()), file: None });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|e| failed(&partial, &e))?;
        let file = BufWriter::new(file);
        // No name and no time in the header: equal exports are equal files.
        let gzip = path.extension().is_some_and(|e| e == "gz");
        let to = if gzip { To::Gzip(GzEncoder::new(file, Compression::default())) } else { To::Plain(file) };
        Ok(Self { to, file: Some((path.to_owned(), partial)) })
    }

    /// Writes `bytes`; `false`: nobody reads them any more (`tally export | head`).
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let written = match &mut self.to {
            To::Stdout(out) => out.write_all(bytes).and_then(|()| out.flush()),
            To::Plain(out) => out.write_all(bytes),
            To::Gzip(out) => out.write_all(bytes),
        };
        match written {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(self.failed(&e)),
        }
    }

    /// Everything is written: the file gets its name.
    pub fn finish(self) -> Result<(), Failure> {
        let Some((path, partial)) = self.file else { return Ok(()) };
        let whole = match self.to {
            To::Stdout(_) => return Ok(()),
            To::Plain(out) => Ok(out),
            To::Gzip(out) => out.finish(),
        };
        let synced =
            whole.and_then(|out| out.into_inner().map_err(std::io::IntoInnerError::into_error)).and_then(|f| f.sync_all());
        synced.and_then(|()| std::fs::rename(&partial, &path)).map_err(|e| failed(&path, &e))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        let path = self.file.as_ref().map_or(Path::new("standard output"), |(_, partial)| partial);
        failed(path, error)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::unreachable(format!("cannot write {}: {error}", path.display()))
}
