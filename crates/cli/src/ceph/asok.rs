//! `ceph daemon NAME …`: commands through a daemon's admin socket on this machine (see the crate
//! `spirula-asok` for its protocol).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spirula_client::Source;
use spirula_client::errno::Errno;

use super::matching::{self, Match};
use super::signature;

/// The longest answer that is accepted, in bytes.
const MAX_ANSWER: u32 = 1 << 30;
/// The default path of daemons' sockets.
const DEFAULT_PATH: &str = "/var/run/ceph/ceph-$name.asok";

/// Where the socket of a daemon is: a path as it is, a name by the configuration.
///
/// # Errors
/// Why the configuration can't say it.
pub(crate) fn path(source: &Source, daemon: &str) -> Result<PathBuf, String> {
    if daemon.contains('/') {
        return Ok(daemon.into());
    }
    let configured = source.option(daemon, "admin_socket").map_err(|e| e.to_string())?;
    let path = configured.unwrap_or_else(|| DEFAULT_PATH.replace("$name", daemon));
    Ok(path.into())
}

/// An I/O error as the official tool prints it: `[Errno 2] No such file or directory`.
fn shown(e: &io::Error) -> String {
    match e.raw_os_error().and_then(Errno::new) {
        Some(errno) => format!("[Errno {}] {}", errno.code(), errno.message()),
        None => e.to_string(),
    }
}

/// Sends a request and returns the answer. Each silence of the daemon may be `patience` long, or
/// for ever.
///
/// # Errors
/// Where the daemon can't be reached, is silent too long, or answers too much.
pub(crate) fn exchange(path: &Path, request: &[u8], patience: Option<Duration>) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(request)?;
    stream.write_all(&[0])?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    if len > MAX_ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "answer too long"));
    }
    let mut answer = Vec::new();
    stream.take(u64::from(len)).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Runs a command and returns the answer.
///
/// # Errors
/// What to print after `admin_socket: `. Messages about an unknown command have been printed then.
pub(crate) fn run(path: &Path, words: &[String], format: Option<&str>) -> Result<Vec<u8>, String> {
    let descriptions = exchange(path, br#"{"prefix": "get_command_descriptions"}"#, None)
        .map_err(|e| format!("exception getting command descriptions: {}", shown(&e)))?;
    let commands = signature::parse(&descriptions).map_err(|e| e.to_string())?;
    let mut values = match matching::find(&commands, words) {
        Match::Found(_, values) => values,
        Match::None(messages) => {
            for line in messages {
                eprintln!("{line}");
            }
            return Err("invalid command".into());
        }
    };
    if let Some(format) = format {
        values.insert("format".into(), format.into());
    }
    let request = serde_json::Value::Object(values).to_string();
    exchange(path, request.as_bytes(), None).map_err(|e| format!("exception: exception: {}", shown(&e)))
}
