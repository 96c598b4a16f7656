//! The module for images as a whole: which part of it answers a command.

use std::rc::Rc;

use spirula_client::Rados;

use crate::clients::Clients;
use crate::failure::Failure;
use crate::question::{Question, Reply};
use crate::schedules::{Kind, Scheduler};
use crate::tasks::Tasks;

/// The module.
pub(crate) struct Module {
    rados: Rados,
    tasks: Rc<Tasks>,
    trash_purges: Rc<Scheduler>,
    mirror_snapshots: Rc<Scheduler>,
}

impl Module {
    /// Reads what the managers before have left.
    pub(crate) async fn load(rados: Rados, clients: Rc<Clients>) -> Result<Rc<Self>, Failure> {
        let tasks = Tasks::load(rados.clone(), Rc::clone(&clients)).await?;
        let module = Self {
            tasks,
            trash_purges: Scheduler::new(Kind::TrashPurge, rados.clone(), Rc::clone(&clients)),
            mirror_snapshots: Scheduler::new(Kind::MirrorSnapshot, rados.clone(), clients),
            rados,
        };
        module.trash_purges.prepare().await?;
        module.mirror_snapshots.prepare().await?;
        Ok(Rc::new(module))
    }

    pub(crate) fn rados(&self) -> &Rados {
        &self.rados
    }

    /// Does what is to be done without being asked, until the cluster has shut this client out.
    pub(crate) async fn work(self: Rc<Self>) -> Failure {
        tokio::select! {
            why = Rc::clone(&self.tasks).work() => why,
            why = Rc::clone(&self.trash_purges).work() => why,
            why = Rc::clone(&self.mirror_snapshots).work() => why,
        }
    }

    /// Answers a command, which has this number.
    pub(crate) async fn answer(&self, number: u64, question: &Question) -> Reply {
        self.try_answer(number, question)
            .await
            .unwrap_or_else(|e| e.reply())
    }

    async fn try_answer(&self, number: u64, question: &Question) -> Result<Reply, Failure> {
        // Whoever has made a pool may name it.
        let map = self.rados.latest_map().await;
        map.map_err(|e| Failure::rados(&e, "error waiting for the latest osdmap"))?;
        if let Some(command) = question.prefix.strip_prefix("rbd task ") {
            return self.tasks.command(command, (number, question)).await;
        }
        if let Some(command) = question.prefix.strip_prefix("rbd trash purge schedule ") {
            return self.trash_purges.command(command, (number, question)).await;
        }
        if let Some(command) = question.prefix.strip_prefix("rbd mirror snapshot schedule ") {
            return self.mirror_snapshots.command(command, (number, question)).await;
        }
        Err(Failure::Value(format!("no such command: {}", question.prefix)))
    }
}
