//! `spirula down`: stops the cluster of a directory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::daemon::Kind;
use crate::error::Error;
use crate::layout::Layout;
use crate::pidfile;
use crate::up::supervisor;

/// Stop the cluster of a directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster's directory
    #[arg(long, default_value = "./spirula-data")]
    dir: PathBuf,
}

/// Longer than the supervisor waits for its daemons.
const PATIENCE: Duration = Duration::from_secs(supervisor::STOP_PATIENCE.as_secs() + 5);

/// Runs the command: the supervisor stops its daemons; without a supervisor they are stopped here,
/// in the same order.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    // Else others choose which processes of this user end.
    spirula_files::check_path(layout.root()).map_err(|e| {
        Error::Usage(format!(
            "{e}; to stop a cluster that runs there, kill the processes named in {}/*.pid, the supervisor first",
            layout.run().display()
        ))
    })?;
    let Some(spec) = layout.load_spec()? else {
        return Err(Error::Usage(format!("no cluster in {}", layout.root().display())));
    };
    let mut stages = vec![vec![supervisor::NAME.to_owned()]];
    let names = |kind| spec.daemons(kind).iter().map(ToString::to_string).collect();
    stages.extend(Kind::ALL.into_iter().rev().map(names));
    for name in stages.iter().flatten() {
        let path = layout.pid_file(name);
        if pidfile::is_doubtful(&path) {
            return Err(Error::Usage(format!(
                "{} is not believed, as others may have written it: `spirula up` closes the cluster's files, or the daemons must be \
                 stopped by hand",
                path.display()
            )));
        }
    }
    let shown = layout.root().display();
    let mut stopped = 0;
    for stage in stages {
        stopped += stop(&layout, &stage).await?;
        if pidfile::holder(&layout.pid_file(supervisor::NAME)).is_some() {
            eprintln!("Stopped; another `spirula up` is starting the cluster again");
            return Ok(());
        }
    }
    match stopped {
        0 => eprintln!("The cluster in {shown} was not running"),
        _ => eprintln!("The cluster in {shown} is stopped"),
    }
    Ok(())
}

/// Stops the running daemons among `names`; returns their number.
async fn stop(layout: &Layout, names: &[String]) -> Result<usize, Error> {
    let held = |name: &String| pidfile::holder(&layout.pid_file(name));
    // These processes, not others that a new `up` may start in their place.
    let mut left: Vec<(&String, Pid)> = names.iter().filter_map(|n| Some((n, held(n)?))).collect();
    let found = left.len();
    for (what, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, Duration::from_secs(5))] {
        for (_, pid) in &left {
            pidfile::signal(*pid, what).map_err(|e| Error::path("stop a daemon of", layout.root(), e))?;
        }
        let deadline = Instant::now() + patience;
        while !left.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
            left.retain(|(name, pid)| held(name) == Some(*pid));
        }
    }
    match left.is_empty() {
        true => Ok(found),
        false => Err(Error::Daemon(format!("{} did not stop", names.join(", ")))),
    }
}
