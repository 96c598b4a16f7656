//! `rbd status`: the clients that watch an image.

use serde_json::json;
use spirula_text::addr_legacy;

use super::{Done, Tool, close, failed};

impl Tool {
    pub(super) async fn status(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let done = match image.watchers().await {
            Ok(watchers) if self.format.is_structured() => {
                let watchers = watchers.iter().map(
                    |w| json!({"address": addr_legacy(&w.addr), "client": w.name.num, "cookie": w.cookie}),
                );
                let tree = json!({ "watchers": watchers.collect::<Vec<_>>() });
                self.print(&tree, "status", "watcher");
                Ok(())
            }
            Ok(watchers) => {
                println!("Watchers:{}", if watchers.is_empty() { " none" } else { "" });
                for w in &watchers {
                    println!(
                        "\twatcher={} client.{} cookie={}",
                        addr_legacy(&w.addr),
                        w.name.num,
                        w.cookie
                    );
                }
                Ok(())
            }
            Err(e) => Err(failed("show status failed", &e)),
        };
        close(image, done).await
    }
}
