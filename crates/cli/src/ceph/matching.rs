//! Finds the command that a line of words means, and its arguments.

use serde_json::{Map, Value};
use spirula_proto::mon::CommandFlags;
use spirula_text::python;

use super::signature::{ArgDesc, Command};
use super::value::{Kind, Mismatch};

/// The result of matching a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Match<'a> {
    /// A command and its arguments by name, among them `prefix`.
    Found(&'a Command, Map<String, Value>),
    /// No command matches; the lines say why, and which commands are close.
    None(Vec<String>),
}

/// Confirmations, which older clients pass as strings. Other words that begin with `--` are no
/// values of arguments.
const CONFIRMATIONS: [&str; 4] = [
    "--yes-i-really-mean-it",
    "--yes-i-really-really-mean-it",
    "--yes-i-really-really-mean-it-not-faking",
    "--force",
];

/// The state of an argument while a line is matched.
#[derive(Clone, Copy)]
struct Progress {
    seen: usize,
    wanted: usize,
}

impl Progress {
    fn of(desc: &ArgDesc) -> Self {
        Self {
            seen: 0,
            wanted: desc.n,
        }
    }

    fn step(&mut self, desc: &ArgDesc) {
        self.seen += 1;
        if desc.many {
            self.wanted = self.seen + 1;
        }
    }
}

/// The values in one word: several, separated by commas, where the argument may be repeated.
fn read(desc: &ArgDesc, word: &str, keyword: bool, partial: bool) -> Result<Vec<Value>, Mismatch> {
    // A string may have commas of its own.
    let commas = desc.many && (keyword || !matches!(desc.kind, Kind::String(_)));
    if commas {
        word.split(',')
            .map(|part| desc.kind.read(part, partial))
            .collect()
    } else {
        Ok(vec![desc.kind.read(word, partial)?])
    }
}

/// How many required parts of the signature the words match.
fn matched(words: &[String], signature: &[ArgDesc], partial: bool) -> usize {
    let mut at = 0;
    let mut count = 0;
    for desc in signature {
        let mut progress = Progress::of(desc);
        while progress.seen < progress.wanted {
            let Some(word) = words.get(at) else {
                return count;
            };
            // Only the last word may be a beginning: `foo bar` is not meant by `foot bar`.
            let beginning = partial && at + 1 == words.len();
            if read(desc, word, false, beginning).is_ok() {
                progress.step(desc);
                at += 1;
            } else if desc.required {
                return count;
            } else {
                // The word may match the next part.
                break;
            }
        }
        count += usize::from(desc.required);
    }
    count
}

/// A word that is no value of an argument.
struct Refused {
    word: String,
    why: String,
}

/// One attempt to read a line as one command.
struct Attempt<'a> {
    words: &'a [String],
    at: usize,
    signature: &'a [ArgDesc],
    progress: Vec<Progress>,
    values: Map<String, Value>,
    matches: usize,
    /// A word that an optional argument refused, for the message if no later argument takes it.
    refused: Option<Refused>,
}

impl<'a> Attempt<'a> {
    fn new(words: &'a [String], signature: &'a [ArgDesc]) -> Self {
        Self {
            words,
            at: 0,
            signature,
            progress: signature.iter().map(Progress::of).collect(),
            values: Map::new(),
            matches: 0,
            refused: None,
        }
    }

    fn store(&mut self, index: usize, mut read: Vec<Value>) {
        let signature = self.signature;
        let desc = &signature[index];
        self.progress[index].step(desc);
        self.matches += 1;
        let known = self.values.get_mut(&desc.name);
        match (known, read.pop()) {
            (Some(Value::Array(list)), Some(last)) if desc.many => {
                list.append(&mut read);
                list.push(last);
            }
            (_, Some(last)) if desc.many => {
                read.push(last);
                self.values.insert(desc.name.clone(), Value::Array(read));
            }
            (Some(Value::String(words)), Some(Value::String(word))) if desc.is_prefix() => {
                words.push(' ');
                words.push_str(&word);
            }
            (_, Some(value)) => {
                self.values.insert(desc.name.clone(), value);
            }
            (_, None) => {}
        }
    }

    /// Reads `--name=value`, `--name value` or `--switch`, if the word at hand is one that the
    /// signature knows.
    fn keyword(&mut self) -> Result<bool, Mismatch> {
        let Some(word) = self.words.get(self.at).and_then(|w| w.strip_prefix("--")) else {
            return Ok(false);
        };
        let by_name = |name: &str| {
            let name = name.replace('-', "_");
            let named = |d: &ArgDesc| !d.is_prefix() && d.name == name;
            self.signature.iter().rposition(named)
        };
        let joined = word
            .split_once('=')
            .filter(|(k, v)| !k.is_empty() && !v.is_empty());
        let (index, value, words) = match joined {
            Some((name, value)) => match by_name(name) {
                Some(index) => (index, value.to_owned(), 1),
                None => return Ok(false),
            },
            None => {
                let name = word.split('=').next().unwrap_or(word);
                let Some(index) = by_name(name) else {
                    return Ok(false);
                };
                match self.words.get(self.at + 1) {
                    _ if self.signature[index].kind == Kind::Bool => (index, "true".into(), 1),
                    Some(next) => (index, next.clone(), 2),
                    None => return Ok(false),
                }
            }
        };
        self.at += words;
        let read = read(&self.signature[index], &value, true, false)?;
        self.store(index, read);
        Ok(true)
    }

