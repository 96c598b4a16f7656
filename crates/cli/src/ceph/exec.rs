//! Runs commands: fetches a target's descriptions, matches the words, sends, prints.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use spirula_client::errno::{self, Errno};
use spirula_client::{CommandReply, Rados};
use spirula_maps::OsdId;
use spirula_proto::mon::CommandFlags;

use super::common::name_of;
use super::matching::{self, Match};
use super::options::Options;
use super::output::Output;
use super::signature::{self, Command};
use super::target::Target;

/// A connection, and the options of all commands on it.
pub(crate) struct Executor<'a> {
    pub(crate) rados: &'a Rados,
    pub(crate) options: &'a Options,
    pub(crate) input: Bytes,
}

/// What is answered where nothing is left to print.
fn ended() -> CommandReply {
    CommandReply {
        result: 0,
        status: String::new(),
        output: Bytes::new(),
    }
}

fn failed(errno: Errno, status: impl Into<String>) -> CommandReply {
    CommandReply {
        result: -errno,
        status: status.into(),
        output: Bytes::new(),
    }
}

/// Writes to standard output at once. A closed pipe is no error.
pub(crate) fn print(output: &[u8]) {
    let mut out = io::stdout().lock();
    // Nothing can be done about it, as with the official tool.
    let _ = out.write_all(output).and_then(|()| out.flush());
}

