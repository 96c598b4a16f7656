//! Commands: those that `ceph` sends, looked up in a table and answered as by the official monitor.

mod args;
mod at_manager;
mod audit;
mod auth;
mod blocklist;
mod ciphers;
mod config;
mod config_history;
mod config_key;
mod config_show;
mod crash;
mod crush;
mod crush_change;
mod crush_dump;
mod crush_weight_set;
mod daemon;
mod devices;
mod erasure_profile;
mod health_cmd;
mod iostat;
mod log;
mod manager;
mod misc;
mod modules;
mod mon_change;
mod official;
mod osd_change;
mod osd_df;
mod osd_dump;
mod osd_id;
mod osd_new;
mod osd_query;
mod osd_status;
mod osd_stop;
mod osd_tree;
mod osd_weight;
mod pg;
mod pg_dump;
mod pg_force;
mod pool;
mod pool_erasure;
mod pool_get;
mod pool_list;
mod pool_option;
mod pool_set;
mod pool_snap;
mod rbd_perf;
mod rbd_support;
mod reply;
mod report;
mod reweight_by;
mod scrub;
mod services;
mod signature;
mod space;
mod status;
mod unsupported;
mod xml_names;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};
pub use spirula_errno as errno;
use spirula_text::Format;

pub use args::{ArgResult, Args};
pub(crate) use at_manager::{denied_by_module, run_mgr, tell_mgr};
pub(crate) use audit::{Audit, shown};
pub use osd_id::{NoOsd, parse_osd};
pub(crate) use pool::{NewPool, create_pool, delete_pool};
pub use reply::Reply;

use crate::core::{Monitor, SessionId, Turn, View};
/// The outcome of a command.
#[derive(Debug)]
pub enum Outcome {
    /// An answer.
    Now(Reply),
    /// An answer to be sent once the prepared change is committed.
    Commit(Reply),
    /// A question to the manager's modules, which answer the command.
    Ask(Box<spirula_manager::Question>),
}

/// The result of a handler. Both sides are answers; an error is sent without waiting for a commit.
pub(crate) type Done = Result<Outcome, Reply>;

/// Answers now.
pub(crate) fn now(reply: Reply) -> Done {
    Ok(Outcome::Now(reply))
}

/// Answers after the commit, with a status line.
pub(crate) fn committed(status: impl Into<String>) -> Done {
    Ok(Outcome::Commit(Reply::status(status)))
}

/// Refuses.
pub(crate) fn refuse<T>(errno: errno::Errno, status: impl Into<String>) -> Result<T, Reply> {
    Err(Reply::error(errno, status))
}

/// A command with its arguments.
pub(crate) struct Call<'a> {
    pub(crate) args: Args,
    pub(crate) format: Format,
    pub(crate) session: SessionId,
    pub(crate) input: &'a Bytes,
}

/// A line of the table.
pub(crate) struct Command {
    signature: &'static str,
    module: &'static str,
    perm: &'static str,
    help: &'static str,
    run: fn(&mut Turn<'_>, &Call<'_>) -> Done,
}

/// Declares a family's table: signature, module and permissions, handler, help.
macro_rules! commands {
    ($($signature:literal $module:literal $perm:literal $run:path, $help:literal;)*) => {
        /// The family's commands.
        pub(super) const COMMANDS: &[$crate::command::Command] = &[$($crate::command::Command {
            signature: $signature, module: $module, perm: $perm, help: $help, run: $run,
        }),*];
    };
}
pub(crate) use commands;

