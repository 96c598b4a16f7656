//! The admin socket that `ceph daemon NAME COMMAND` talks to (`src/common/admin_socket.cc`).
//!
//! A Unix socket in the daemon's run directory. The client writes one JSON object that ends with a
//! NUL byte or a line feed (or, in the oldest form, a big-endian `u32`); the daemon answers with a
//! big-endian `u32` length and the output, and closes. The official tool first asks for
//! `get_command_descriptions`, then sends the command.
//!
//! The daemon implements [`Handler`] in its own event loop; this module only moves bytes, on the
//! caller's single-threaded runtime.

mod command;
pub mod config;
pub mod op_history;
pub mod osd_network;
pub mod perf;
mod request;

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub use request::{Request, read as read_request};
use serde_json::{Map, Value};
use spirula_errno::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

pub use command::{COUNTER, Command};

/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Clients served at once; more wait to be accepted.
const MAX_CLIENTS: usize = 16;

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure it is.
    pub errno: Errno,
    /// The message.
    pub message: String,
}

/// The answer of a successful command.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its output.
    pub value: Value,
    /// The status line. `ceph tell` shows it; the socket's protocol has no place for it.
    pub status: String,
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self {
            value,
            status: String::new(),
        }
    }
}

/// A daemon's side of its socket.
pub trait Handler {
    /// The daemon's own commands. [`Request::builtin`] answers further ones for every daemon, and
    /// those of [`config`] every daemon runs on its own values.
    fn commands(&self) -> &'static [Command];

    /// The version object: `{"version": …, "release": …, "release_type": …}`.
    fn version(&self) -> Value;

    /// Runs a command: `args` holds `prefix` and the parameters.
    ///
    /// # Errors
    /// [`Failure`] is printed as the official daemons print it.
    fn run(&self, prefix: &str, args: &Map<String, Value>) -> impl Future<Output = Result<Answer, Failure>>;
}

/// The place of a daemon's admin socket.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its path.
    pub path: PathBuf,
    /// Its permissions (`admin_socket_mode`); `None`: for the daemon's user only.
    pub mode: Option<u32>,
}

