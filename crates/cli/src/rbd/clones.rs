//! Clones and their parents.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use spirula_client::errno;
use spirula_rbd::{Child, Image, Options, children, name_of};

use super::{Done, Spec, Tool, close, complain, failed};

/// A clone with its names, in the order in which clones are listed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NamedChild {
    /// The name of its pool.
    pool: String,
    /// Its name.
    image: String,
    /// Whether it is in the trash.
    trash: bool,
    child: Child,
}

impl Tool {
    pub(super) async fn clone_image(&self) -> Done {
        let (target, rest) = self.image().await?;
        let snap = target.snap()?;
        let dest = self.dest(rest, None, None).await?.without_snap()?;
        let options = self.create_options()?;
        let (parent, child) = (&target.spec.image, &dest.spec.image);
        let cloned = spirula_rbd::clone(&target.io, parent, snap, &dest.io, child, &options).await;
        cloned.map_err(|e| match e.is(errno::EXDEV) {
            true => complain(errno::EXDEV, "clone v2 required for cross-namespace clones."),
            false => failed("clone error", &e),
        })
    }

    pub(super) async fn flatten(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open(Options::default()).await?;
        let progress = self.progress("Image flatten");
        let done = progress.end(image.flatten(&spirula_rbd::Progress::untold()).await);
        close(image, done.map_err(|e| failed("flatten error", &e))).await
    }

    pub(super) async fn children(&self) -> Done {
        let (target, _) = self.image().await?;
        let wanted = target.spec.snap.clone();
        let image = target.open(Options {
            read_only: true,
            ..Options::default()
        });
        let image = image.await?;
        let header = image.header();
        let mut found = Vec::new();
        for snap in header.snapshots.values() {
            if wanted.as_ref().is_none_or(|name| *name == snap.name) {
                let listed = self.listed_children(&image, snap.id).await;
                found.extend(listed.map_err(|e| failed("listing children failed", &e))?);
            }
        }
        if wanted
            .as_ref()
            .is_some_and(|name| header.user_snapshot(name).is_none())
        {
            return Err(complain(errno::ENOENT, "snapshot does not exist."));
        }
        let mut named = Vec::new();
        for child in found {
            let named_child = self.named_child(child).await;
            named.push(named_child.map_err(|e| failed("listing children failed", &e))?);
        }
        named.sort();
        self.print_children(&named);
        close(image, Ok(())).await
    }

    /// The clones of a snapshot; with `--descendants`, their clones too.
    async fn listed_children(&self, image: &Image, snap: u64) -> spirula_rbd::Result<BTreeSet<Child>> {
        let mut found = children(image, snap).await?;
        if !self.args.descendants {
            return Ok(found);
        }
        let mut next: Vec<Child> = found.iter().cloned().collect();
        while let Some(child) = next.pop() {
            let io = self.rados.pool_by_id(child.pool).await?;
            let io = io.with_namespace(&child.namespace);
            let options = Options {
                read_only: true,
                ..Options::default()
            };
            let opened = Image::open_by_id(&io, "", &child.id, options).await?;
            for snap in opened.header().snapshots.keys() {
                for more in children(&opened, *snap).await? {
                    // Headers may lie: an image is a descendant once.
                    if found.insert(more.clone()) {
                        next.push(more);
                    }
                }
            }
            opened.close().await?;
        }
        Ok(found)
    }

    /// The names of a clone.
    async fn named_child(&self, child: Child) -> spirula_rbd::Result<NamedChild> {
        let io = self.rados.pool_by_id(child.pool).await?;
        let map = self.rados.latest_map().await?;
        let pool = map.pool_names.get(&child.pool).cloned().unwrap_or_default();
        let (image, trash) = name_of(&io.with_namespace(&child.namespace), &child.id).await?;
        Ok(NamedChild {
            pool,
            image,
            trash,
            child,
        })
    }

    fn print_children(&self, children: &[NamedChild]) {
        let all = self.args.all;
        let shown = children.iter().filter(|c| all || !c.trash);
        if !self.format.is_structured() {
            for c in shown {
                let trash = if c.trash {
                    format!(" (trash {})", c.child.id)
                } else {
                    String::new()
                };
                println!("{}{trash}", Spec::name(&c.pool, &c.child.namespace, &c.image));
            }
            return;
        }
        let trees = shown.map(|c| {
            let mut v = Map::new();
            let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
            put("pool", json!(c.pool));
            put("pool_namespace", json!(c.child.namespace));
            put("image", json!(c.image));
            if all {
                put("id", json!(c.child.id));
                put("trash", json!(c.trash));
            }
            Value::Object(v)
        });
        self.print(&Value::Array(trees.collect()), "children", "child");
    }
}