const FAMILIES: &[&[Command]] = &[
    status::COMMANDS,
    health_cmd::COMMANDS,
    space::COMMANDS,
    misc::COMMANDS,
    manager::COMMANDS,
    devices::COMMANDS,
    iostat::COMMANDS,
    osd_status::COMMANDS,
    modules::COMMANDS,
    crash::COMMANDS,
    services::COMMANDS,
    mon_change::COMMANDS,
    report::COMMANDS,
    pg::COMMANDS,
    pg_dump::COMMANDS,
    pg_force::COMMANDS,
    scrub::COMMANDS,
    osd_query::COMMANDS,
    osd_stop::COMMANDS,
    osd_dump::COMMANDS,
    osd_tree::COMMANDS,
    osd_df::COMMANDS,
    osd_change::COMMANDS,
    erasure_profile::COMMANDS,
    osd_new::COMMANDS,
    blocklist::COMMANDS,
    osd_weight::COMMANDS,
    reweight_by::COMMANDS,
    crush::COMMANDS,
    crush_change::COMMANDS,
    crush_dump::COMMANDS,
    crush_weight_set::COMMANDS,
    pool::COMMANDS,
    pool_list::COMMANDS,
    pool_get::COMMANDS,
    pool_set::COMMANDS,
    pool_snap::COMMANDS,
    rbd_perf::COMMANDS,
    rbd_support::COMMANDS,
    auth::COMMANDS,
    ciphers::COMMANDS,
    config::COMMANDS,
    config_history::COMMANDS,
    config_key::COMMANDS,
    log::COMMANDS,
];

fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// The commands of this name: some have several signatures.
fn named(prefix: &str) -> impl Iterator<Item = &'static Command> + '_ {
    all().filter(move |c| signature::prefix(c.signature) == prefix)
}

/// A parsed command: its arguments, or the answer to a text that is no command.
pub(crate) type Parsed = Result<Args, Reply>;

/// Reads a command.
pub(crate) fn parse(cmd: &[String]) -> Parsed {
    Args::parse(cmd)
}

/// Whether a command changes replicated state and has to wait for its turn.
pub(crate) fn is_write(command: &Parsed) -> bool {
    let Ok(args) = command else { return false };
    named(args.prefix()).any(|c| c.perm.contains('w'))
}

/// The JSON with which the official tool parses command lines: Pacific's whole table, so that an
/// unsupported command is answered rather than unknown, and the supported commands of later
/// releases.
pub fn descriptions() -> Value {
    let mut out = Map::new();
    for (i, o) in official::all().enumerate() {
        let prefix = signature::prefix(o.signature);
        let why =
            || unsupported::reason(&prefix).map_or_else(String::new, |why| format!("not supported: {why}"));
        let mut served = named(&prefix).map(|c| c.signature);
        let signature = served.find(|s| o.is_served_as(s)).unwrap_or(o.signature);
        let help = named(&prefix).next().map_or_else(why, |c| c.help.to_owned());
        out.insert(
            format!("cmd{i:03}"),
            json!({"sig": signature::describe(signature), "help": help, "module": o.module, "perm": o.perm,
                   "flags": o.shown_flags().0}),
        );
    }
    let later = all().filter(|c| official::find(&signature::prefix(c.signature)).is_none());
    for (i, c) in (out.len()..).zip(later) {
        out.insert(
            format!("cmd{i:03}"),
            json!({"sig": signature::describe(c.signature), "help": c.help, "module": c.module, "perm": c.perm, "flags": 0}),
        );
    }
    Value::Object(out)
}

/// Runs a command of a session; a command that writes must have its turn.
pub(crate) fn run(mon: &mut Monitor, session: SessionId, command: Parsed, input: &Bytes) -> Outcome {
    command
        .and_then(|args| try_run(mon, session, args, input))
        .unwrap_or_else(Outcome::Now)
}

/// Checks the session's capabilities for a command of a service, at the manager also for one of its
/// modules; notes the command in the audit log if it may change something or is denied.
fn admit(
    mon: &mut Monitor,
    session: SessionId,
    args: &Args,
    subject: (&str, &str),
    perm: &str,
) -> Result<(), Reply> {
    let strings = args.as_strings();
    let (allowed, denial) = match mon.view.state.manager.sessions.get(&session) {
        Some(s) => (
            s.is_allowed(subject, args.prefix(), &strings, perm),
            at_manager::DENIED,
        ),
        None => {
            let s = mon.view.sessions.get(&session);
            let allowed = s.is_some_and(|s| s.caps.is_allowed(subject.0, args.prefix(), &strings, perm));
            (allowed, "access denied")
        }
    };
    match perm.contains('w') || !allowed {
        true => mon.audit.command(&mut mon.view, session, args, allowed),
        false => audit::read(&mut mon.view, session, args),
    }
    match allowed {
        true => Ok(()),
        false => refuse(errno::EACCES, denial),
    }
}

