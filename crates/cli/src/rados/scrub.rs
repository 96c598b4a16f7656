//! `list-inconsistent-pg`, `list-inconsistent-obj`, `list-inconsistent-snapset`.

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_client::errno::Errno;
use spirula_client::{Inconsistency, InconsistentPage, errno};
use spirula_maps::PgId;
use spirula_text::Format;

use super::inconsistent::Shown;
use super::objects::print;
use super::{Done, Tool, format, last_words};

/// The pages of a listing as a tree.
pub(super) fn listing<T: Shown>(pages: &[InconsistentPage<T>]) -> Value {
    let entries = pages.iter().flat_map(|page| &page.entries);
    let entries: Vec<Value> = entries.map(|entry| Value::Object(entry.shown())).collect();
    let epoch = pages.first().map(|page| page.interval.number());
    json!({"epoch": epoch, "inconsistents": entries})
}

/// A PG as the official tool reads it, which cares for nothing before the number and behind it.
fn pg_id(text: &str) -> Option<PgId> {
    let (pool, seed) = text.trim_start().split_once('.')?;
    let end = seed.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(seed.len());
    format!("{pool}.{}", &seed[..end]).parse().ok()
}

impl Tool {
    pub(super) async fn list_inconsistent_pgs(&self) -> Done {
        let Some(name) = self.words.get(1) else {
            return Err(self.usage());
        };
        let pool = self.rados.pool(name).await.map_err(|e| {
            eprintln!("pool \"{name}\" not found");
            last_words(e.errno())
        })?;
        let command = json!({
            "prefix": "pg ls",
            "pool": pool.pool_id(),
            "states": ["inconsistent"],
            "format": "json",
        });
        let command = command.to_string();
        let reply = match self.rados.mgr_command(&command, Bytes::new()).await {
            // Without a manager, as with Spirula, the monitors know.
            Err(e) if e.errno() == errno::ENXIO => self.rados.mon_command(&command, Bytes::new()).await,
            reply => reply,
        };
        let reply = reply.map_err(|e| last_words(e.errno()))?;
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(last_words(errno));
        }
        let listed: Option<Value> = serde_json::from_slice(&reply.output).ok();
        let listed = listed.ok_or_else(|| last_words(errno::EINVAL))?;
        // Older managers gave the list itself.
        let stats = listed.get("pg_stats").unwrap_or(&listed).as_array().cloned();
        let pgs: Vec<Value> = stats
            .unwrap_or_default()
            .iter()
            .filter_map(|pg| pg.get("pgid").cloned())
            .collect();
        print(&format::render(
            self.tree_format(),
            &Value::Array(pgs),
            "pgs",
            "pg",
        ))?;
        print(b"\n")
    }

    /// The format of a command that only knows trees.
    fn tree_format(&self) -> Format {
        match self.args.pretty_format {
            true => self.format.or_pretty(),
            false => self.format.or_json(),
        }
    }

    /// Lists what the last scrub of a PG found. What came before an error is shown.
    pub(super) async fn list_inconsistent<T: Inconsistency + Shown>(&self) -> Done {
        let Some(text) = self.words.get(1) else {
            return Err(self.usage());
        };
        let Some(pg) = pg_id(text) else {
            eprintln!("bad pg: {text}");
            return Ok(());
        };
        // The official tool waits for ever if there is no such pool.
        let pool = self.rados.pool_by_id(pg.pool).await;
        let mut list = pool
            .map_err(|e| last_words(e.errno()))?
            .list_inconsistent::<T>(pg.seed);
        let mut pages = Vec::new();
        let ended = loop {
            match list.next_page().await {
                Ok(Some(page)) => pages.push(page),
                Ok(None) => break Ok(()),
                Err(e) => break Err(e.errno()),
            }
        };
        if let Err(errno::ENOENT) = ended {
            eprintln!("No scrub information available for pg {pg}");
        }
        if !pages.is_empty() {
            print(&format::render(self.tree_format(), &listing(&pages), "info", ""))?;
        }
        ended.map_err(last_words)
    }
}
