//! The commands of `rbd pool`.

use serde_json::{Value, json};
use spirula_client::errno::Errno;
use spirula_client::{IoCtx, errno};
use spirula_rbd::{Image, Options, mark_pool, trash_list};
use spirula_text::size::bytes;

use super::{Done, Tool, complain, failed};

/// The number of images in a place, and their size.
#[derive(Default)]
struct Stats {
    count: u64,
    /// Bytes that they could take: for each the largest size of image and snapshots.
    provisioned: u64,
    snapshots: u64,
}

impl Stats {
    async fn add(&mut self, io: &IoCtx, id: &str) -> spirula_rbd::Result<()> {
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let image = match Image::open_by_id(io, "", id, options).await {
            // It was removed meanwhile.
            Err(e) if e.is(errno::ENOENT) => return Ok(()),
            opened => opened?,
        };
        let header = image.header();
        let sizes = header.snapshots.values().map(|s| s.size);
        self.count += 1;
        self.provisioned = self
            .provisioned
            .saturating_add(sizes.fold(image.size(), u64::max));
        self.snapshots += header.snapshots.len() as u64;
        image.close().await
    }

    async fn of(io: &IoCtx, ids: impl Iterator<Item = &String>) -> spirula_rbd::Result<Self> {
        let mut stats = Self::default();
        for id in ids {
            stats.add(io, id).await?;
        }
        Ok(stats)
    }

    fn tree(&self) -> Value {
        json!({
            "count": self.count, "provisioned_bytes": self.provisioned, "snap_count": self.snapshots,
        })
    }
}

impl Tool {
    pub(super) async fn pool_init(&self) -> Done {
        let io = self.named_pool().await?;
        let map = self.rados.latest_map().await;
        let map = map.map_err(|e| complain(e.errno(), e.errno()))?;
        let pool = map.pool_names.get(&io.pool_id()).cloned().unwrap_or_default();
        let mut command = json!({"prefix": "osd pool application enable", "pool": pool, "app": "rbd"});
        if self.args.force {
            command["yes_i_really_mean_it"] = json!(true);
        }
        let reply = self
            .rados
            .mon_command(&command.to_string(), ::bytes::Bytes::new())
            .await;
        let reply = reply.map_err(|e| complain(e.errno(), e.errno()))?;
        match Errno::of_result(reply.result) {
            None => {}
            Some(errno::EPERM) => {
                eprintln!("rbd: pool already registered to a different application.");
                return Ok(());
            }
            Some(e) => {
                return Err(complain(e, format!("error registered application: {e}")));
            }
        }
        let marked = mark_pool(&io.with_namespace("")).await;
        marked.map_err(|e| failed("failed to initialize pool", &e))
    }

    pub(super) async fn pool_stats(&self) -> Done {
        let io = self.named_pool().await?;
        let (images, trash) = self
            .stats_of(&io)
            .await
            .map_err(|e| failed("failed to query pool stats", &e))?;
        if self.format.is_structured() {
            let tree = json!({"images": images.tree(), "trash": trash.tree()});
            self.print(&tree, "stats", "");
            return Ok(());
        }
        let in_trash = |what: String| match trash.count {
            0 => String::new(),
            _ => format!(" ({what} in trash)"),
        };
        println!(
            "Total Images: {}{}",
            images.count,
            in_trash(trash.count.to_string())
        );
        println!(
            "Total Snapshots: {}{}",
            images.snapshots,
            in_trash(trash.snapshots.to_string())
        );
        println!(
            "Provisioned Size: {}{}",
            bytes(images.provisioned),
            in_trash(bytes(trash.provisioned))
        );
        Ok(())
    }

    async fn stats_of(&self, io: &IoCtx) -> spirula_rbd::Result<(Stats, Stats)> {
        let images = spirula_rbd::list(io).await?;
        let trash = trash_list(io).await?;
        Ok((
            Stats::of(io, images.values()).await?,
            Stats::of(io, trash.keys()).await?,
        ))
    }
}
