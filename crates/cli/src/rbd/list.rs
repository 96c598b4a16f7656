//! Listing images.

use serde_json::{Map, Value, json};
use spirula_client::{IoCtx, LockType, errno};
use spirula_rbd::{Image, Options, ParentNames};
use spirula_text::{Align, Table, size::bytes};

use super::{Done, Spec, Tool, bad, failed};
use crate::rbd::Exit;

/// A line of the long list.
struct Line {
    image: String,
    id: String,
    /// The snapshot's name, id and whether it is protected.
    snap: Option<(String, u64, bool)>,
    size: u64,
    parent: Option<ParentNames>,
    lock: Option<LockType>,
}

impl Line {
    fn tree(&self) -> Value {
        let mut v = Map::new();
        let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
        put("image", json!(self.image));
        put("id", json!(self.id));
        if let Some((name, id, _)) = &self.snap {
            put("snapshot", json!(name));
            put("snapshot_id", json!(id));
        }
        put("size", json!(self.size));
        if let Some(p) = &self.parent {
            let parent = json!({
                "pool": p.pool, "pool_namespace": p.namespace, "image": p.image, "snapshot": p.snapshot,
            });
            put("parent", parent);
        }
        put("format", json!(2));
        if let Some((_, _, protected)) = &self.snap {
            put("protected", json!(protected.to_string()));
        }
        if let Some(lock) = self.lock {
            let kind = if lock == LockType::SHARED {
                "shared"
            } else {
                "exclusive"
            };
            put("lock_type", json!(kind));
        }
        Value::Object(v)
    }

    fn cells(&self) -> [String; 6] {
        let name = match &self.snap {
            Some((snap, _, _)) => format!("{}@{snap}", self.image),
            None => self.image.clone(),
        };
        let parent = self.parent.as_ref().map(|p| {
            let name = Spec::name(&p.pool, &p.namespace, &p.image);
            format!("{name}@{}", p.snapshot)
        });
        let protected = self.snap.as_ref().is_some_and(|(_, _, p)| *p);
        let lock = match self.lock {
            None => "",
            Some(LockType::SHARED) => "shr",
            Some(_) => "excl",
        };
        [
            name,
            bytes(self.size),
            parent.unwrap_or_default(),
            "2".to_owned(),
            if protected { "yes" } else { "" }.to_owned(),
            lock.to_owned(),
        ]
    }
}

impl Tool {
    /// The pool of the command: of options, or else its first word.
    pub(super) async fn named_pool(&self) -> Result<IoCtx, Exit> {
        let (mut pool, mut namespace) = (self.args.pool.clone(), self.args.namespace.clone());
        if let Some(word) = self.words.first() {
            let mut parts = word.splitn(2, '/');
            let named = parts.next().filter(|p| !p.is_empty());
            pool = Some(
                named
                    .ok_or_else(|| bad(format!("invalid spec '{word}'")))?
                    .to_owned(),
            );
            namespace = parts.next().map(str::to_owned).or(namespace);
        }
        self.pool(pool.as_deref(), namespace.as_deref()).await
    }

    pub(super) async fn list(&self) -> Done {
        let io = self.named_pool().await.inspect_err(|code| {
            eprintln!("rbd: listing images failed: {}", code);
        })?;
        let listed = spirula_rbd::list(&io).await;
        let images = listed.map_err(|e| failed("listing images failed", &e))?;
        if !self.args.long {
            if self.format.is_structured() {
                let names: Vec<&String> = images.keys().collect();
                self.print(&json!(names), "images", "name");
            } else {
                images.keys().for_each(|name| println!("{name}"));
            }
            return Ok(());
        }
        let mut lines = Vec::new();
        for (name, id) in &images {
            match Self::lines(&io, name, id).await {
                Ok(more) => lines.extend(more),
                // It was removed meanwhile.
                Err(e) if e.is(errno::ENOENT) => {}
                Err(e) => eprintln!("rbd: error opening {name}: {}", e.errno()),
            }
        }
        if self.format.is_structured() {
            let trees: Vec<Value> = lines.iter().map(Line::tree).collect();
            self.print(&json!(trees), "images", "image");
        } else if !images.is_empty() {
            let left = |name| (name, Align::Left, Align::Left);
            let right = |name| (name, Align::Left, Align::Right);
            let mut table = Table::new(&[
                left("NAME"),
                right("SIZE"),
                left("PARENT"),
                right("FMT"),
                left("PROT"),
                left("LOCK"),
            ]);
            lines.iter().for_each(|line| table.row(line.cells()));
            print!("{}", table.render());
        }
        Ok(())
    }

    async fn lines(io: &IoCtx, name: &str, id: &str) -> spirula_rbd::Result<Vec<Line>> {
        let mut options = Options {
            read_only: true,
            ..Options::default()
        };
        let image = Image::open_by_id(io, name, id, options.clone()).await?;
        let mut lines = vec![Line {
            image: name.to_owned(),
            id: id.to_owned(),
            snap: None,
            size: image.size(),
            parent: image.parent_names().await?,
            lock: image.lock_kind().await?,
        }];
        for snap in image.header().user_snapshots() {
            options.snapshot = Some(snap.name.clone());
            let at = Image::open_by_id(io, name, id, options.clone()).await?;
            lines.push(Line {
                image: name.to_owned(),
                id: id.to_owned(),
                snap: Some((snap.name.clone(), snap.id, snap.protected)),
                size: snap.size,
                parent: at.parent_names().await?,
                lock: None,
            });
        }
        Ok(lines)
    }
}
