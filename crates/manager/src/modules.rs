//! All modules, and the choice of the one that answers a command.

use std::rc::Rc;

use spirula_client::Rados;
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::module::{Asked, Module};
use crate::question::{Question, Reply, errno};
use crate::schedules::{Kind, Scheduler};
use crate::tasks::Tasks;

/// All modules.
pub(crate) struct Modules {
    cluster: Cluster,
    modules: Vec<Rc<dyn Module>>,
}

impl Modules {
    /// Reads the records of earlier managers.
    pub(crate) async fn load(rados: Rados, clients: Rc<Clients>) -> Result<Rc<Self>, Failure> {
        let cluster = Cluster::new(rados);
        let scheduler = |kind| Scheduler::new(kind, cluster.clone(), Rc::clone(&clients));
        let modules: Vec<Rc<dyn Module>> = vec![
            Tasks::new(cluster.clone(), Rc::clone(&clients)),
            scheduler(Kind::TrashPurge),
            scheduler(Kind::MirrorSnapshot),
        ];
        for module in &modules {
            module.load().await?;
        }
        Ok(Rc::new(Self { cluster, modules }))
    }

    pub(crate) fn rados(&self) -> &Rados {
        self.cluster.rados()
    }

    /// Works in the background until this client is on the blocklist.
    pub(crate) async fn work(&self) -> Failure {
        let mut working = JoinSet::new();
        for module in &self.modules {
            working.spawn_local(Rc::clone(module).work());
        }
        match working.join_next().await {
            Some(Ok(why)) => why,
            Some(Err(e)) => Failure::Rados(errno::EIO, format!("a module has ended: {e}")),
            None => Failure::Rados(errno::EIO, "there are no modules".to_owned()),
        }
    }

    /// Answers a command, which has this number.
    pub(crate) async fn answer(&self, number: u64, question: &Question) -> Reply {
        self.try_answer(number, question)
            .await
            .unwrap_or_else(|e| e.reply())
    }

    async fn try_answer(&self, number: u64, question: &Question) -> Result<Reply, Failure> {
        // A client that has just made a pool may name it.
        let cluster = self.cluster.newest().await?;
        let asked = Asked {
            number,
            question,
            cluster,
        };
        let of = |m: &Rc<dyn Module>| Some((Rc::clone(m), question.prefix.strip_prefix(m.prefix())?));
        match self.modules.iter().find_map(of) {
            Some((module, command)) => module.command(command, asked).await,
            None => Err(Failure::Value(format!("no such command: {}", question.prefix))),
        }
    }
}