    /// What is missing where the words end before an argument.
    fn missing(&self, index: usize) -> Mismatch {
        let desc = &self.signature[index];
        let seen = self.progress[index].seen;
        if desc.many {
            return Mismatch::Bad(format!("saw {seen} of {}, expected at least 1", desc.shown()));
        }
        if seen == 0 && desc.n == 1 {
            return Mismatch::Missing(format!("missing required parameter {}", desc.shown()));
        }
        Mismatch::Bad(format!("saw {seen} of {}, expected {}", desc.shown(), desc.n))
    }

    /// Reads words into one argument as long as it takes them.
    fn argument(&mut self, index: usize) -> Result<(), Mismatch> {
        let signature = self.signature;
        let desc = &signature[index];
        self.progress[index].seen = 0;
        while self.progress[index].seen < self.progress[index].wanted {
            let Some(word) = self.words.get(self.at) else {
                // Optional, or given by name before.
                if !desc.required || self.values.contains_key(&desc.name) {
                    return Ok(());
                }
                if desc.many && self.progress[index].seen > 0 {
                    return Ok(());
                }
                return Err(self.missing(index));
            };
            if self.keyword()? {
                continue;
            }
            let injection = self.words[0] == "injectargs";
            let is_value =
                matches!(desc.kind, Kind::Choices(_)) || CONFIRMATIONS.contains(&word.as_str()) || injection;
            if word.starts_with("--") && !is_value {
                // A mistyped option must not become the value of some argument.
                return Err(Mismatch::Bad(format!("Unexpected argument '{word}'")));
            }
            match read(desc, word, false, false) {
                Ok(values) => {
                    self.at += 1;
                    self.store(index, values);
                    self.refused = None;
                }
                Err(e) if desc.required => return Err(e),
                Err(e) => {
                    if let Mismatch::Bad(why) = e {
                        self.refused = Some(Refused {
                            word: word.clone(),
                            why,
                        });
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the whole line.
    fn run(mut self, messages: &mut Vec<String>) -> Result<Map<String, Value>, Mismatch> {
        for index in 0..self.signature.len() {
            self.argument(index)?;
        }
        if self.matches < self.signature.iter().filter(|d| d.required).count() {
            return Err(Mismatch::TooFew);
        }
        let left = self.words.get(self.at..).unwrap_or_default();
        if left.is_empty() {
            return Ok(self.values);
        }
        if let Some(Refused { word, why }) = self.refused {
            messages.push(format!("{word} not valid:  {why}"));
        }
        Err(Mismatch::Bad(format!("unused arguments: {}", python::list(left))))
    }
}

/// The commands that match the words best, those with the fewest required parts first.
fn best<'a>(commands: &'a [Command], words: &[String]) -> Vec<&'a Command> {
    let mut most = 0;
    let mut best: Vec<&Command> = Vec::new();
    let offered = |c: &&Command| !c.flags.contains(CommandFlags::OBSOLETE);
    for command in commands.iter().filter(offered) {
        let partly = matched(words, &command.signature, true);
        // In halves: a whole match is worth more than a beginning.
        let mut score = 2 * partly;
        if score >= most / 2 * 2 && partly == matched(words, &command.signature, false) {
            score += 1;
        }
        if score > most {
            most = score;
            best.clear();
        }
        if score == most {
            best.push(command);
        }
    }
    best
}

/// Finds the command that the words mean.
pub(crate) fn find<'a>(commands: &'a [Command], words: &[String]) -> Match<'a> {
    let best = best(commands, words);
    let mut shortest_first = best.clone();
    shortest_first.sort_by_key(|c| c.signature.iter().filter(|d| d.required).count());
    let mut messages = Vec::new();
    for command in shortest_first {
        let why = match Attempt::new(words, &command.signature).run(&mut messages) {
            Ok(values) => return Match::Found(command, flagged(command, values)),
            // Another command is meant, or a longer one.
            Err(Mismatch::Prefix | Mismatch::TooFew) => continue,
            Err(Mismatch::Missing(_)) if best.len() > 1 => break,
            Err(Mismatch::Missing(why) | Mismatch::Bad(why)) => why,
        };
        messages.push(format!("Invalid command: {why}"));
        messages.push(format!("{} :  {}", command.usage(), command.help));
        return Match::None(messages);
    }
    let unshown = CommandFlags::DEPRECATED.with(CommandFlags::HIDDEN);
    let shown: Vec<&Command> = best
        .into_iter()
        .filter(|c| !c.flags.intersects(unshown))
        .take(10)
        .collect();
    messages.push(format!(
        "no valid command found; {} closest matches:",
        shown.len()
    ));
    messages.extend(shown.into_iter().map(Command::usage));
    Match::None(messages)
}

/// Adds the arguments that the command's flags imply.
fn flagged(command: &Command, mut values: Map<String, Value>) -> Map<String, Value> {
    if command.flags.contains(CommandFlags::MGR) {
        values.insert("target".into(), Value::from(vec!["mon-mgr", ""]));
    }
    if command.flags.contains(CommandFlags::POLL) {
        values.insert("poll".into(), true.into());
    }
    values
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
