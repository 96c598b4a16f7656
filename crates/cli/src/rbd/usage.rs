//! How much space images take.

use serde_json::{Map, Value, json};
use spirula_client::{IoCtx, errno};
use spirula_mon::fmt::{Align, Table, bytes};
use spirula_rbd::{Image, Options, Usage, features};

use super::{Done, Tool, complain, describe, failed};

/// What is shown of an image or snapshot.
struct Line {
    image: String,
    id: String,
    snap: Option<(String, u64)>,
    usage: Usage,
}

impl Line {
    fn tree(&self) -> Value {
        let mut v = Map::new();
        let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
        put("name", json!(self.image));
        put("id", json!(self.id));
        if let Some((name, id)) = &self.snap {
            put("snapshot", json!(name));
            put("snapshot_id", json!(id));
        }
        put("provisioned_size", json!(self.usage.provisioned));
        put("used_size", json!(self.usage.used));
        Value::Object(v)
    }

    fn cells(&self) -> [String; 3] {
        let name = match &self.snap {
            Some((snap, _)) => format!("{}@{snap}", self.image),
            None => self.image.clone(),
        };
        [name, bytes(self.usage.provisioned), bytes(self.usage.used)]
    }
}

impl Tool {
    pub(super) async fn usage(&self) -> Done {
        let has_image = self.args.image.is_some() || !self.words.is_empty();
        let (io, image, snap) = match has_image {
            true => {
                let (target, _) = self.image().await?;
                (target.io, Some(target.spec.image), target.spec.snap)
            }
            false => (self.named_pool().await?, None, None),
        };
        let listed = spirula_rbd::list(&io).await;
        let mut images = listed.map_err(|e| failed("du failed", &e))?;
        images.retain(|name, _| image.as_ref().is_none_or(|wanted| wanted == name));
        if let Some(image) = image.as_ref().filter(|_| images.is_empty()) {
            eprintln!("specified image {image} is not found.");
            return Err(complain(
                errno::ENOENT,
                format!("du failed: {}", describe(-errno::ENOENT)),
            ));
        }
        let mut lines = Vec::new();
        for (name, id) in &images {
            let more = self.image_usage(&io, name, id, snap.as_deref()).await;
            lines.extend(more.map_err(|e| failed("du failed", &e))?);
        }
        if snap.is_some() && lines.is_empty() {
            eprintln!("specified snapshot is not found.");
            return Err(complain(
                errno::ENOENT,
                format!("du failed: {}", describe(-errno::ENOENT)),
            ));
        }
        self.print_usage(&lines, image.is_some(), snap.is_some());
        Ok(())
    }

    async fn image_usage(
        &self,
        io: &IoCtx,
        name: &str,
        id: &str,
        only: Option<&str>,
    ) -> spirula_rbd::Result<Vec<Line>> {
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let image = Image::open_by_id(io, name, id, options).await?;
        let header = image.header();
        if !header.has(features::FAST_DIFF) {
            eprintln!("warning: fast-diff map is not enabled for {name}. operation may be slow.");
        }
        let line = |snap, usage| Line {
            image: name.to_owned(),
            id: id.to_owned(),
            snap,
            usage,
        };
        let mut lines = Vec::new();
        for snap in header.user_snapshots() {
            if only.is_none_or(|name| name == snap.name) {
                let usage = image.usage(Some(snap.id)).await?;
                lines.push(line(Some((snap.name.clone(), snap.id)), usage));
            }
        }
        if only.is_none() {
            let mut usage = image.usage(None).await?;
            if self.args.merge_snapshots {
                usage.used += lines.drain(..).map(|l| l.usage.used).sum::<u64>();
            }
            lines.push(line(None, usage));
        }
        Ok(lines)
    }

    fn print_usage(&self, lines: &[Line], of_one: bool, of_snapshot: bool) {
        let counts = |l: &&Line| of_snapshot || l.snap.is_none();
        let provisioned: u64 = lines.iter().filter(counts).map(|l| l.usage.provisioned).sum();
        let used: u64 = lines.iter().map(|l| l.usage.used).sum();
        if self.format.is_structured() {
            let mut v = Map::new();
            let trees: Vec<Value> = lines.iter().map(Line::tree).collect();
            v.insert("images".to_owned(), json!(trees));
            if !of_one {
                v.insert("total_provisioned_size".to_owned(), json!(provisioned));
                v.insert("total_used_size".to_owned(), json!(used));
            }
            return self.print(&Value::Object(v), "stats", "image");
        }
        if lines.is_empty() {
            return;
        }
        let mut table = Table::new(&[
            ("NAME", Align::Left, Align::Left),
            ("PROVISIONED", Align::Left, Align::Right),
            ("USED", Align::Left, Align::Right),
        ]);
        lines.iter().for_each(|line| table.row(line.cells()));
        if lines.len() > 1 {
            table.row(["<TOTAL>".to_owned(), bytes(provisioned), bytes(used)]);
        }
        print!("{}", table.render());
    }
}
