//! Connection arguments, which librados understands in every tool: the cluster and the user.

use std::collections::BTreeMap;
use std::path::PathBuf;

use spirula_cephx::AuthName;
use spirula_client::Source;
use spirula_denc::EntityType;

/// Options of `ceph.conf` that may stand on the command line with a value, by their name or an
/// unambiguous beginning of it. Those without meaning here are accepted, as by the official tools.
const OPTIONS: [&str; 12] = [
    "mon_host",
    "keyring",
    "keyfile",
    "key",
    "fsid",
    "client_mount_timeout",
    "admin_socket",
    "run_dir",
    "pid_file",
    "log_file",
    "ms_client_mode",
    "ms_mon_client_mode",
];
const OPTION_PREFIXES: [&str; 6] = ["debug_", "log_to_", "err_to_", "rados_", "rbd_", "objecter_"];
/// Options that need no value.
const SWITCHES: [&str; 3] = ["no_mon_config", "no_config_file", "nodaemon"];

/// The connection arguments of a command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// `-c`.
    pub(crate) conf: Option<String>,
    /// `--id`.
    pub(crate) id: Option<String>,
    /// `-n`.
    pub(crate) name: Option<String>,
    /// Options by name.
    pub(crate) set: BTreeMap<String, String>,
}

impl Connection {
    /// Takes connection arguments out of `args`, up to a `--`; the rest stays in order.
    ///
    /// # Errors
    /// The option that lacks its value.
    pub(crate) fn take(&mut self, args: Vec<String>) -> Result<Vec<String>, String> {
        let mut rest = Vec::new();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                rest.push(arg);
                rest.extend(args);
                break;
            }
            let (word, joined) = match arg.split_once('=') {
                Some((word, value)) if word.starts_with("--") => (word.to_owned(), Some(value.to_owned())),
                _ => (arg.clone(), None),
            };
            let Some(option) = option(&word) else {
                rest.push(arg);
                continue;
            };
            if SWITCHES.contains(&option.as_str()) {
                continue;
            }
            let value = joined.or_else(|| args.next());
            let value = value.ok_or_else(|| format!("Option {word} requires an argument."))?;
            match option.as_str() {
                "conf" => self.conf = Some(value),
                "id" => self.id = Some(value),
                "name" => self.name = Some(value),
                "cluster" => {}
                _ => {
                    self.set.insert(option, value);
                }
            }
        }
        Ok(rest)
    }

    /// The same connection as arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let named = [("conf", &self.conf), ("id", &self.id), ("name", &self.name)];
        let named = named
            .into_iter()
            .filter_map(|(n, value)| Some((n, value.as_ref()?)));
        let set = self.set.iter().map(|(n, value)| (n.as_str(), value));
        let words = named.chain(set);
        words
            .flat_map(|(n, value)| [format!("--{n}"), value.clone()])
            .collect()
    }

    /// The entity that logs in.
    pub(crate) fn entity(&self) -> Result<AuthName, String> {
        match (&self.name, &self.id) {
            (Some(name), _) => name.parse().map_err(|_| {
                format!(
                    "error parsing '{name}': expected string of the form TYPE.ID, valid types are: auth, mon, osd, \
                     mds, mgr, client"
                )
            }),
            (None, Some(id)) => Ok(AuthName::new(EntityType::CLIENT, id.clone())),
            (None, None) => Ok(AuthName::new(EntityType::CLIENT, "admin")),
        }
    }

    /// The sources of the client's options.
    pub(crate) fn source(&self) -> Result<Source, String> {
        Ok(Source {
            conf: self.conf.as_ref().map(PathBuf::from),
            name: self.entity()?,
            set: self.set.clone(),
            connect_timeout: None,
        })
    }
}

/// The option that a word names, with underscores; `None` for words that are no connection
/// argument.
fn option(word: &str) -> Option<String> {
    let short = match word {
        "-c" | "--conf" => "conf",
        "-n" | "--name" => "name",
        "--id" | "--user" => "id",
        "--cluster" => "cluster",
        "-m" => "mon_host",
        "-k" => "keyring",
        "-K" => "keyfile",
        _ => "",
    };
    if !short.is_empty() {
        return Some(short.to_owned());
    }
    let long = word.strip_prefix("--")?.replace('-', "_");
    let known = OPTIONS.contains(&long.as_str())
        || SWITCHES.contains(&long.as_str())
        || OPTION_PREFIXES.iter().any(|p| long.starts_with(p));
    known.then_some(long)
}

/// The words of `CEPH_ARGS`, which official tools add to their arguments.
pub(crate) fn environment() -> Vec<String> {
    let text = std::env::var("CEPH_ARGS").unwrap_or_default();
    text.split_whitespace()
        .filter(|w| !w.contains("--admin-socket"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn connection_arguments_are_taken_from_anywhere() {
        let mut c = Connection::default();
        let rest = c
            .take(words(
                "osd -m 10.0.0.1 tree --keyring=/k --id x --foo 3 --debug-ms 1 -- -c y",
            ))
            .unwrap();
        assert_eq!(rest, words("osd tree --foo 3 -- -c y"));
        assert_eq!(c.entity().unwrap().to_string(), "client.x");
        assert_eq!(c.set["mon_host"], "10.0.0.1");
        assert_eq!(c.set["keyring"], "/k");
        assert_eq!(c.conf, None);
        let mut again = Connection::default();
        assert_eq!(again.take(c.words()), Ok(vec![]));
        assert_eq!(again, c);
    }

    #[test]
    fn a_missing_value_and_a_bad_name_are_errors() {
        assert!(Connection::default().take(words("ls -c")).is_err());
        let c = Connection {
            name: Some("admin".into()),
            ..Connection::default()
        };
        assert!(c.entity().is_err());
    }
}
