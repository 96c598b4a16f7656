//! The audit log's entries on commands: the entity, and the command in one line of bounded length
//! that can be read in one way, without secrets.

use std::time::Duration;

use serde_json::{Value, json};
use spirula_cephx::AuthName;
use spirula_proto::mon::LogPriority;
use spirula_secret::HIDDEN;

use super::Args;
use crate::core::{Sender, Session, SessionId, Topic, View};
use crate::pace::Pace;

/// The longest text of a command, in bytes.
const MAX_TEXT: usize = 1024;
/// The refusals of one entity that are logged in each [`DENIED_PERIOD`].
const DENIED: u32 = 10;
/// The time after which the number of further refusals is logged.
const DENIED_PERIOD: Duration = Duration::from_secs(60);

/// Arguments that are secrets, or may be: of one command, or of all that begin with a prefix. No
/// option's name is among them as in `spirula_secret`'s list: whatever the option, the value that a
/// command sets is hidden.
const SECRETS: &[(&str, &str)] = &[
    ("config set", "value"),
    ("config-key put", "val"),
    ("config-key set", "val"),
    ("dashboard ", "value"),
    ("fs snapshot mirror peer_bootstrap import", "token"),
    ("orch ", "api_password"),
];

/// A command as JSON, without secrets. Text that a client sent after or around the object is left
/// out, and so is its spelling.
pub(crate) fn shown(args: &Args) -> String {
    let mut map = args.to_map();
    let prefix = args.prefix();
    for (command, name) in SECRETS {
        let same = prefix == *command || command.ends_with(' ') && prefix.starts_with(command);
        if same && let Some(value) = map.get_mut(*name) {
            *value = json!(HIDDEN);
        }
    }
    spirula_text::cut(Value::Object(map).to_string(), MAX_TEXT)
}

/// The audit log: the commands that were dispatched or denied.
pub(crate) struct Audit {
    /// The limit of entries on denied commands.
    denials: Pace<AuthName>,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            denials: Pace::new(DENIED, DENIED_PERIOD),
        }
    }
}

impl Audit {
    /// Notes that a session's command was dispatched or denied.
    pub(super) fn command(&mut self, view: &mut View, session: SessionId, args: &Args, allowed: bool) {
        let verdict = if allowed { "dispatch" } else { "access denied" };
        self.text(
            view,
            session,
            || format!("cmd=[{}]: {verdict}", shown(args)),
            allowed,
        );
    }

    /// Notes anything that was dispatched or denied. The text is only made if it is written.
    pub(crate) fn text(
        &mut self,
        view: &mut View,
        session: SessionId,
        text: impl FnOnce() -> String,
        allowed: bool,
    ) {
        let Some(sender) = view.sender(session) else {
            return;
        };
        if allowed || self.denials.admits(&sender.name, view.steady.now()) {
            line(view, &sender, LogPriority::INFO, &text());
        }
    }

    /// Notes how many refusals were not noted.
    pub(crate) fn tell_suppressed(&mut self, view: &mut View) {
        for (name, count) in self.denials.over(view.steady.now()) {
            let name = name.to_string().replace('\'', "\\'");
            let seconds = DENIED_PERIOD.as_secs();
            let text = format!("entity='{name}': access denied to {count} more commands within {seconds} s");
            view.audit_event(LogPriority::INFO, text);
        }
    }
}

/// Notes that a session's read-only command was dispatched, but only while somebody watches: the
/// log is replicated and stored, and clients that look at the cluster again and again are no reason
/// to write.
pub(super) fn read(view: &mut View, session: SessionId, args: &Args) {
    if !is_debug_watched(view) {
        return;
    }
    if let Some(sender) = view.sender(session) {
        let text = format!("cmd=[{}]: dispatch", shown(args));
        line(view, &sender, LogPriority::DEBUG, &text);
    }
}

/// Whether a session that may see the monitors' debug messages watches the cluster log here at the
/// debug level.
fn is_debug_watched(view: &View) -> bool {
    let watches = |s: &Session| {
        s.subs.contains_key(&Topic::Log(LogPriority::DEBUG)) && s.caps.is_allowed_service("mon", "r")
    };
    view.sessions.values().any(watches)
}

fn line(view: &mut View, sender: &Sender, priority: LogPriority, text: &str) {
    let from = spirula_text::addr_legacy(&sender.addr);
    let name = sender.name.to_string().replace('\'', "\\'");
    view.audit_event(priority, format!("from='{from}' entity='{name}' {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> String {
        shown(&Args::parse(&[json.to_owned()]).unwrap())
    }

    #[test]
    fn only_secrets_are_hidden() {
        for (json, text) in [
            (
                r#"{"prefix": "config-key set", "key": "k", "val": "secret"}x"#,
                r#"{"prefix":"config-key set","key":"k","val":"…"}"#,
            ),
            (
                r#"{"prefix":"config set","who":"osd","name":"n","value":["secret"]}"#,
                r#"{"prefix":"config set","who":"osd","name":"n","value":"…"}"#,
            ),
            (
                r#"{"prefix":"osd pool rm","pool":"key"}"#,
                r#"{"prefix":"osd pool rm","pool":"key"}"#,
            ),
        ] {
            assert_eq!(of(json), text);
        }
    }

    #[test]
    fn a_command_is_one_short_line() {
        let text = of("{\"prefix\":\"x\",\"a\":\"b\\nfrom='y'\"}\n: dispatch\nfrom='z'");
        assert_eq!(text, r#"{"prefix":"x","a":"b\nfrom='y'"}"#);
        let text = of(&format!(r#"{{"prefix":"x","a":"{}"}}"#, "ä".repeat(100_000)));
        assert!(text.len() < 1100 && text.ends_with("… (200021 bytes)"), "{text}");
    }
}
