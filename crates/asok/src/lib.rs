//! The admin socket that `ceph daemon NAME COMMAND` talks to (`src/common/admin_socket.cc`).
//!
//! A Unix socket in the daemon's run directory. The client writes one JSON object that ends with a NUL byte (or, in
//! the oldest form, a bare command up to a line feed); the daemon answers with a big-endian `u32` length and the
//! output, and closes. The official tool first asks for `get_command_descriptions`, then sends the command.
//!
//! The daemon implements [`Handler`] in its own event loop; this module only moves bytes, on the caller's
//! single-threaded runtime.

pub mod config;
pub mod op_history;
pub mod osd_network;
pub mod perf;

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Longest request that is read.
const MAX_REQUEST: usize = 64 << 10;
/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Clients served at once; more wait to be accepted.
const MAX_CLIENTS: usize = 16;

/// A command the socket offers.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Literal words, such as `config show`.
    pub name: &'static str,
    /// Parameters: name and Ceph type, such as `("var", "CephString")`; a name that ends with `?` is optional, one that
    /// ends with `*` (or `*?`) may be given more than once. A type `CephChoices,strings=a|b` names its choices.
    pub params: &'static [(&'static str, &'static str)],
    /// One line of help.
    pub help: &'static str,
}

/// A failed command: a negative errno and text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Negative errno.
    pub code: i32,
    /// What is wrong.
    pub message: String,
}

/// What a daemon offers on its socket.
pub trait Handler {
    /// The commands, besides `help`, `get_command_descriptions`, `version` and `0`, which are served here, and those of
    /// [`config`], which every daemon runs on its own values.
    fn commands(&self) -> &'static [Command];

    /// The version object: `{"version": …, "release": …, "release_type": …}`.
    fn version(&self) -> Value;

    /// Runs a command: `args` holds `prefix` and the parameters.
    ///
    /// # Errors
    /// [`Failure`] is printed as the official daemons print it.
    fn run(&self, prefix: &str, args: &Map<String, Value>) -> impl Future<Output = Result<Value, Failure>>;
}

/// Where a daemon's admin socket goes.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its path.
    pub path: PathBuf,
    /// Its permissions (`admin_socket_mode`); `None`: nobody but the daemon's user.
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
/// `AddrInUse` if a living process answers on it; `AlreadyExists` if something else than a socket is there, which is kept;
/// `PermissionDenied` if it belongs to somebody else; any other error of the file system.
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
    let request = tokio::time::timeout(REQUEST_TIME, read_request(&mut stream))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let output = answer(&request, handler).await;
    let len = u32::try_from(output.len()).map_err(|_| io::Error::other("output too long"))?;
    stream.write_all(&len.to_be_bytes()).await?;
    stream.write_all(&output).await
}

async fn read_request(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        // A JSON command may hold line feeds; the oldest form is a bare word.
        if byte == 0 || (byte == b'\n' && out.first() != Some(&b'{')) {
            return Ok(out);
        }
        if out.len() == MAX_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "request too long"));
        }
        out.push(byte);
    }
}

/// The answer to a request, without the byte that ends it.
pub async fn answer<H: Handler>(request: &[u8], handler: &H) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let args = match serde_json::from_str(text.trim()) {
        Ok(Value::Object(map)) => map,
        _ => match bare(text.trim()) {
            Some(map) => map,
            None => return b"error: invalid command\n".to_vec(),
        },
    };
    let prefix = args
        .get("prefix")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let format = args.get("format").and_then(Value::as_str);
    let result = match prefix.as_str() {
        "0" => return b"2".to_vec(),
        "version" => Ok(handler.version()),
        "help" => Ok(help(handler.commands())),
        "get_command_descriptions" => Ok(describe(handler.commands())),
        "git_version" => Ok(json!({"git_version": handler.version()["version"].clone()})),
        known
            if handler
                .commands()
                .iter()
                .chain(config::COMMANDS)
                .any(|c| c.name == known) =>
        {
            handler.run(known, &args).await
        }
        _ => Err(Failure {
            code: -22,
            message: "unrecognized command! [".to_owned() + &text + "]",
        }),
    };
    let compact = format == Some("json") || prefix == "get_command_descriptions";
    match result {
        Ok(v) if compact => v.to_string().into_bytes(),
        Ok(v) => pretty(&v),
        Err(e) => format!("ERROR: ({}) {}\n", e.code, e.message).into_bytes(),
    }
}

