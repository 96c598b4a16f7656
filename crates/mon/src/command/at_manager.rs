//! Commands that a client sends to the manager: the commands of Ceph's manager, under its
//! capabilities.

use serde_json::{Map, json};

use super::{
    Args, Done, Outcome, Parsed, Reply, admit, answer_daemon_command, daemon, errno, execute, named, now,
    official, refuse, signature,
};
use crate::core::{Effect, Monitor, SessionId, Turn};
use bytes::Bytes;
use spirula_asok::osd_network;
use spirula_text::Format;

/// The module of Ceph's manager that a command belongs to, by the command's leading words, as
/// capabilities name it. The first match counts.
const MODULES: &[(&str, &str)] = &[
    ("osd pool", "pg_autoscaler"),
    ("osd status", "status"),
    ("fs status", "status"),
    ("fs perf stats", "stats"),
    ("fs snap-schedule", "snap_schedule"),
    ("fs snapshot mirror", "mirroring"),
    ("fs", "volumes"),
    ("device", "devicehealth"),
    ("healthcheck", "prometheus"),
    ("mgr self-test", "selftest"),
    ("orch", "orchestrator"),
    ("rbd", "rbd_support"),
];

/// Commands filed under the manager that belong to none of its modules.
const OWN: &[&str] = &[
    "config show",
    "config show-with-defaults",
    "device info",
    "device ls",
    "device ls-by-daemon",
    "device ls-by-host",
    "device rm-life-expectancy",
    "device set-life-expectancy",
];

/// The service and the module of a command. The manager's own commands have no module.
fn subject(prefix: &str, o: &official::Official) -> (&'static str, String) {
    if o.module != "mgr" || OWN.contains(&prefix) {
        return (o.module, String::new());
    }
    let leads = |words: &str| {
        let rest = prefix.strip_prefix(words);
        rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
    };
    let found = MODULES.iter().find(|(words, _)| leads(words));
    let first = || prefix.split(' ').next().unwrap_or_default();
    ("py", found.map_or_else(first, |(_, module)| module).to_owned())
}

/// Runs a command of a session with the manager; a command that writes must have its turn.
pub(crate) fn run_mgr(mon: &mut Monitor, session: SessionId, command: Parsed, input: &Bytes) -> Outcome {
    command
        .and_then(|args| try_run(mon, session, args, input))
        .unwrap_or_else(Outcome::Now)
}

fn try_run(mon: &mut Monitor, session: SessionId, args: Args, input: &Bytes) -> Done {
    let prefix = args.prefix().to_owned();
    if prefix == "get_command_descriptions" {
        return now(Reply::data(Format::Json.render(&descriptions().into())));
    }
    let known = official::find(&prefix).filter(official::Official::is_managers);
    let (service, module) = known
        .as_ref()
        .map_or_else(|| ("py", String::new()), |o| subject(&prefix, o));
    let perm = known.map_or("", |o| o.perm);
    admit(mon, session, &args, (service, &module), perm)?;
    let Some(known) = known else {
        return refuse(errno::EINVAL, format!("No handler found for '{prefix}'"));
    };
    match named(&prefix).next() {
        Some(command) => execute(mon, session, command, args, input),
        None => Err(known.refusal()),
    }
}

fn descriptions() -> Map<String, serde_json::Value> {
    let managers = official::all().filter(official::Official::is_managers);
    let describe = |(i, o): (usize, official::Official)| {
        let prefix = signature::prefix(o.signature);
        let help = named(&prefix).next().map_or("", |c| c.help);
        let v = json!({"sig": signature::describe(o.signature), "help": help, "module": o.module, "perm": o.perm, "flags": 0});
        (format!("cmd{i:03}"), v)
    };
    managers.enumerate().map(describe).collect()
}

/// The commands of `ceph tell mgr`.
const MANAGERS_COMMANDS: &[spirula_asok::Command] = &[
    daemon::PERF_DUMP,
    daemon::PERF_SCHEMA,
    spirula_asok::Command {
        name: "dump_osd_network",
        params: &[("value?", "CephInt")],
        help: "dump heartbeat times of all OSDs",
    },
];

/// Runs a command for the manager as a daemon: `ceph tell mgr …`. The manager is part of the
/// monitor, whose values and counters it shows.
pub(crate) fn tell_mgr(mon: &mut Monitor, session: SessionId, cmd: &[String]) -> Reply {
    let args = match Args::parse(cmd) {
        Ok(a) => a,
        Err(r) => return r,
    };
    let all = mon
        .view
        .state
        .manager
        .sessions
        .get(&session)
        .is_some_and(|s| s.is_allowed_all());
    if !all {
        return Reply::error(errno::EACCES, DENIED);
    }
    answer_daemon_command(&args, MANAGERS_COMMANDS, |prefix, args| match prefix {
        "dump_osd_network" => {
            let threshold = args.get("value").and_then(serde_json::Value::as_i64);
            let stats = mon.view.state.stats.osds.iter();
            let pings = stats.flat_map(|(from, stat)| {
                stat.hb_pingtime.iter().map(|(to, times)| osd_network::Pings {
                    from: *from,
                    to: *to,
                    times: *times,
                })
            });
            Ok(osd_network::dump(pings, threshold, &mon.view.values, mon.view.now).into())
        }
        _ => daemon::daemon_command(&mut mon.daemon(), prefix, args),
    })
}

/// The longest status of a module in the audit log, in bytes.
const MAX_STATUS: usize = 1024;

/// Notes in the audit log that a module has refused a command for lack of capabilities, and adds
/// where to find help.
pub(crate) fn denied_by_module(turn: &mut Turn<'_>, session: SessionId, reply: Reply) -> Reply {
    let text = format!(
        "{}: access denied",
        spirula_text::cut(reply.status.clone(), MAX_STATUS)
    );
    turn.effect(Effect::AuditRefusal(session, text));
    let status = format!("{}{DENIED}", reply.status);
    reply.with_status(status)
}

/// The answer to a client without the capabilities at the manager.
pub(super) const DENIED: &str = "access denied: does your client key have mgr caps? See \
                                 http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_belong_to_the_modules_that_capabilities_name() {
        let of = |prefix: &str| subject(prefix, &official::find(prefix).unwrap());
        for (prefix, service, module) in [
            ("pg dump", "pg", ""),
            ("osd df", "osd", ""),
            ("config show", "mgr", ""),
            ("device ls", "mgr", ""),
            ("device monitoring on", "py", "devicehealth"),
            ("service dump", "service", ""),
            ("rbd task list", "py", "rbd_support"),
            ("balancer status", "py", "balancer"),
            ("osd pool autoscale-status", "py", "pg_autoscaler"),
            ("fs volume ls", "py", "volumes"),
            ("crash ls", "py", "crash"),
            ("osd status", "py", "status"),
        ] {
            assert_eq!(of(prefix), (service, module.to_owned()), "{prefix}");
        }
    }
}
