//! A request: decoded, checked against the existing commands, and its answer formatted.

use std::io;

use serde_json::{Map, Value, json};
use spirula_errno::EINVAL;
use spirula_text::{Format, Names};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::{Answer, Failure, command};

/// The longest request that is accepted, in bytes.
const MAX_REQUEST: usize = 64 << 10;

/// Reads a request: text up to a NUL byte or line feed. If the first byte is NUL, it is a
/// big-endian `u32`, the form from before JSON.
///
/// # Errors
/// Those of the socket; `InvalidData` for a request that is too long.
pub async fn read(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let first = stream.read_u8().await?;
    if first == 0 {
        let mut rest = [0; 3];
        stream.read_exact(&mut rest).await?;
        let prefix = match rest[2] {
            0 => "0",
            1 => "perfcounters_dump",
            2 => "perfcounters_schema",
            _ => "foo",
        };
        return Ok(json!({"prefix": prefix}).to_string().into_bytes());
    }
    let (mut out, mut byte) = (Vec::new(), first);
    while byte != 0 && byte != b'\n' {
        if out.len() == MAX_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "request too long"));
        }
        out.push(byte);
        byte = stream.read_u8().await?;
    }
    Ok(out)
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure {
        errno: EINVAL,
        message: message.into(),
    }
}

/// A command with its arguments.
#[derive(Debug, Clone)]
pub struct Request {
    /// The command's name; a former name is replaced by today's.
    pub prefix: String,
    /// The format of the answer.
    pub format: Format,
    /// All arguments.
    pub args: Map<String, Value>,
}

impl Request {
    /// A request from its JSON. Text behind the object is ignored, as by official daemons.
    ///
    /// # Errors
    /// `EINVAL` with the official text.
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        let text = String::from_utf8_lossy(text);
        match serde_json::Deserializer::from_str(&text).into_iter().next() {
            Some(Ok(Value::Object(args))) => Self::of(args),
            _ => Err(invalid("invalid json")),
        }
    }

    /// A request from its arguments.
    ///
    /// # Errors
    /// `EINVAL` with the official text.
    pub fn of(args: Map<String, Value>) -> Result<Self, Failure> {
        let name = |key| match args.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.as_str())),
            Some(_) => Err(invalid("invalid json, missing format and/or prefix")),
        };
        let prefix = match name("prefix")?.unwrap_or_default() {
            "1" | "perfcounters_dump" => "perf dump",
            "2" | "perfcounters_schema" => "perf schema",
            other => other,
        };
        Ok(Self {
            prefix: prefix.to_owned(),
            format: Format::parse(name("format")?).or_pretty(),
            args,
        })
    }

    /// Answers the commands that every daemon answers in the same way, and unknown commands. `None`
    /// if the daemon has to answer.
    pub fn builtin(&self, own: &[command::Command], version: &Value) -> Option<Result<Answer, Failure>> {
        let mut named = command::all(own)
            .into_iter()
            .filter(|c| c.name == self.prefix)
            .peekable();
        if named.peek().is_none() {
            return Some(Err(invalid(format!("unknown command prefix {}", self.prefix))));
        }
        if !named.any(|c| c.takes(&self.args)) {
            return Some(Err(invalid("invalid command json")));
        }
        let value = match self.prefix.as_str() {
            "0" => json!("2"),
            "version" => version.clone(),
            "git_version" => json!({"git_version": version["version"]}),
            "help" => command::help(own),
            "get_command_descriptions" => command::describe(own),
            _ => return None,
        };
        Some(Ok(value.into()))
    }

    /// Formats a command's output: a text as it is, anything else in the requested format.
    pub fn render(&self, v: &Value) -> Vec<u8> {
        if let Value::String(text) = v {
            return text.clone().into_bytes();
        }
        let names = Names {
            root: &self.prefix,
            item: "",
        };
        self.format.render_named(v, names)
    }
}
