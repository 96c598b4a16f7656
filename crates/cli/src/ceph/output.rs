//! The input of a command, and where its output goes (`-i`, `-o`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use bytes::Bytes;
use spirula_client::errno::Errno;
use spirula_text::python;

use super::exec::print;
use super::options::Options;

/// The message about a file that can't be opened, as the official tool prints it.
fn open_failed(what: &str, path: &str, e: &io::Error) -> String {
    let errno = Errno::from(e);
    let quoted = python::quoted(path);
    format!(
        "Can't open {what} file {path}: [Errno {}] {}: {quoted}",
        errno.code(),
        errno.message()
    )
}

/// Reads the input of a command.
///
/// # Errors
/// What to print where it can't be read.
pub(crate) fn input(path: Option<&str>) -> Result<Bytes, String> {
    let Some(path) = path else { return Ok(Bytes::new()) };
    let mut data = Vec::new();
    let read = match path {
        "-" => io::stdin().lock().read_to_end(&mut data),
        _ => File::open(path).and_then(|mut f| f.read_to_end(&mut data)),
    };
    read.map_err(|e| open_failed("input", path, &e))?;
    Ok(data.into())
}

/// Where output goes.
pub(crate) enum Output {
    /// To the terminal, formatted for it.
    Terminal,
    /// To a file or standard output, unformatted.
    File(Box<dyn Write>),
}

/// The number of a user or group in `/etc/passwd` or `/etc/group`.
fn number(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(|l| l.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.first() == Some(&name))?;
    fields.get(2)?.parse().ok()
}

impl Output {
    /// Opens the output that the options name.
    ///
    /// # Errors
    /// What to print where that fails.
    pub(crate) fn open(options: &Options) -> Result<Self, String> {
        let path = match options.out_file.as_deref() {
            None => return Ok(Self::Terminal),
            Some("-") => return Ok(Self::File(Box::new(io::stdout()))),
            Some(path) => path,
        };
        // It may be a keyring, or a map with names that are nobody's business.
        let mut new = OpenOptions::new();
        let new = new.write(true).create(true).truncate(true).mode(0o600);
        let file = new.open(path).map_err(|e| open_failed("output", path, &e))?;
        let user = options.set_user.as_deref().map(|u| (u, "/etc/passwd", "user"));
        let group = options.set_group.as_deref().map(|g| (g, "/etc/group", "group"));
        for (name, database, what) in user.into_iter().chain(group) {
            let id = number(database, name).ok_or_else(|| format!("no such {what}: {name}"))?;
            let (uid, gid) = match what {
                "user" => (Some(rustix::fs::Uid::from_raw(id)), None),
                _ => (None, Some(rustix::fs::Gid::from_raw(id))),
            };
            rustix::fs::fchown(file.as_fd(), uid, gid)
                .map_err(|e| format!("Failed to change {what} ownership of {path} to {name}: {e}"))?;
        }
        Ok(Self::File(Box::new(file)))
    }

    /// Whether output is written unformatted.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Writes the output of a command; `label` stands before it where several daemons answer.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub(crate) fn write(&mut self, output: &[u8], label: &str, format: Option<&str>) -> io::Result<()> {
        if let Self::File(file) = self {
            file.write_all(output)?;
            return file.flush();
        }
        // Old versions printed the status before JSON; programs learned to skip the first line.
        if format.is_some_and(|f| f.starts_with("json")) {
            print(b"\n");
        }
        let output = if label.is_empty() {
            output
        } else {
            output.trim_ascii_end()
        };
        if !output.is_empty() {
            let end: &[u8] = if label.is_empty() { b"" } else { b"\n" };
            print(&[label.as_bytes(), output, end].concat());
        }
        Ok(())
    }
}