/// A bound socket; the file is removed when this is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // A leftover file is harmless: the next start replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A socket at `path`, in place of a leftover one of a process that died.
///
/// # Errors
/// `AddrInUse` if a living process answers on it; `AlreadyExists` if something else than a socket
/// is there, which is kept; `PermissionDenied` if it belongs to somebody else; any other error of
/// the file system.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("{} is in use", path.display()),
        ));
    }
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => {
            spirula_files::check_owner(path, found.uid())?;
            std::fs::remove_file(path)?;
        }
        Ok(_) => {
            let what = format!("{} is there and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    UnixListener::bind(path)
}

impl AdminSocket {
    /// Binds as [`bind`] does.
    ///
    /// # Errors
    /// Those of [`bind`].
    pub fn bind(place: &Place) -> io::Result<Self> {
        let socket = Self {
            listener: bind(&place.path)?,
            path: place.path.clone(),
        };
        let mode = std::fs::Permissions::from_mode(place.mode.unwrap_or(0o600));
        std::fs::set_permissions(&socket.path, mode)?;
        Ok(socket)
    }

    /// Serves clients until the future is dropped. Needs a `LocalSet` or local runtime.
    pub async fn serve<H: Handler + 'static>(&self, handler: Rc<H>) {
        let slots = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_CLIENTS));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let handler = handler.clone();
                    tokio::task::spawn_local(async move {
                        if let Err(e) = client(stream, handler.as_ref()).await {
                            tracing::debug!("admin socket client: {e}");
                        }
                        drop(slot);
                    });
                }
                Err(e) => {
                    tracing::warn!("admin socket: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn client<H: Handler>(mut stream: UnixStream, handler: &H) -> io::Result<()> {
    let request = tokio::time::timeout(REQUEST_TIME, request::read(&mut stream))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let output = answer(&request, handler).await;
    let len = u32::try_from(output.len()).map_err(|_| io::Error::other("output too long"))?;
    stream.write_all(&len.to_be_bytes()).await?;
    stream.write_all(&output).await
}

/// The answer to a request, which comes without its end mark.
pub async fn answer<H: Handler>(request: &[u8], handler: &H) -> Vec<u8> {
    match run(request, handler).await {
        Ok(output) => output,
        // The protocol has no place for an errno.
        Err(e) => format!("ERROR: {}\n{}\n", e.errno, e.message).into_bytes(),
    }
}

async fn run<H: Handler>(request: &[u8], handler: &H) -> Result<Vec<u8>, Failure> {
    let request = Request::parse(request)?;
    let answer = match request.builtin(handler.commands(), &handler.version()) {
        Some(answer) => answer?,
        None => handler.run(&request.prefix, &request.args).await?,
    };
    Ok(request.render(&answer.value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::AsyncReadExt;

    use super::*;

    struct Demo;

    impl Handler for Demo {
        fn commands(&self) -> &'static [Command] {
            const COMMANDS: &[Command] = &[
                Command::new("config get", &[("var", "CephString")], "one option"),
                Command::new("perf dump", &[], "counters"),
                Command::new("perf schema", &[], "what they are"),
            ];
            COMMANDS
        }

        fn version(&self) -> Value {
            json!({"version": "1"})
        }

        async fn run(&self, prefix: &str, args: &Map<String, Value>) -> Result<Answer, Failure> {
            match prefix {
                "perf dump" => return Ok(json!({"osd": {}}).into()),
                "perf schema" => return Ok(json!({}).into()),
                _ => {}
            }
            match args.get("var").and_then(Value::as_str) {
                Some(v) => Ok(json!({v: "x"}).into()),
                None => Err(Failure {
                    errno: spirula_errno::EINVAL,
                    message: "var?".to_owned(),
                }),
            }
        }
    }

    async fn ask(path: &Path, request: &[u8]) -> String {
        let mut s = UnixStream::connect(path).await.unwrap();
        s.write_all(request).await.unwrap();
        let len = s.read_u32().await.unwrap();
        let mut out = vec![0; len as usize];
        s.read_exact(&mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_as_the_official_tool_expects() {
        let path = std::env::temp_dir().join(format!("spirula-asok-{}.asok", std::process::id()));
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&rt, async {
            let mut place = Place {
                path: path.clone(),
                mode: None,
            };
            let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            std::fs::write(&path, "no socket").unwrap();
            let refused = AdminSocket::bind(&place).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            std::fs::remove_file(&path).unwrap();
            {
                let _socket = AdminSocket::bind(&place).unwrap();
                assert_eq!(mode(), 0o600);
            }
            place.mode = Some(0o660);
            let socket = AdminSocket::bind(&place).unwrap();
            assert_eq!(mode(), 0o660);
            assert!(AdminSocket::bind(&place).is_err());
            tokio::task::spawn_local(async move { socket.serve(Rc::new(Demo)).await });
            let got = ask(
                &path,
                b"{\"prefix\": \"config get\", \"var\": \"a\", \"format\": \"json\"}\0",
            )
            .await;
            assert_eq!(got, "{\"a\":\"x\"}");
            let version = "{\n    \"version\": \"1\"\n}\n";
            for request in [
                &b"{\"prefix\": \"version\"}\0"[..],
                b"{ \"prefix\": \"version\" }\n",
                b"{\"prefix\": \"version\", \"format\": \"nope\"}\n",
            ] {
                assert_eq!(ask(&path, request).await, version);
            }
            let xml = ask(&path, b"{\"prefix\": \"version\", \"format\": \"xml\"}\n").await;
            assert_eq!(xml, "<version><version>1</version></version>");
            let got = ask(
                &path,
                b"{\"prefix\": \"get_command_descriptions\", \"format\": \"json\"}\0",
            )
            .await;
            let find = "\"sig\":[\"config\",\"get\",{\"name\":\"var\"";
            assert!(got.contains(find), "{got}");
            // As collectd's plugin asks, and as clients did before there was JSON.
            for (request, answer) in [
                (&b"{ \"prefix\": \"0\" }\n"[..], "2"),
                (b"\0\0\0\0", "2"),
                (b"{ \"prefix\": \"1\" }\n", "{\n    \"osd\": {}\n}\n"),
                (
                    b"{ \"prefix\": \"perfcounters_dump\" }\n",
                    "{\n    \"osd\": {}\n}\n",
                ),
                (b"\0\0\0\x01", "{\n    \"osd\": {}\n}\n"),
                (b"{ \"prefix\": \"2\" }\n", "{}\n"),
                (b"\0\0\0\x02", "{}\n"),
                (b"{ \"prefix\": \"perfcounters_schema\" }\0", "{}\n"),
            ] {
                assert_eq!(ask(&path, request).await, answer, "{request:?}");
            }
            for (request, text) in [
                (&b"version\n"[..], "invalid json"),
                (b"\n", "invalid json"),
                (b"[1]\n", "invalid json"),
                (b"{\"prefix\":\n\"version\"}\n", "invalid json"),
                (b"\0\0\0\x03", "unknown command prefix foo"),
                (b"{}\0", "unknown command prefix "),
                (b"{\"prefix\": \"nope\"}\0", "unknown command prefix nope"),
                (b"{\"prefix\": 5}\0", "invalid json, missing format and/or prefix"),
                (b"{\"prefix\": \"config get\"}\0", "invalid command json"),
                (
                    b"{\"prefix\": \"config get\", \"var\": 1}\0",
                    "invalid command json",
                ),
            ] {
                let want = format!("ERROR: (22) Invalid argument\n{text}\n");
                assert_eq!(ask(&path, request).await, want, "{request:?}");
            }
        });
    }
}
