//! `ceph -h`: the tool's own options, and the commands that the monitors offer.

use spirula_proto::mon::CommandFlags;

use super::signature::Command;

/// The tool's own arguments.
const GENERAL: &str = "
 General usage:
 ==============
usage: ceph [options] COMMAND...
       ceph [options] tell DAEMON COMMAND...
       ceph daemon {NAME | PATH} COMMAND...

options:
  -h, --help            show this text and the monitors' commands
  -c, --conf FILE       configuration file
  -n, --name TYPE.ID    who logs in
  --id, --user ID       who logs in, of type client
  -k, --keyring FILE    where the key is
  -m, --mon-host ADDR   monitors' addresses
  --connect-timeout S   how long to try for a session, in seconds
  -s, --status          the cluster's status
  -w, --watch           the status, then the cluster log as it is written
  --watch-debug, --watch-info, --watch-sec, --watch-warn, --watch-error
                        the same, of at least this level
  -W, --watch-channel CHANNEL
                        the same, of one channel (cluster, audit) or of all (*)
  -f, --format {json,json-pretty,xml,xml-pretty,plain,yaml}
                        format of the output
  -i, --in-file FILE    the command's input, - for standard input
  -o, --out-file FILE   where the output goes, - for standard output
  --setuser USER, --setgroup GROUP
                        owner of the output file
  --admin-daemon PATH   send the command to this admin socket
  -p, --period S        pause of commands that repeat themselves, in seconds
  --verbose             say what is done
  -v, --version         version

 Local commands:
 ===============
  ping mon.ID           whether a monitor lives, mon.* for all
  daemon {NAME | PATH} COMMAND
                        a command through a daemon's admin socket
";

/// The usage that follows the message about a bad option.
pub(crate) const USAGE: &str = "usage: ceph [-h] [-c CONF] [-n NAME] [--id ID] [-k KEYRING] [-m MON_HOST]
            [-i IN_FILE] [-o OUT_FILE] [--setuser USER] [--setgroup GROUP]
            [--admin-daemon PATH] [-s] [-w] [--watch-debug] [--watch-info]
            [--watch-sec] [--watch-warn] [--watch-error] [-W CHANNEL]
            [-f {json,json-pretty,xml,xml-pretty,plain,yaml}]
            [--connect-timeout SECONDS] [-p PERIOD] [--verbose] [-v]";

/// The general part.
pub(crate) fn general() -> &'static str {
    GENERAL
}

/// A heading over a list of commands.
pub(crate) fn heading(text: &str) -> String {
    format!("\n {text} \n {}", "=".repeat(text.len()))
}

/// Cuts text into lines of at most `width` characters, after the first indented by one blank; at
/// blanks and punctuation where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let keeps_together = |c: &char| c.is_ascii_alphabetic() || "{[<>]}".contains(*c);
    let mut rest: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let indent = if lines.is_empty() { "" } else { " " };
        let room = width - indent.len();
        if rest.len() <= room {
            let last: String = rest.iter().collect();
            lines.push(format!("{indent}{last}"));
            break;
        }
        let at = (1..=room)
            .rev()
            .find(|at| !keeps_together(&rest[at - 1]))
            .unwrap_or(room);
        let line: String = rest.drain(..at).collect();
        lines.push(format!("{indent}{}", line.trim_start()));
    }
    lines
}

/// The commands in two columns of a terminal of this width, sorted; only those that begin with
/// `beginning`.
pub(crate) fn commands(commands: &[Command], beginning: &str, width: usize) -> String {
    let unshown = CommandFlags::OBSOLETE
        .with(CommandFlags::DEPRECATED)
        .with(CommandFlags::HIDDEN);
    let mut shown: Vec<(String, &Command)> = commands
        .iter()
        .filter(|c| !c.help.is_empty() && !c.flags.intersects(unshown))
        .map(|c| (c.usage(), c))
        .filter(|(usage, _)| usage.starts_with(beginning))
        .collect();
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    let width = width.max(20) - 1;
    let (left_width, right_width) = (width / 2, width / 2 + width % 2);
    let mut out = String::new();
    for (usage, command) in shown {
        let (left, right) = (wrap(&usage, left_width), wrap(&command.help, right_width));
        for i in 0..left.len().max(right.len()) {
            let cell = |lines: &[String]| lines.get(i).cloned().unwrap_or_default();
            out.push_str(&format!("{:<left_width$} {}\n", cell(&left), cell(&right)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceph::signature;

    #[test]
    fn commands_stand_in_two_columns() {
        let text = r#"{
            "cmd1": {"sig": ["osd", "tree"], "help": "print OSD tree", "flags": 0},
            "cmd2": {"sig": ["osd", "find", {"name": "id", "type": "CephOsdName"}],
                     "help": "find osd <id> in the CRUSH map and show its location", "flags": 0},
            "cmd3": {"sig": ["osd", "old"], "help": "old", "flags": 2}
        }"#;
        let all = signature::parse(text.as_bytes()).unwrap();
        let shown = commands(&all, "", 41);
        // As the official tool prints it.
        let expected = concat!(
            "osd find <id|osd.id> find osd <id> in \n",
            "                      the CRUSH map and \n",
            "                      show its location\n",
            "osd tree             print OSD tree\n"
        );
        assert_eq!(shown, expected);
        assert_eq!(
            commands(&all, "osd t", 41),
            "osd tree             print OSD tree\n"
        );
    }
}
