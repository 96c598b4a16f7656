//! The arguments of the official `ceph` itself, which may stand anywhere between the words of a
//! command. clap can't parse these: unknown words and options belong to the command, and only the
//! monitor knows those.

use spirula_text::python;

/// Formats of `-f`.
const FORMATS: [&str; 6] = ["json", "json-pretty", "xml", "xml-pretty", "plain", "yaml"];

/// What an option does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opt {
    Help,
    Conf,
    InFile,
    OutFile,
    SetUser,
    SetGroup,
    Id,
    Name,
    Cluster,
    AdminDaemon,
    Status,
    Watch,
    WatchLevel(&'static str),
    WatchChannel,
    Version,
    Verbose,
    Concise,
    Format,
    ConnectTimeout,
    Block,
    Period,
}

/// Short letter (or NUL), long name, meaning, and whether a value follows.
const TABLE: [(char, &str, Opt, bool); 28] = [
    ('h', "help", Opt::Help, false),
    ('c', "conf", Opt::Conf, true),
    ('i', "in-file", Opt::InFile, true),
    ('o', "out-file", Opt::OutFile, true),
    ('\0', "setuser", Opt::SetUser, true),
    ('\0', "setgroup", Opt::SetGroup, true),
    ('\0', "id", Opt::Id, true),
    ('\0', "user", Opt::Id, true),
    ('n', "name", Opt::Name, true),
    ('\0', "cluster", Opt::Cluster, true),
    ('\0', "admin-daemon", Opt::AdminDaemon, true),
    ('s', "status", Opt::Status, false),
    ('w', "watch", Opt::Watch, false),
    ('\0', "watch-debug", Opt::WatchLevel("debug"), false),
    ('\0', "watch-info", Opt::WatchLevel("info"), false),
    ('\0', "watch-sec", Opt::WatchLevel("sec"), false),
    ('\0', "watch-warn", Opt::WatchLevel("warn"), false),
    ('\0', "watch-error", Opt::WatchLevel("error"), false),
    ('W', "watch-channel", Opt::WatchChannel, true),
    ('v', "version", Opt::Version, false),
    ('\0', "verbose", Opt::Verbose, false),
    ('\0', "concise", Opt::Concise, false),
    ('f', "format", Opt::Format, true),
    ('\0', "connect-timeout", Opt::ConnectTimeout, true),
    ('\0', "block", Opt::Block, false),
    ('p', "period", Opt::Period, true),
    // Not options of the tool's own: kept whole for the connection, lest a value be taken for a
    // word of the command.
    ('m', "mon-host", Opt::Cluster, true),
    ('k', "keyring", Opt::Cluster, true),
];

/// The options given, and the words that are left.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) conf: Option<String>,
    pub(crate) in_file: Option<String>,
    pub(crate) out_file: Option<String>,
    pub(crate) set_user: Option<String>,
    pub(crate) set_group: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) admin_daemon: Option<String>,
    pub(crate) status: bool,
    /// The least level of log entries to watch for.
    pub(crate) watch: Option<&'static str>,
    pub(crate) watch_channel: String,
    pub(crate) version: bool,
    pub(crate) verbose: bool,
    pub(crate) format: Option<String>,
    pub(crate) connect_timeout: Option<u64>,
    /// Seconds between two runs of a polling command.
    pub(crate) period: f64,
    pub(crate) words: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            help: false,
            conf: None,
            in_file: None,
            out_file: None,
            set_user: None,
            set_group: None,
            id: None,
            name: None,
            admin_daemon: None,
            status: false,
            watch: None,
            watch_channel: "cluster".into(),
            version: false,
            verbose: false,
            format: None,
            connect_timeout: None,
            period: 1.0,
            words: Vec::new(),
        }
    }
}

fn shown(long: &str) -> String {
    let entry = TABLE.iter().find(|(_, name, ..)| *name == long);
    match entry {
        Some((short, ..)) if *short != '\0' => format!("-{short}/--{long}"),
        _ => format!("--{long}"),
    }
}

/// The option that a long word names, in full or by an unambiguous beginning.
fn long(word: &str) -> Result<Option<(&'static str, Opt, bool)>, String> {
    let exact = TABLE.iter().find(|(_, name, ..)| *name == word);
    if let Some((_, name, opt, value)) = exact {
        return Ok(Some((name, *opt, *value)));
    }
    let own = TABLE.iter().filter(|(short, ..)| !['m', 'k'].contains(short));
    let close: Vec<_> = own.filter(|(_, name, ..)| name.starts_with(word)).collect();
    match close[..] {
        [] => Ok(None),
        [(_, name, opt, value)] => Ok(Some((name, *opt, *value))),
        _ => {
            let names: Vec<String> = close.iter().map(|(_, name, ..)| format!("--{name}")).collect();
            Err(format!(
                "ambiguous option: --{word} could match {}",
                names.join(", ")
            ))
        }
    }
}

/// Whether a word can't be the value of an option.
fn looks_like_option(word: &str) -> bool {
    let number = word.strip_prefix('-').is_some_and(|d| {
        !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !d.ends_with('.')
    });
    word.len() > 1 && word.starts_with('-') && !number && !word.contains(' ')
}

