//! The thread of the manager's modules.

use std::rc::Weak;

use spirula_denc::{EntityAddr, UTime};
use spirula_manager::{Manager, News, Request, Start};
use spirula_msgr::ModeLists;
use tokio::sync::mpsc::unbounded_channel;

use super::Task;
use super::shell::Shell;
use crate::core::ModuleStart;

/// The running thread, with the task that hears it. Both end with this.
pub(super) struct ModuleThread {
    manager: Option<Manager>,
    _hearing: Task,
}

impl ModuleThread {
    /// Starts the thread; its client logs in at `monitors`.
    pub(super) fn start(
        shell: Weak<Shell>,
        start: ModuleStart,
        monitors: Vec<EntityAddr>,
        modes: ModeLists,
    ) -> Self {
        // It holds an answer to each question, of which there are few, and progress once a second.
        let (told, mut news) = unbounded_channel();
        let ended = told.clone();
        let start = Start {
            name: start.name,
            key: start.key,
            monitors,
            addresses: start.addresses,
            modes,
            osdmap_epoch: start.osdmap_epoch,
        };
        let tell = move |news| {
            // Nobody listens where the thread is to end.
            let _ = told.send(news);
        };
        let manager = Manager::start(start, tell);
        if let Err(e) = &manager {
            let _ = ended.send(News::Ended(e.to_string()));
        }
        let hearing = tokio::task::spawn_local(async move {
            while let Some(news) = news.recv().await {
                let Some(shell) = shell.upgrade() else { return };
                shell.with_core(|c| c.module_news(news, UTime::now()));
            }
        });
        Self {
            manager: manager.ok(),
            _hearing: Task(hearing),
        }
    }

    /// Hands a request over; gives it back where it can't be taken.
    pub(super) fn send(&self, request: Request) -> Result<(), Request> {
        match &self.manager {
            Some(manager) => manager.send(request),
            None => Err(request),
        }
    }
}
