//! The process of the manager's modules.

use std::rc::Weak;
use std::time::Duration;

use spirula_denc::{EntityAddr, UTime};
use spirula_manager::{News, Process, Request, Start};
use spirula_msgr::ModeLists;

use super::shell::Shell;
use crate::core::ModuleStart;

/// The running process, which ends when this is dropped.
pub(super) struct ModuleProcess(Option<Process>);

/// How the modules reach the cluster, and how long they may be silent.
pub(super) struct Surroundings {
    /// The monitors that the modules' clients log in to.
    pub(super) monitors: Vec<EntityAddr>,
    /// Modes of connections.
    pub(super) modes: ModeLists,
    /// The modules are ended after this long without a message.
    pub(super) silence: Duration,
}

impl ModuleProcess {
    /// Starts the process.
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
                // Not at once: the core's earlier commands come first.
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

    /// Hands a request over; returns it if it can't be accepted.
    pub(super) fn send(&self, request: Request) -> Result<(), Request> {
        match &self.0 {
            Some(process) => process.send(request),
            None => Err(request),
        }
    }
}
