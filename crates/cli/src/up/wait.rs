//! Waits until a cluster serves, and reports at once what prevents that.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use spirula_maps::OsdId;

use super::progress::{Progress, quoted};
use super::state::{self, State};
use super::words;
use crate::admin::{self, Admin, Health};
use crate::daemon::{DaemonName, Kind};
use crate::error::Error;
use crate::layout::{Layout, Spec};

/// How long a cluster may take to become healthy before `up` says that it did not.
const HEALTH_PATIENCE: Duration = Duration::from_secs(60);

/// How often the supervisor's state is read meanwhile.
const ALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// A serving cluster.
pub(super) struct Outcome {
    pub(super) health: Health,
    /// Which copies are still being made.
    pub(super) copies: Option<String>,
    /// The daemons that do not start, with the reason.
    pub(super) failures: Vec<String>,
}

/// One wait.
pub(super) struct Wait<'a> {
    layout: &'a Layout,
    spec: &'a Spec,
    progress: &'a Progress,
    /// Messages about daemons that were printed already.
    told: BTreeSet<String>,
    /// The OSDs that are about to be replaced, and known to be lost.
    lost: &'a [OsdId],
    admin: Option<Admin>,
    why: String,
    /// The cluster serves, and copies are still being made.
    settled: Option<(String, Health)>,
    /// The round of the supervisor from which its state counts.
    round: u64,
}

impl<'a> Wait<'a> {
    pub(super) fn new(layout: &'a Layout, spec: &'a Spec, progress: &'a Progress) -> Self {
        Self {
            layout,
            spec,
            progress,
            told: BTreeSet::new(),
            lost: &[],
            admin: None,
            why: String::from("the monitor does not answer"),
            settled: None,
            round: 1,
        }
    }

    /// Suppresses messages that these OSDs are not run.
    pub(super) fn without(mut self, lost: &'a [OsdId]) -> Self {
        self.lost = lost;
        self
    }

