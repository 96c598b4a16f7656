//! The process of the manager's modules.

use std::rc::Weak;
use std::time::Duration;

use spirula_denc::{EntityAddr, UTime};
use spirula_manager::{News, Process, Request, Start};
use spirula_msgr::ModeLists;

use super::shell::Shell;
use crate::core::ModuleStart;

/// The running process. It ends with this.
pub(super) struct ModuleProcess(Option<Process>);

/// How the modules reach the cluster, and how long they may be silent.
pub(super) struct Surroundings {
    /// Where their clients log in.
    pub(super) monitors: Vec<EntityAddr>,
    /// Modes of connections.
    pub(super) modes: ModeLists,
    /// They are ended after so long.
    pub(super) silence: Duration,
}

impl ModuleProcess {
    /// Starts it.
    pub(super) fn start(shell: Weak<Shell>, start: ModuleStart, around: Surroundings) -> Self {
        let start = Start {
            name: start.name,
            key: start.key,
            monitors: around.monitors,
            addresses: start.addresses,
            modes: around.modes,
            osdmap_epoch: start.osdmap_epoch,
            // Follows from the silence.
            heartbeat: Duration::ZERO,
        };
        let tell = {
            let shell = shell.clone();
            move |news| {
                if let Some(shell) = shell.upgrade() {
                    shell.with_core(|c| c.module_news(news, UTime::now()));
                }
            }
        };
        match Process::start(start, around.silence, tell) {
            Ok(process) => Self(Some(process)),
            Err(e) => {
                // Not at once: what the core has wanted before comes first.
                tokio::task::spawn_local(async move {
                    let news = News::Ended(format!("it can't be started: {e}"));
                    if let Some(shell) = shell.upgrade() {
                        shell.with_core(|c| c.module_news(news, UTime::now()));
                    }
                });
                Self(None)
            }
        }
    }

    /// Hands a request over; gives it back where it can't be taken.
    pub(super) fn send(&self, request: Request) -> Result<(), Request> {
        match &self.0 {
            Some(process) => process.send(request),
            None => Err(request),
        }
    }
}
