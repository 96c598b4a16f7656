//! `spirula status`: shows the running daemons of a directory's cluster, and failures.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::Serialize;
use spirula_text::size::bytes;

use crate::admin::{Admin, Health};
use crate::colour;
use crate::daemon::{DaemonName, Kind};
use crate::error::Error;
use crate::layout::{Layout, Spec};
use crate::pidfile;
use crate::up::{self, DaemonState, Room, State, supervisor};

/// Show what of a cluster runs, and what is wrong
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster's directory
    #[arg(long, default_value = "./spirula-data")]
    dir: PathBuf,
    /// How to print it
    #[arg(long, short = 'f', value_enum, default_value_t = Format::Plain)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Plain,
    Json,
    JsonPretty,
}

/// The output.
#[derive(Debug, Serialize)]
struct Status {
    dir: PathBuf,
    fsid: String,
    /// `running`, `stopped`, or `unsupervised`, where daemons run and no supervisor.
    state: &'static str,
    /// The supervisor's process.
    supervisor: Option<i32>,
    daemons: Vec<Daemon>,
    /// The cluster's health; `None` if no monitor runs or answers.
    health: Option<Health>,
    file_systems: Vec<Room>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Daemon {
    name: DaemonName,
    /// `running`, `stopped`, `failing` (the daemon ends again and again), or `left alone` (there is
    /// a reason not to run it).
    state: &'static str,
    pid: Option<i32>,
    /// The bytes to which an OSD's store may grow.
    bytes: Option<u64>,
    /// The bytes that its files take.
    bytes_on_disk: u64,
    problem: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    spirula_files::check_path(layout.root())?;
    let Some(spec) = layout.load_spec()? else {
        return Err(Error::Usage(format!("no cluster in {}", layout.root().display())));
    };
    let status = look(&layout, &spec).await;
    let json = |e: serde_json::Error| Error::Output(e.into());
    let text = match args.format {
        Format::Plain => status.plain(colour::wanted()),
        Format::Json => serde_json::to_string(&status).map_err(json)? + "\n",
        Format::JsonPretty => serde_json::to_string_pretty(&status).map_err(json)? + "\n",
    };
    use std::io::Write;
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::Output)
}

async fn look(layout: &Layout, spec: &Spec) -> Status {
    let held = |pid: Option<Pid>| pid.map(Pid::as_raw_pid);
    let supervisor = held(pidfile::holder(&layout.pid_file(supervisor::NAME)));
    let known: State = match supervisor {
        Some(_) => up::ask(layout).await.unwrap_or_default(),
        None => State::default(),
    };
    let daemons = Layout::daemons(spec);
    let daemons: Vec<Daemon> = daemons
        .into_iter()
        .map(|name| {
            let pid = held(pidfile::holder(&layout.pid_file(&name)));
            Daemon::new(layout, name, pid, &known)
        })
        .collect();
    let mut problems: Vec<String> = daemons
        .iter()
        .filter_map(|d| Some(format!("{}: {}", d.name, d.problem.as_ref()?)))
        .collect();
    let is_mon = |d: &&Daemon| d.name.kind() == Kind::Mon && d.pid.is_some();
    let health = match daemons.iter().find(is_mon) {
        Some(_) => match health(layout).await {
            Ok(health) => Some(health),
            Err(e) => {
                problems.push(format!("the monitors do not answer: {e}"));
                None
            }
        },
        None => None,
    };
    let file_systems = up::rooms(layout, spec);
    problems.extend(file_systems.iter().filter_map(Room::warning));
    let runs = daemons.iter().any(|d| d.pid.is_some());
    Status {
        dir: layout.root().to_owned(),
        fsid: spec.fsid.clone(),
        state: match (supervisor, runs) {
            (Some(_), _) => "running",
            (None, true) => "unsupervised",
            (None, false) => "stopped",
        },
        supervisor,
        daemons,
        health,
        file_systems,
        problems,
    }
}

async fn health(layout: &Layout) -> Result<Health, Error> {
    let status = Admin::connect(layout).await?.status().await?;
    Ok(Health::of_status(&status))
}

impl Daemon {
    fn new(layout: &Layout, name: DaemonName, pid: Option<i32>, known: &State) -> Self {
        let none = DaemonState::default();
        let state = known.daemons.get(&name).unwrap_or(&none);
        let (word, problem) = match (&state.trouble, state.failure(), pid) {
            (Some(why), ..) => ("left alone", Some(why.clone())),
            (None, Some(why), _) => ("failing", Some(why.to_owned())),
            (None, None, Some(_)) => ("running", None),
            (None, None, None) => ("stopped", None),
        };
        let data = layout.data(&name);
        Self {
            state: word,
            pid,
            bytes: name.kind().store(&data).and_then(|store| length(&store)),
            bytes_on_disk: on_disk(&data),
            problem,
            name,
        }
    }
}

/// The length of a file or block device.
fn length(path: &Path) -> Option<u64> {
    use std::io::{Seek, SeekFrom};
    std::fs::File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
}

/// The bytes of the files in a directory; targets of links do not count.
fn on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let taken = entries.filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        Some(match meta.is_dir() {
            true => on_disk(&entry.path()),
            false => meta.blocks() * 512,
        })
    });
    taken.sum()
}

impl Status {
    fn plain(&self, colours: bool) -> String {
        let by = self
            .supervisor
            .map_or_else(String::new, |pid| format!(" (supervisor {pid})"));
        let health = self
            .health
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), Health::to_string);
        let health = match colours {
            true => colour::health(&health),
            false => health,
        };
        let mut out = format!(
            "cluster  {}\nin       {}\nstate    {}{by}\nhealth   {health}\n\n",
            self.fsid,
            self.dir.display(),
            self.state
        );
        let row = |cells: [&str; 5]| {
            let [name, state, pid, on_disk, size] = cells;
            format!("{name:<10}{state:<12}{pid:>9}{on_disk:>14}{size:>14}\n")
        };
        out += &row(["DAEMON", "STATE", "PID", "ON DISK", "UP TO"]);
        for d in &self.daemons {
            let pid = d.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let size = d.bytes.map_or_else(|| "-".to_owned(), bytes);
            let on_disk = bytes(d.bytes_on_disk);
            out += &row([&d.name.to_string(), d.state, &pid, &on_disk, &size]);
        }
        if !self.problems.is_empty() {
            out += "\nWhat is wrong:\n";
        }
        self.problems.iter().for_each(|p| out += &format!("    {p}\n"));
        out
    }
}
