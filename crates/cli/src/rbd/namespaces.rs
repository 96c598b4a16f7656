//! The commands of `rbd namespace`.

use serde_json::json;
use spirula_client::{IoCtx, errno};
use spirula_rbd::{namespace_create, namespace_remove, namespaces};
use spirula_text::{Align, Table};

use super::{Done, Tool, bad, complain, failed};
use crate::rbd::Exit;

impl Tool {
    /// The pool and the namespace of the command.
    async fn named_namespace(&self) -> Result<(IoCtx, String), Exit> {
        let io = self.named_pool().await?;
        let name = String::from_utf8_lossy(io.namespace().as_bytes()).into_owned();
        match name.is_empty() {
            true => Err(bad("namespace name was not specified")),
            false => Ok((io, name)),
        }
    }

    pub(super) async fn namespace_create(&self) -> Done {
        let (io, name) = self.named_namespace().await?;
        let created = namespace_create(&io, &name).await;
        created.map_err(|e| failed("failed to created namespace", &e))
    }

    pub(super) async fn namespace_remove(&self) -> Done {
        let (io, name) = self.named_namespace().await?;
        let removed = namespace_remove(&io, &name).await;
        removed.map_err(|e| match e.errno() {
            errno::EBUSY => complain(
                errno::EBUSY,
                "namespace contains images which must be deleted first.",
            ),
            errno::ENOENT => complain(errno::ENOENT, "namespace does not exist."),
            _ => failed("failed to remove namespace", &e),
        })
    }

    pub(super) async fn namespace_list(&self) -> Done {
        if let Some(word) = self.words.first().filter(|w| w.contains('/')) {
            return Err(bad(format!("invalid pool '{word}'")));
        }
        let io = self.named_pool().await?;
        let names = namespaces(&io)
            .await
            .map_err(|e| failed("failed to list namespaces", &e))?;
        if self.format.is_structured() {
            let trees: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
            self.print(&json!(trees), "namespaces", "namespace");
        } else if !names.is_empty() {
            let mut table = Table::new(&[("NAME", Align::Left, Align::Left)]);
            names.into_iter().for_each(|name| table.row([name]));
            print!("{}", table.render());
        }
        Ok(())
    }
}
