//! What `rbd` says of its commands. The same definitions become completions and man pages.

use clap::{Arg, Command, CommandFactory};

use super::args::Args;
use super::commands::{DEFINITIONS, Definition, Found, find};
use super::complain;

/// The widest name that has its text beside it.
const COLUMN: usize = 34;

/// Prints the help: of a command, of all that begin with these words, or of all.
pub(super) fn print(words: &[String]) -> Result<(), i32> {
    match find(words) {
        Found::Here(definition, _) => {
            print!("{}", of(definition).render_help());
            Ok(())
        }
        Found::Elsewhere(name) => Err(super::elsewhere(name)),
        Found::Unknown => {
            let begins = |d: &&Definition| {
                let mut name = d.names[0].split(' ');
                words.iter().all(|w| name.next() == Some(w))
            };
            let found: Vec<&Definition> = DEFINITIONS.iter().filter(begins).collect();
            if found.is_empty() {
                return Err(complain(1, format!("unknown command '{}'", words.join(" "))));
            }
            print!("{}", overview(&found));
            Ok(())
        }
    }
}

/// A list of commands.
fn overview(definitions: &[&Definition]) -> String {
    let mut text = "Block images\n\nUsage: rbd <command> [options] ...\n\nCommands:\n".to_owned();
    for definition in definitions {
        let name = match definition.names {
            [name] => (*name).to_owned(),
            [name, others @ ..] => format!("{name} ({})", others.join(", ")),
            [] => continue,
        };
        let gap = if name.len() > COLUMN { "\n" } else { "" };
        let indent = if gap.is_empty() {
            COLUMN - name.len()
        } else {
            COLUMN + 2
        };
        text.push_str(&format!("  {name}{gap}{:indent$}  {}\n", "", definition.about));
    }
    text.push_str(
        "\nWho connects where: -c <ceph.conf>, -n <name> or --id <id>, -m <monitors>, -k <keyring>\n\
         'rbd help <command>' tells more of a command.\n",
    );
    text
}

/// All commands.
pub(super) fn all() -> String {
    overview(&DEFINITIONS.iter().collect::<Vec<_>>())
}

/// The options of a command, without the operands.
fn options(definition: &'static Definition) -> Vec<Arg> {
    let args = Args::command();
    let taken = args
        .get_arguments()
        .filter(|a| definition.takes(a.get_id().as_str()));
    taken.cloned().collect()
}

/// A command as a program of its own.
fn of(definition: &'static Definition) -> Command {
    let [words, others @ ..] = definition.names else {
        return Command::new("rbd");
    };
    let last = words.rsplit(' ').next().unwrap_or(words);
    let name = format!("rbd {words}");
    let also = match others.is_empty() {
        true => String::new(),
        false => format!("The same: rbd {}", others.join(", rbd ")),
    };
    Command::new(last)
        .bin_name(name.clone())
        .about(definition.about)
        .override_usage(format!("{name} [options] {}", definition.operands))
        .after_help(also)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options(definition))
}