fn bare(word: &str) -> Option<Map<String, Value>> {
    let fine =
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && !word.starts_with('{');
    fine.then(|| Map::from_iter([("prefix".to_owned(), json!(word))]))
}

/// A command's output as text: JSON with indentation, and a text as it is.
pub fn pretty(v: &Value) -> Vec<u8> {
    if let Value::String(text) = v {
        return text.clone().into_bytes();
    }
    let mut out = Vec::new();
    let style = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut ser = serde_json::Serializer::with_formatter(&mut out, style);
    if serde::Serialize::serialize(v, &mut ser).is_err() {
        // Writing into memory does not fail; an empty answer is still well-formed for the client.
        out.clear();
    }
    // The official formatter ends a section with a line feed, but no bare number.
    if v.is_object() || v.is_array() {
        out.push(b'\n');
    }
    out
}

/// The commands served here for every daemon.
const BUILTIN: &[Command] = &[
    Command {
        name: "0",
        params: &[],
        help: "",
    },
    Command {
        name: "get_command_descriptions",
        params: &[],
        help: "list available commands",
    },
    Command {
        name: "git_version",
        params: &[],
        help: "get git sha1",
    },
    Command {
        name: "help",
        params: &[],
        help: "list available commands",
    },
    Command {
        name: "version",
        params: &[],
        help: "get ceph version",
    },
];

/// The commands with what they do.
pub fn help(commands: &[Command]) -> Value {
    let mut all: Vec<&Command> = commands
        .iter()
        .chain(config::COMMANDS)
        .chain(BUILTIN)
        .filter(|c| !c.help.is_empty())
        .collect();
    all.sort_by_key(|c| c.name);
    Value::Object(all.iter().map(|c| (c.name.to_owned(), json!(c.help))).collect())
}

/// The JSON that the official `ceph` tool parses to validate a command line.
pub fn describe(commands: &[Command]) -> Value {
    let mut out = Map::new();
    for (i, c) in commands.iter().chain(config::COMMANDS).chain(BUILTIN).enumerate() {
        let mut sig: Vec<Value> = c.name.split(' ').map(Value::from).collect();
        for (name, kind) in c.params {
            let (kind, choices) = kind.split_once(',').unwrap_or((kind, ""));
            let mut p = Map::from_iter([
                ("name".to_owned(), json!(name.trim_end_matches(['?', '*']))),
                ("type".to_owned(), json!(kind)),
            ]);
            if let Some(strings) = choices.strip_prefix("strings=") {
                p.insert("strings".to_owned(), json!(strings));
            }
            if name.ends_with('?') {
                p.insert("req".to_owned(), json!("false"));
            }
            if name.trim_end_matches('?').ends_with('*') {
                p.insert("n".to_owned(), json!("N"));
            }
            sig.push(Value::Object(p));
        }
        out.insert(format!("cmd{i:03}"), json!({"sig": sig, "help": c.help}));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Demo;

    impl Handler for Demo {
        fn commands(&self) -> &'static [Command] {
            &[Command {
                name: "config get",
                params: &[("var", "CephString")],
                help: "one option",
            }]
        }

        fn version(&self) -> Value {
            json!({"version": "1"})
        }

        async fn run(&self, _prefix: &str, args: &Map<String, Value>) -> Result<Value, Failure> {
            match args.get("var").and_then(Value::as_str) {
                Some(v) => Ok(json!({v: "x"})),
                None => Err(Failure {
                    code: -22,
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
            assert_eq!(ask(&path, b"version\n").await, "{\n    \"version\": \"1\"\n}\n");
            let got = ask(&path, b"{\"prefix\": \"get_command_descriptions\"}\0").await;
            assert!(
                got.starts_with("{\"cmd000\":{\"sig\":[\"config\",\"get\",{\"name\":\"var\""),
                "{got}"
            );
            assert!(
                ask(&path, b"{\"prefix\": \"nope\"}\0")
                    .await
                    .contains("unrecognized")
            );
        });
    }
}
