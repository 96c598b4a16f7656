//! `spirula ceph`: the cluster's administration, with the arguments, output and exit codes of the
//! official `ceph` of Ceph 16.2. The monitors describe the commands; see [`matching`].

pub(crate) mod asok;
pub(crate) mod common;
mod exec;
mod help;
mod interactive;
mod matching;
mod options;
mod output;
mod pytext;
mod signature;
mod target;
mod value;
mod watch;

use std::ffi::OsString;
use std::time::Duration;

use spirula_client::{Error, Rados, errno};

use common::conn::{self, Connection};
use exec::Executor;
use options::Options;
use output::Output;
use target::Target;

/// Runs the tool with the arguments behind its name and returns the exit code.
pub(crate) async fn run(args: Vec<OsString>) -> i32 {
    match Tool::parse(args) {
        Ok(tool) => tool.run().await.unwrap_or_else(|code| code),
        Err(code) => code,
    }
}

/// A command line.
struct Tool {
    options: Options,
    connection: Connection,
    words: Vec<String>,
    /// The words from `injectargs` on, which the tool does not interpret.
    injected: Option<Vec<String>>,
}

/// Prints the reason and returns the exit code.
fn fail(code: i32, why: impl std::fmt::Display) -> i32 {
    eprintln!("{why}");
    code
}