    /// The display of the wait.
    pub(super) fn progress(&self) -> &'a Progress {
        self.progress
    }

    /// Ignores the supervisor's state until it has finished a round after `before`.
    pub(super) fn after(mut self, before: Option<State>) -> Self {
        self.round = before.map_or(self.round, |s| s.rounds + 1);
        self
    }

    /// Waits until every OSD that can be started is up, and every PG active and clean, as far as
    /// that is possible with them.
    ///
    /// # Errors
    /// Where `alive` has one, where the monitors can't be asked, or where it takes too long.
    pub(super) async fn until_up(
        mut self,
        mut alive: impl FnMut() -> Result<(), Error>,
    ) -> Result<Outcome, Error> {
        let deadline = Instant::now() + HEALTH_PATIENCE;
        while Instant::now() < deadline {
            alive()?;
            let state = state::ask(self.layout).await;
            let known = self.heed(state.as_ref())?;
            if let Some(outcome) = self.look(known, &mut alive).await? {
                // The daemons of a supervisor that stops them are healthy for a while.
                alive()?;
                return Ok(outcome);
            }
            self.progress.wait(&self.why);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match self.settled {
            Some((copies, health)) => Ok(Outcome {
                health,
                copies: Some(copies),
                failures: Vec::new(),
            }),
            None => Err(self.too_long()),
        }
    }

    /// Prints news of the supervisor's state.
    fn heed(&mut self, state: Option<&State>) -> Result<Known, Error> {
        let mut known = Known {
            osds: self.spec.osds.clone(),
            is_all: true,
            unknown: state.and_then(|s| s.unknown.clone()),
            is_heard: state.is_some_and(|s| s.rounds >= self.round),
            failures: Vec::new(),
        };
        let Some(state) = state else {
            return Ok(known);
        };
        if state.rounds < self.round {
            known.unknown = Some("the supervisor looks what is missing".to_owned());
            return Ok(known);
        }
        if known.unknown.is_none() {
            // Daemons that were removed from the cluster are not waited for.
            known
                .osds
                .retain(|n| state.daemons.contains_key(&DaemonName::osd(*n)));
        }
        for (name, daemon) in &state.daemons {
            // The reason for not running the daemon is just being checked again.
            let trouble = daemon.trouble.as_ref().filter(|_| known.unknown.is_none());
            let said = match (trouble, daemon.failure()) {
                (Some(trouble), _) => format!("{name} is not run: {trouble}"),
                (None, Some(why)) => format!("{name} does not start: {why}"),
                (None, None) => continue,
            };
            known.is_all = false;
            let osd = name.osd_number();
            if let Some(osd) = osd {
                known.osds.remove(&osd);
            }
            if daemon.trouble.is_none() {
                known.failures.push(said.clone());
            }
            let is_known = trouble.is_some() && osd.is_some_and(|n| self.lost.contains(&n));
            if !is_known && self.told.insert(said.clone()) {
                self.progress.warn(said);
            }
        }
        self.check_quorum(state)?;
        Ok(known)
    }

    /// Fails where too few monitors can run for a quorum.
    fn check_quorum(&self, state: &State) -> Result<(), Error> {
        let mons = self.spec.daemons(Kind::Mon);
        let failing = |mon: &&DaemonName| {
            let state = state.daemons.get(mon);
            state.is_some_and(|d| d.failure().is_some())
        };
        let failing = mons.iter().filter(failing).count();
        if 2 * (mons.len() - failing) > mons.len() {
            return Ok(());
        }
        Err(Error::Daemon(format!(
            "without a monitor there is no cluster. It is tried again until `spirula down --dir {}`",
            quoted(self.layout.root())
        )))
    }

    /// Reads the cluster's state once. That may take long without an answer; an early end of a
    /// daemon is reported at once.
    async fn look(
        &mut self,
        mut known: Known,
        alive: &mut impl FnMut() -> Result<(), Error>,
    ) -> Result<Option<Outcome>, Error> {
        let mut admin = self.admin.take();
        let wanted = known.osds.clone();
        let seen = {
            let look = look(self.layout, &wanted, known.is_all, &mut admin);
            tokio::pin!(look);
            loop {
                alive()?;
                match tokio::time::timeout(ALIVE_INTERVAL, &mut look).await {
                    Ok(seen) => break seen,
                    Err(_) => {
                        known = self.heed(state::ask(self.layout).await.as_ref())?;
                        if known.osds != wanted {
                            // The wanted OSDs have changed meanwhile.
                            return Ok(None);
                        }
                        self.progress.wait(&self.why);
                    }
                }
            }
        };
        self.admin = admin;
        self.settled = None;
        match seen {
            Ok(_) if known.unknown.is_some() => self.why = known.unknown.unwrap_or_default(),
            Ok(admin::Progress::Up(health)) => {
                return Ok(Some(Outcome {
                    health,
                    copies: None,
                    failures: known.failures,
                }));
            }
            Ok(admin::Progress::Settled(what, health)) => {
                self.why.clone_from(&what);
                self.settled = Some((what, health));
            }
            Ok(admin::Progress::Waiting(why)) => self.why = why,
            // A supervisor that was not heard of may be about to make the key.
            Err(e) if known.is_heard && is_final(&e) => return Err(self.no_key(&e)),
            Err(e) => self.why = e.to_string(),
        }
        Ok(None)
    }

    /// The remedy without a key of the administrator: the monitors have it, and share it.
    fn no_key(&self, e: &Error) -> Error {
        let mons = self.spec.daemons(Kind::Mon);
        let keyring = mons.first().map(|mon| self.layout.keyring(mon));
        let path = |p: std::path::PathBuf| quoted(&p);
        Error::Daemon(format!(
            "{e}. The daemons run; where the key is lost the monitors give it again: `ceph -c {} -n mon. -k {} auth get client.admin -o {}`",
            path(self.layout.conf()),
            path(keyring.unwrap_or_default()),
            path(self.layout.admin_keyring()),
        ))
    }

    fn too_long(self) -> Error {
        // Of a daemon that starts and starts, the log says why.
        let starting = self.why.strip_suffix(" is starting");
        let log = self.layout.log_file(starting.unwrap_or(super::supervisor::NAME));
        let said = starting.and_then(|_| words::latest(&log));
        Error::Unhealthy {
            what: match said {
                Some(said) => format!("{} ({said})", self.why),
                None => self.why,
            },
            seconds: HEALTH_PATIENCE.as_secs(),
            log,
        }
    }
}

/// The part of the supervisor's state that decides the wait.
struct Known {
    /// The OSDs that must come up.
    osds: BTreeSet<OsdId>,
    /// Whether these are all OSDs of the directory.
    is_all: bool,
    /// Why the OSDs are not known yet.
    unknown: Option<String>,
    /// Whether the supervisor has checked for missing daemons, and made the keys.
    is_heard: bool,
    failures: Vec<String>,
}

/// Whether the error will not go away by trying again.
fn is_final(e: &Error) -> bool {
    use spirula_client::Error as Client;
    matches!(
        e,
        Error::Client(Client::NoKey(_) | Client::NotInKeyring(_) | Client::Config(_))
    )
}

/// Reads the cluster's state once, over a connection that is kept while it works.
async fn look(
    layout: &Layout,
    wanted: &BTreeSet<OsdId>,
    is_whole: bool,
    admin: &mut Option<Admin>,
) -> Result<admin::Progress, Error> {
    let connected = match admin.take() {
        Some(admin) => admin,
        None => Admin::connect(layout).await?,
    };
    let progress = connected.progress(layout, wanted, is_whole).await?;
    *admin = Some(connected);
    Ok(progress)
}
