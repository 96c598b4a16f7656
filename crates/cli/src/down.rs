//! `spirula down`: stops the cluster of a directory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

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

/// Runs the command: the supervisor stops its daemons; daemons without one are stopped here, OSDs first.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    let Some(spec) = layout.load_spec()? else {
        return Err(Error::Usage(format!("no cluster in {}", layout.root().display())));
    };
    let mut stages = vec![vec![supervisor::NAME.to_owned()]];
    let (osds, mons) = Layout::daemons(&spec)
        .into_iter()
        .partition(|n| n.starts_with("osd."));
    stages.extend([osds, mons]);
    for stage in stages {
        stop(&layout, &stage).await?;
    }
    Ok(())
}

async fn stop(layout: &Layout, names: &[String]) -> Result<(), Error> {
    let held = || -> Vec<Pid> {
        names
            .iter()
            .filter_map(|n| pidfile::holder(&layout.pid_file(n)))
            .collect()
    };
    for (what, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, Duration::from_secs(5))] {
        for pid in held() {
            pidfile::signal(pid, what).map_err(|e| Error::path("stop a daemon of", layout.root(), e))?;
        }
        let deadline = Instant::now() + patience;
        while !held().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    match held().is_empty() {
        true => Ok(()),
        false => Err(Error::Daemon(format!("{} did not stop", names.join(", ")))),
    }
}