impl Tool {
    fn parse(args: Vec<OsString>) -> Result<Self, i32> {
        let lossy = |arg: OsString| arg.to_string_lossy().into_owned();
        let mut args: Vec<String> = args.into_iter().map(lossy).collect();
        let inject = |words: &[String]| words.iter().position(|w| w == "injectargs");
        let at = inject(&args).unwrap_or(args.len());
        args.splice(at..at, conn::environment());
        let options =
            Options::parse(args).map_err(|e| fail(2, format!("{}\nceph: error: {e}", help::USAGE)))?;
        let mut words = options.words.clone();
        let mut injected = inject(&words).map(|at| words.split_off(at));
        let mut connection = Connection {
            conf: options.conf.clone(),
            id: options.id.clone(),
            name: options.name.clone(),
            ..Connection::default()
        };
        let mut words = connection.take(words).map_err(|e| fail(1, e))?;
        for words in [Some(&mut words), injected.as_mut()].into_iter().flatten() {
            if let Some(at) = words.iter().position(|w| w == "--") {
                words.remove(at);
            }
        }
        Ok(Self {
            options,
            connection,
            words,
            injected,
        })
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    async fn run(mut self) -> Result<i32, i32> {
        if self.options.version {
            println!("{}", common::VERSION);
            return Ok(0);
        }
        if let Some(code) = self.daemon() {
            return Ok(code);
        }
        if self.options.help {
            print!("{}", help::general());
        }
        if self.word(0) == "ping" && !self.options.help && !self.word(1).starts_with("mon.") {
            return Err(fail(
                1,
                if self.words.len() < 2 {
                    "\"ping\" requires a monitor name as argument: \"ping mon.<id>\""
                } else {
                    "\"ping\" expects a monitor to ping; try \"ping mon.<id>\""
                },
            ));
        }
        let rados = self.connect().await?;
        if self.word(0) == "ping" && !self.options.help {
            return self.ping(&rados).await;
        }
        if self.options.help || (self.word(0) == "tell" && self.word(2) == "help") {
            return self.help(&rados).await;
        }
        if let Some(level) = self.options.watch {
            let executor = self.executor(&rados, bytes::Bytes::new());
            let status = [("prefix".to_owned(), "status".into())];
            let reply = executor
                .send(&Target::Mon(None), status.into_iter().collect())
                .await;
            if reply.result != 0 {
                return Err(fail(
                    reply.result.abs(),
                    format!("status query failed:  {}", reply.status),
                ));
            }
            exec::print(&[&reply.output[..], b"\n"].concat());
            watch::run(&rados, level, &self.options.watch_channel).await;
            return Ok(0);
        }
        if self.options.status {
            self.words.insert(0, "status".into());
        }
        self.command(&rados).await
    }

    fn executor<'a>(&'a self, rados: &'a Rados, input: bytes::Bytes) -> Executor<'a> {
        Executor {
            rados,
            options: &self.options,
            input,
        }
    }

    /// Commands through an admin socket, which need no cluster.
    fn daemon(&self) -> Option<i32> {
        let source = match self.connection.source() {
            Ok(source) => source,
            Err(e) => return Some(fail(1, e)),
        };
        let (path, words) = if let Some(path) = &self.options.admin_daemon {
            (path.into(), &self.words[..])
        } else if self.word(0) == "daemon" {
            let [_, name, words @ ..] = &self.words[..] else {
                return Some(fail(errno::EINVAL.code(), "daemon requires at least 3 arguments"));
            };
            if words.is_empty() {
                return Some(fail(errno::EINVAL.code(), "daemon requires at least 3 arguments"));
            }
            match asok::path(&source, name) {
                Ok(path) => (path, words),
                Err(e) => {
                    return Some(fail(
                        errno::EINVAL.code(),
                        format!("Can't get admin socket path: {e}"),
                    ));
                }
            }
        } else {
            return None;
        };
        Some(match asok::run(&path, words, self.options.format.as_deref()) {
            Ok(answer) => {
                exec::print(&answer);
                0
            }
            Err(e) => fail(errno::EINVAL.code(), format!("admin_socket: {e}")),
        })
    }

    async fn connect(&self) -> Result<Rados, i32> {
        let mut source = self.connection.source().map_err(|e| fail(1, e))?;
        // Help without a cluster must not take long.
        let patience = self.options.connect_timeout.filter(|s| *s > 0);
        let patience = patience.or(self.options.help.then_some(5));
        source.connect_timeout = patience.map(Duration::from_secs);
        let options = source.read().map_err(|e| {
            tracing::debug!("{e}");
            match e {
                Error::Conf(_) => fail(
                    1,
                    "Error initializing cluster client: ObjectNotFound('RADOS object not found (error calling \
                     conf_read_file)')",
                ),
                Error::NotInKeyring(_) => fail(
                    errno::EACCES.code(),
                    "[errno 13] RADOS permission denied (error connecting to the cluster)",
                ),
                Error::Config(why) => fail(1, format!("Error initializing cluster client: {why}")),
                e => fail(
                    1,
                    format!("{e}\n[errno 2] RADOS object not found (error connecting to the cluster)"),
                ),
            }
        })?;
        Rados::connect(&options).await.map_err(|e| {
            let what = "(error connecting to the cluster)";
            match (e.errno(), patience) {
                (errno::ETIMEDOUT, Some(_)) => fail(1, "timed out"),
                (errno::ETIMEDOUT, None) => fail(1, format!("[errno 110] RADOS timed out {what}")),
                _ if matches!(e, Error::Mon(_)) => fail(
                    errno::EACCES.code(),
                    format!("[errno 13] RADOS permission denied {what}"),
                ),
                (errno, _) => fail(1, format!("[errno {}] {e} {what}", errno.code())),
            }
        })
    }

    async fn ping(&self, rados: &Rados) -> Result<i32, i32> {
        let name = self.word(1).trim_start_matches("mon.");
        if name != "*" {
            return match rados.ping_mon(name).await {
                Ok(status) => {
                    println!("{status}");
                    Ok(0)
                }
                Err(_) => Err(fail(
                    1,
                    "[errno 2] RADOS object not found (error calling ping_monitor)",
                )),
            };
        }
        let executor = self.executor(rados, bytes::Bytes::new());
        for name in executor.daemons("mon").await.unwrap_or_default() {
            let status = rados.ping_mon(&name).await;
            let status = status.unwrap_or_else(|_| "Error connecting to monitor.".into());
            println!("mon.{name}\n{status}");
        }
        Ok(0)
    }

    async fn help(&self, rados: &Rados) -> Result<i32, i32> {
        let executor = self.executor(rados, bytes::Bytes::new());
        let (target, beginning) = if self.word(0) == "tell" && self.words.len() > 1 {
            let target = target::of(&self.words).map_err(|e| fail(1, e))?;
            let kind = self.word(1).split('.').next().unwrap_or_default();
            let colon = if self.options.help { ":" } else { "" };
            println!("{}", help::heading(&format!("Tell {kind} commands{colon}")));
            let own = if self.options.help { &self.words[2..] } else { &[] };
            (target, own.join(" "))
        } else {
            println!("{}", help::heading("Monitor commands:"));
            (Target::Mon(None), self.words.join(" "))
        };
        match executor.descriptions(&target).await {
            Ok(commands) => {
                let columns = exec::terminal_size().columns;
                exec::print(help::commands(&commands, &beginning, columns).as_bytes());
                Ok(0)
            }
            Err(refusal) => Err(fail(
                refusal.result.abs(),
                format!(
                    "couldn't get command descriptions for {target}: {} ({})",
                    refusal.status, refusal.result
                ),
            )),
        }
    }

    async fn command(&self, rados: &Rados) -> Result<i32, i32> {
        let input = output::input(self.options.in_file.as_deref()).map_err(|e| fail(1, e))?;
        let mut out = Output::open(&self.options).map_err(|e| fail(1, e))?;
        let executor = self.executor(rados, input);
        let mut words = &self.words[..];
        let target = target::of(words).map_err(|e| fail(1, format!("error handling command target: {e}")))?;
        if self.word(0) == "tell" {
            words = words.get(2..).unwrap_or_default();
            if let Some(injected) = &self.injected {
                words = injected;
            }
            if words.is_empty() {
                return Err(fail(
                    errno::EINVAL.code(),
                    "\"ceph tell\" requires additional arguments. Try \"ceph tell <name> <command> [options...]\" \
                     instead.",
                ));
            }
        }
        if words.is_empty() {
            return Ok(interactive::run(&executor, &target).await);
        }
        let targets = match &target {
            Target::All(kind) => {
                let ids = executor.daemons(kind).await;
                let ids = ids.ok_or_else(|| fail(1, format!("Can't contact mon for {kind} list")))?;
                let named = |id: String| target::of(&["tell".into(), format!("{kind}.{id}")]);
                ids.into_iter().filter_map(|id| named(id).ok()).collect()
            }
            target => vec![target.clone()],
        };
        Ok(executor.run_at(&targets, words, &mut out).await)
    }
}