impl Executor<'_> {
    /// Sends a command to a target.
    pub(crate) async fn send(&self, target: &Target, mut command: Map<String, Value>) -> CommandReply {
        if let Target::Pg(pg) = target {
            command.insert("pgid".into(), pg.clone().into());
        }
        let for_manager = command
            .get("target")
            .is_some_and(|t| *t == json!(["mon-mgr", ""]));
        let text = Value::Object(command).to_string();
        if self.options.verbose {
            eprintln!("submit {text} to {target}");
        }
        let input = self.input.clone();
        let sent = match target {
            Target::Mon(None) if for_manager => self.rados.mgr_command(&text, input).await,
            Target::Mon(None) => self.rados.mon_command(&text, input).await,
            Target::Mon(Some(name)) => self.rados.tell_mon(name, &text, input).await,
            Target::Mgr(name) => {
                let name = name.as_deref().unwrap_or_default();
                self.rados.tell_mgr(name, &text, input).await
            }
            Target::Osd(number) => match OsdId::of_item(*number) {
                Some(osd) => self.rados.osd_command(osd, &text, input).await,
                None => return failed(errno::ENOENT, ""),
            },
            Target::Pg(pg) => match pg.parse() {
                Ok(id) => self.rados.pg_command(id, &text, input).await,
                Err(_) => return failed(errno::EINVAL, ""),
            },
            Target::Mds(_) | Target::All(_) => return failed(errno::ENOENT, ""),
        };
        match sent {
            Ok(reply) if reply.result == errno::ETIMEDOUT.code() && reply.status.is_empty() => failed(
                errno::ETIMEDOUT,
                "Connection timed out. Please check the client's permission and connection.",
            ),
            Ok(reply) => reply,
            Err(e) => failed(e.errno(), ""),
        }
    }

    /// Sends a command without arguments and parses its JSON output.
    async fn ask(&self, prefix: &str) -> Option<Value> {
        let command = json!({"prefix": prefix, "format": "json"});
        let Value::Object(command) = command else {
            return None;
        };
        let reply = self.send(&Target::Mon(None), command).await;
        (reply.result == 0).then(|| serde_json::from_slice(&reply.output).ok())?
    }

    /// The daemons of a kind, as names after `tell`; `None` where the monitors don't tell.
    pub(crate) async fn daemons(&self, kind: &str) -> Option<Vec<String>> {
        let names = |list: &Value, key: &str| {
            let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
            let names = items.iter().filter_map(|i| i[key].as_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        match kind {
            "mon" => Some(names(&self.ask("mon dump").await?["mons"], "name")),
            "osd" => {
                let list = self.ask("osd ls").await?;
                Some(list.as_array()?.iter().map(ToString::to_string).collect())
            }
            "mgr" => Some(vec![
                self.ask("mgr dump").await?["active_name"].as_str()?.to_owned(),
            ]),
            "mds" => Some(names(&self.ask("fs dump").await?["standbys"], "name")),
            _ => None,
        }
    }

    /// The commands that a target offers.
    ///
    /// # Errors
    /// Its refusal.
    pub(crate) async fn descriptions(&self, target: &Target) -> Result<Vec<Command>, CommandReply> {
        let command = Map::from_iter([("prefix".to_owned(), "get_command_descriptions".into())]);
        let reply = self.send(target, command).await;
        if reply.result != 0 {
            return Err(reply);
        }
        signature::parse(&reply.output).map_err(|e| failed(errno::EINVAL, e.to_string()))
    }

    /// Runs the words as a command of a target.
    pub(crate) async fn run(&self, target: &Target, commands: &[Command], words: &[String]) -> CommandReply {
        let (command, mut values) = match matching::find(commands, words) {
            Match::Found(command, values) => (command, values),
            Match::None(messages) => {
                for line in messages {
                    eprintln!("{line}");
                }
                return failed(errno::EINVAL, "invalid command");
            }
        };
        if let Some(format) = &self.options.format {
            values.insert("format".into(), format.as_str().into());
        }
        if command.flags.contains(CommandFlags::POLL) {
            return self.poll(target, values).await;
        }
        self.send(target, values).await
    }

    /// Repeats a command until it fails or the user interrupts.
    async fn poll(&self, target: &Target, mut values: Map<String, Value>) -> CommandReply {
        let TerminalSize { columns, rows } = terminal_size();
        values.insert("width".into(), columns.into());
        let mut until_header = 0;
        loop {
            if until_header == 0 {
                until_header = rows.saturating_sub(3).max(1);
            }
            values.insert(
                "print_header".into(),
                (until_header == rows.saturating_sub(3).max(1)).into(),
            );
            until_header -= 1;
            let reply = self.send(target, values.clone()).await;
            if reply.result != 0 {
                eprintln!("Error: {} {}", reply.result.abs(), name_of(reply.result));
                return reply;
            }
            if !reply.output.is_empty() {
                print(&[&reply.output[..], b"\n"].concat());
            }
            if !reply.status.is_empty() {
                eprintln!("{}", reply.status);
            }
            if self.options.period <= 0.0 {
                return ended();
            }
            let period = Duration::try_from_secs_f64(self.options.period).unwrap_or(Duration::MAX);
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                _ = tokio::signal::ctrl_c() => {
                    println!("Interrupted");
                    return ended();
                }
            }
        }
    }

    /// Runs the words at every target and prints; the exit code is the last failure's errno.
    pub(crate) async fn run_at(&self, targets: &[Target], words: &[String], out: &mut Output) -> i32 {
        let mut code = 0;
        for target in targets {
            let many = targets.len() > 1 && !out.is_file();
            let reply = match self.descriptions(target).await {
                Ok(commands) => self.run(target, &commands, words).await,
                Err(refusal) => CommandReply {
                    status: format!("problem getting command descriptions from {target}"),
                    ..refusal
                },
            };
            let label = if many {
                format!("{target}: ")
            } else {
                String::new()
            };
            if let Err(e) = out.write(&reply.output, &label, self.options.format.as_deref()) {
                eprintln!("{e}");
                code = 1;
            }
            if reply.result < 0 {
                eprintln!("Error {}: {}", name_of(reply.result), reply.status);
                code = -reply.result;
            } else if !reply.status.is_empty() {
                eprintln!("{label}{}", reply.status);
            }
        }
        code
    }
}

/// The size of a terminal, in characters.
pub(crate) struct TerminalSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The size of the terminal, 80 by 25 where there is none.
pub(crate) fn terminal_size() -> TerminalSize {
    match rustix::termios::tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_col > 0 => TerminalSize {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        },
        _ => TerminalSize {
            columns: 80,
            rows: 25,
        },
    }
}