fn try_run(mon: &mut Monitor, session: SessionId, args: Args, input: &Bytes) -> Done {
    if args.prefix() == "get_command_descriptions" {
        return now(Reply::data(Format::Json.render(&descriptions())));
    }
    match args.opt_str("prefix").as_deref() {
        None => return refuse(errno::EINVAL, "command prefix not found"),
        Some("") => return refuse(errno::EINVAL, "command prefix must not be empty"),
        Some(_) => {}
    }
    let command = named(args.prefix()).next();
    let known = official::find(args.prefix());
    let (module, perm) = match (command, known) {
        (Some(c), _) => (c.module, c.perm),
        (None, Some(o)) => (o.module, o.perm),
        (None, None) => return refuse(errno::EINVAL, "command not known"),
    };
    admit(mon, session, &args, (module, ""), perm)?;
    let Some(command) = command else {
        return Err(known.map_or_else(|| unsupported::reply(args.prefix()), |o| o.refusal()));
    };
    execute(mon, session, command, args, input)
}

/// The arguments of every command.
const COMMON: [&str; 2] = ["prefix", "format"];

/// Runs a command that the session may run.
fn execute(mon: &mut Monitor, session: SessionId, command: &Command, args: Args, input: &Bytes) -> Done {
    // Ceph's manager leaves the arguments of these to their module, which has errors of its own.
    let mut args = args;
    if !command.signature.starts_with("rbd ") {
        signature::check(command.signature, &args)?;
        // A handler that serves several commands reads nothing that this one has not.
        let names = named(args.prefix()).flat_map(|c| signature::names(c.signature));
        let names: BTreeSet<&str> = names.chain(COMMON).collect();
        args = args.only(&names);
    }
    let names = xml_names::of(&args);
    let format = args.format();
    let call = Call {
        args,
        format,
        session,
        input,
    };
    Ok(match mon.attempt(|turn| (command.run)(turn, &call))? {
        Outcome::Now(reply) => Outcome::Now(reply.named(names.get())),
        Outcome::Commit(reply) => Outcome::Commit(reply.named(names.get())),
        asked @ Outcome::Ask(_) => asked,
    })
}

/// A command for this monitor itself: `ceph tell mon.a …`.
pub fn tell(mon: &mut Monitor, session: SessionId, cmd: &[String]) -> Reply {
    let args = match Args::parse(cmd) {
        Ok(a) => a,
        Err(r) => return r,
    };
    // Ceph wants these capabilities for whatever is asked.
    let perm = if daemon::only_reads(args.prefix()) {
        "r"
    } else {
        "rwx"
    };
    let allowed = mon
        .view
        .sessions
        .get(&session)
        .is_some_and(|s| s.caps.is_allowed("mon", args.prefix(), &args.as_strings(), perm));
    if !allowed {
        return Reply::error(errno::EACCES, "insufficient caps");
    }
    answer_daemon_command(&args, DAEMON_COMMANDS, |prefix, args| {
        daemon_command(&mut mon.daemon(), prefix, args)
    })
}

/// Answers a command of `ceph tell`, as the admin socket of a daemon with these commands would.
fn answer_daemon_command(
    args: &Args,
    commands: &[spirula_asok::Command],
    run: impl FnOnce(&str, &Map<String, Value>) -> Result<spirula_asok::Answer, spirula_asok::Failure>,
) -> Reply {
    let answer = spirula_asok::Request::of(args.to_map()).and_then(|request| {
        let answer = match request.builtin(commands, &crate::version::daemon()) {
            Some(answer) => answer?,
            None => run(&request.prefix, &request.args)?,
        };
        Ok((request.render(&answer.value), answer.status))
    });
    match answer {
        Ok((output, status)) => Reply::data(output).with_status(status),
        Err(e) => Reply::error(e.errno, e.message),
    }
}

pub(crate) use daemon::{DAEMON_COMMANDS, daemon_command};
pub(crate) use misc::daemon_versions;

/// The answer to a ping: health and monitor status, as `ceph ping mon.a` prints it.
pub(crate) fn ping_text(mon: &View) -> String {
    let v = json!({"health": health_cmd::health_json(mon, false), "mon_status": status::mon_status(mon)});
    String::from_utf8(Format::JsonPretty.render(&v)).unwrap_or_default()
}
