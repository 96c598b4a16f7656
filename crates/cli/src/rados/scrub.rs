//! `list-inconsistent-pg`.

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_client::errno;
use spirula_client::errno::Errno;
use spirula_text::Format;

use super::objects::print;
use super::{Done, Tool, format, last_words};

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
        let wanted = match (self.format, self.args.pretty_format) {
            (Format::Plain, true) => Format::JsonPretty,
            (format, _) => format.or_json(),
        };
        print(&format::render(wanted, &Value::Array(pgs), "pgs", "pg"))?;
        print(b"\n")
    }
}
