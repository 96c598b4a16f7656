//! The space that images take.

use serde_json::{Map, Value, json};
use spirula_client::{IoCtx, errno};
use spirula_rbd::{Features, Image, Options, Usage};
use spirula_text::{Align, Table, size::bytes};

use super::{Done, Tool, bad, close, complain, failed};
use crate::rbd::Exit;

/// The usage of an image or snapshot.
struct Line {
    image: String,
    id: String,
    snap: Option<(String, u64)>,
    usage: Usage,
}

/// All lines of the listing.
#[derive(Default)]
struct Found {
    lines: Vec<Line>,
    /// The number of images and snapshots that were measured.
    count: usize,
    provisioned: u64,
    used: u64,
}

impl Found {
    fn add(&mut self, usage: Usage, is_provisioned: bool) {
        self.count += 1;
        self.used += usage.used;
        self.provisioned += if is_provisioned { usage.provisioned } else { 0 };
    }
}

impl Line {
    fn new((name, id): (&str, &str), snap: Option<(String, u64)>, usage: Usage) -> Self {
        Self {
            image: name.to_owned(),
            id: id.to_owned(),
            snap,
            usage,
        }
    }

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
        if self.args.from_snap.is_some() && !has_image {
            return Err(bad("image name was not specified"));
        }
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
            return Err(missing());
        }
        let mut found = Found::default();
        for (name, id) in &images {
            self.add_usage(&mut found, &io, (name, id), snap.as_deref())
                .await?;
        }
        self.print_usage(&found, image.is_some());
        Ok(())
    }

    /// Adds the usage of an image: of each snapshot up to the given one, beyond the snapshot before
    /// it, and of the image as it is.
    async fn add_usage(
        &self,
        found: &mut Found,
        io: &IoCtx,
        (name, id): (&str, &str),
        last: Option<&str>,
    ) -> Done {
        let failed = |e: spirula_rbd::Error| failed("du failed", &e);
        let image = opened(io, (name, id), None).await.map_err(failed)?;
        let header = image.header();
        if !header.has(Features::FAST_DIFF) {
            eprintln!("warning: fast-diff map is not enabled for {name}. operation may be slow.");
        }
        let known = |name: &str| {
            let snap = header.user_snapshot(name).map(|s| s.id);
            snap.ok_or_else(|| {
                eprintln!("specified snapshot is not found.");
                missing()
            })
        };
        let from = self.args.from_snap.as_deref().map(known).transpose()?;
        let last_id = last.map(known).transpose()?;
        if from.zip(last_id).is_some_and(|(from, last)| from > last) {
            return Err(complain(errno::EINVAL, "du failed: (22) Invalid argument"));
        }
        let mut before = self.args.from_snap.clone();
        let mut merged = 0;
        for snap in header.user_snapshots() {
            if from.is_some_and(|from| snap.id <= from) || last_id.is_some_and(|last| snap.id > last) {
                continue;
            }
            let usage = match self.args.exact {
                true => exact(io, (name, id), Some(&snap.name), before.take()).await,
                false => image.usage(Some(snap.id)).await,
            };
            let usage = usage.map_err(failed)?;
            before = Some(snap.name.clone());
            merged += usage.used;
            if !self.args.merge_snapshots {
                let snap = Some((snap.name.clone(), snap.id));
                found.lines.push(Line::new((name, id), snap, usage));
            }
            found.add(usage, last.is_some());
        }
        if last.is_none() {
            let usage = match self.args.exact {
                true => exact(io, (name, id), None, before).await,
                false => image.usage(None).await,
            };
            let mut usage = usage.map_err(failed)?;
            found.add(usage, true);
            if self.args.merge_snapshots {
                usage.used += merged;
            }
            found.lines.push(Line::new((name, id), None, usage));
        }
        close(image, Ok(())).await
    }

    fn print_usage(&self, found: &Found, of_one: bool) {
        if self.format.is_structured() {
            let mut v = Map::new();
            let trees: Vec<Value> = found.lines.iter().map(Line::tree).collect();
            v.insert("images".to_owned(), json!(trees));
            if !of_one {
                v.insert("total_provisioned_size".to_owned(), json!(found.provisioned));
                v.insert("total_used_size".to_owned(), json!(found.used));
            }
            return self.print(&Value::Object(v), "stats", "image");
        }
        if found.count == 0 {
            return;
        }
        let mut table = Table::new(&[
            ("NAME", Align::Left, Align::Left),
            ("PROVISIONED", Align::Left, Align::Right),
            ("USED", Align::Left, Align::Right),
        ]);
        found.lines.iter().for_each(|line| table.row(line.cells()));
        if found.count > 1 {
            let (provisioned, used) = (bytes(found.provisioned), bytes(found.used));
            table.row(["<TOTAL>".to_owned(), provisioned, used]);
        }
        print!("{}", table.render());
    }
}

/// Reports that an image or a snapshot does not exist.
fn missing() -> Exit {
    let why = errno::ENOENT;
    complain(errno::ENOENT, format!("du failed: {why}"))
}

/// Opens an image, or a snapshot of it, for reading.
async fn opened(io: &IoCtx, (name, id): (&str, &str), snap: Option<&str>) -> spirula_rbd::Result<Image> {
    let options = Options {
        read_only: true,
        snapshot: snap.map(str::to_owned),
        ..Options::default()
    };
    Image::open_by_id(io, name, id, options).await
}

/// The exact usage of a snapshot, or of the image as it is, beyond an earlier snapshot.
async fn exact(
    io: &IoCtx,
    image: (&str, &str),
    snap: Option<&str>,
    before: Option<String>,
) -> spirula_rbd::Result<Usage> {
    let image = opened(io, image, snap).await?;
    let usage = image.exact_usage(before).await?;
    image.close().await?;
    Ok(usage)
}