impl Options {
    /// Parses a command line.
    ///
    /// # Errors
    /// The message about a bad option, without the usage line that the official tool prints before
    /// it.
    pub(crate) fn parse(args: Vec<String>) -> Result<Self, String> {
        let mut out = Self::default();
        let mut args = args.into_iter().peekable();
        while let Some(word) = args.next() {
            if word == "--" {
                out.words.push(word);
                out.words.extend(args);
                break;
            }
            let found = Self::option(&word)?.filter(|_| looks_like_option(&word));
            let Some((name, opt, takes_value, joined)) = found else {
                out.words.push(word);
                continue;
            };
            let kept = name == "mon-host" || name == "keyring";
            let value = match (takes_value, joined) {
                (true, Some(joined)) => joined,
                (true, None) => args
                    .next_if(|next| !looks_like_option(next))
                    .ok_or_else(|| format!("argument {}: expected one argument", shown(name)))?,
                (false, Some(joined)) if word.starts_with("--") => {
                    let why = format!("ignored explicit argument {}", python::quoted(&joined));
                    return Err(format!("argument {}: {why}", shown(name)));
                }
                (false, Some(joined)) => {
                    // Several letters behind one dash.
                    out.set(opt, String::new())?;
                    let mut rest = vec![format!("-{joined}")];
                    rest.extend(args);
                    args = rest.into_iter().peekable();
                    continue;
                }
                (false, None) => String::new(),
            };
            if kept {
                out.words.extend([format!("--{name}={value}")]);
            } else {
                out.set(opt, value)?;
            }
        }
        Ok(out)
    }

    /// The option in a word: its name, meaning, whether it takes a value, and the value joined to
    /// it.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn option(word: &str) -> Result<Option<(&'static str, Opt, bool, Option<String>)>, String> {
        if let Some(rest) = word.strip_prefix("--") {
            let (name, joined) = match rest.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (rest, None),
            };
            return Ok(long(name)?.map(|(name, opt, value)| (name, opt, value, joined)));
        }
        let Some(rest) = word.strip_prefix('-') else {
            return Ok(None);
        };
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else {
            return Ok(None);
        };
        let joined = Some(letters.as_str().to_owned()).filter(|j| !j.is_empty());
        let entry = TABLE.iter().find(|(short, ..)| *short == letter);
        Ok(entry.map(|(_, name, opt, value)| (*name, *opt, *value, joined)))
    }

    fn set(&mut self, opt: Opt, value: String) -> Result<(), String> {
        let number = |kind: &str| {
            let value = python::quoted(&value);
            format!("invalid {kind} value: {value}")
        };
        match opt {
            Opt::Help => self.help = true,
            Opt::Conf => self.conf = Some(value),
            Opt::InFile => self.in_file = Some(value),
            Opt::OutFile => self.out_file = Some(value),
            Opt::SetUser => self.set_user = Some(value),
            Opt::SetGroup => self.set_group = Some(value),
            Opt::Id => self.id = Some(value),
            Opt::Name => self.name = Some(value),
            Opt::Cluster => {}
            Opt::AdminDaemon => self.admin_daemon = Some(value),
            Opt::Status => self.status = true,
            Opt::Watch => self.watch = self.watch.or(Some("info")),
            Opt::WatchLevel(level) => self.watch = Some(level),
            Opt::WatchChannel => {
                self.watch = self.watch.or(Some("info"));
                self.watch_channel = value;
            }
            Opt::Version => self.version = true,
            Opt::Verbose => self.verbose = true,
            Opt::Concise => self.verbose = false,
            Opt::Format if FORMATS.contains(&value.as_str()) => self.format = Some(value),
            Opt::Format => {
                let choices: Vec<String> = FORMATS.iter().map(|f| format!("'{f}'")).collect();
                return Err(format!(
                    "argument -f/--format: invalid choice: {} (choose from {})",
                    python::quoted(&value),
                    choices.join(", ")
                ));
            }
            Opt::ConnectTimeout => {
                let seconds = value.trim().parse();
                self.connect_timeout =
                    Some(seconds.map_err(|_| format!("argument --connect-timeout: {}", number("int")))?);
            }
            // Only scrubs are waited for, and they are waited for anyway.
            Opt::Block => {}
            Opt::Period => {
                let seconds = super::pytext::parse_float(&value);
                self.period = seconds.ok_or_else(|| format!("argument --period/-p: {}", number("float")))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_may_stand_anywhere_and_what_is_unknown_stays() {
        let o = parse("osd -fjson tree --foo=1 -n client.x --bar up -o - -s").unwrap();
        assert_eq!(o.format.as_deref(), Some("json"));
        assert_eq!(o.name.as_deref(), Some("client.x"));
        assert_eq!(o.out_file.as_deref(), Some("-"));
        assert!(o.status);
        assert_eq!(o.words, ["osd", "tree", "--foo=1", "--bar", "up"]);
    }

    #[test]
    fn negative_numbers_and_what_follows_two_dashes_are_words() {
        assert_eq!(
            parse("osd -1 -0.5 -- -s").unwrap().words,
            ["osd", "-1", "-0.5", "--", "-s"]
        );
        assert_eq!(parse("-m 10.0.0.1 -s").unwrap().words, ["--mon-host=10.0.0.1"]);
    }

    #[test]
    fn beginnings_are_enough_unless_ambiguous() {
        assert_eq!(parse("--conn 3").unwrap().connect_timeout, Some(3));
        assert!(
            parse("--watc")
                .unwrap_err()
                .starts_with("ambiguous option: --watc could match --watch, ")
        );
        assert_eq!(parse("--watch").unwrap().watch, Some("info"));
        assert_eq!(parse("-sw").unwrap().watch, Some("info"));
    }

    #[test]
    fn errors_read_as_the_official_ones() {
        let errors = [
            ("-c", "argument -c/--conf: expected one argument"),
            ("-i --foo", "argument -i/--in-file: expected one argument"),
            (
                "--connect-timeout x",
                "argument --connect-timeout: invalid int value: 'x'",
            ),
            (
                "-f foo",
                "argument -f/--format: invalid choice: 'foo' (choose from 'json', 'json-pretty', 'xml', \
                 'xml-pretty', 'plain', 'yaml')",
            ),
        ];
        for (args, error) in errors {
            assert_eq!(parse(args).unwrap_err(), error);
        }
    }
}
