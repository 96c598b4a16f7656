//! The help of `rbd`'s commands. The same definitions become completions and man pages.

use clap::{Arg, Command, CommandFactory};

use super::args::Args;
use super::commands::{DEFINITIONS, Definition, Found, find};
use super::complain;
use crate::rbd::Exit;

/// The widest name that has its text beside it.
const COLUMN: usize = 34;

/// Prints the help: of a command, of all commands that begin with these words, or of all.
pub(super) fn print(words: &[String]) -> Result<(), Exit> {
    match find(words) {
        Found::Here(definition, _) => {
            // Where it can't be printed there is nobody to read it.
            let _ = of(definition).print_help();
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
                return Err(complain(
                    Exit::USAGE,
                    format!("unknown command '{}'", words.join(" ")),
                ));
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
        .about(definition.about)
        .override_usage(format!("{name} [options] {}", definition.operands))
        .after_help(also)
        .disable_version_flag(true)
        .args(options(definition))
}

/// All commands as one, with the groups that their names make: for completions and man pages. Other
/// names of commands are not shown.
pub(crate) fn command() -> Command {
    let mut root = Command::new("rbd")
        .about("Block images, with the official tool's arguments")
        .disable_help_subcommand(true)
        .disable_version_flag(true);
    for definition in DEFINITIONS {
        for (n, name) in definition.names.iter().enumerate() {
            let words: Vec<&'static str> = name.split(' ').collect();
            let usage = format!("rbd {name} [options] {}", definition.operands);
            let leaf = of(definition)
                .long_about(format!("{}\n\nUsage: {usage}", definition.about))
                .hide(n > 0);
            root = insert(root, &words, leaf);
        }
    }
    root
}

fn insert(group: Command, words: &[&'static str], leaf: Command) -> Command {
    match words {
        [] => group,
        [last] => group.subcommand(leaf.name(last)),
        [first, rest @ ..] => {
            let group = match group.find_subcommand(first) {
                Some(_) => group,
                None => group.subcommand(
                    Command::new(*first)
                        .about(format!("The commands of rbd {first}"))
                        .disable_help_subcommand(true),
                ),
            };
            group.mut_subcommand(first, |inner| insert(inner, rest, leaf))
        }
    }
}
