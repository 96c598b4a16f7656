//! The commands of `rbd trash`.

use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use spirula_client::{
    IoCtx,
    errno::{self, Errno},
};
use spirula_denc::UTime;
use spirula_rbd::{
    Image, Options, ParentNames, TrashImage, trash_due, trash_list, trash_move, trash_purge, trash_remove,
    trash_restore,
};
use spirula_text::{Align, Table};

use super::{Done, Spec, Tool, bad, complain, failed};
use crate::rbd::Exit;

/// Origins of trash entries, by number.
const SOURCES: [&str; 5] = ["USER", "MIRRORING", "MIGRATION", "REMOVING", "USER_PARENT"];
/// The origin `USER`.
const USER: u8 = 0;
/// The origin of images that are being removed, which are not listed.
const REMOVING: u8 = 3;

/// Parses a time as date(1) understands it.
fn date(text: &str) -> Result<UTime, Exit> {
    let failed = |errno| complain(errno, format!("error calling /bin/date: {}", errno));
    let mut command = Command::new("/bin/date");
    command
        .args(["--date", text, "+%s"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let out = command.output().map_err(|e| failed(Errno::from(&e)))?;
    let seconds = String::from_utf8_lossy(&out.stdout).trim().parse().ok();
    let seconds = seconds.filter(|_| out.status.success());
    seconds.map(UTime::from_secs).ok_or_else(|| failed(errno::EINVAL))
}

/// Whether an image's deferment has ended, in words.
fn status(image: &TrashImage, now: UTime) -> String {
    let end = image.deferment_end_time;
    match now < end {
        true => format!("protected until {}", end.to_ctime()),
        false => format!("expired at {}", end.to_ctime()),
    }
}

/// A line of the long list.
struct Line {
    id: String,
    image: TrashImage,
    parent: Option<ParentNames>,
}

impl Line {
    fn texts(&self, now: UTime) -> [String; 5] {
        let source = SOURCES.get(usize::from(self.image.source));
        [
            self.id.clone(),
            name(&self.image),
            source.copied().unwrap_or_default().to_owned(),
            self.image.deletion_time.to_ctime(),
            status(&self.image, now),
        ]
    }

    fn tree(&self, now: UTime) -> Value {
        let keys = ["id", "name", "source", "deleted_at", "status"];
        let texts = keys.iter().zip(self.texts(now));
        let mut v: Map<String, Value> = texts.map(|(k, text)| ((*k).to_owned(), json!(text))).collect();
        if let Some(p) = &self.parent {
            let parent = json!({
                "pool": p.pool, "pool_namespace": p.namespace, "image": p.image, "snapshot": p.snapshot,
            });
            v.insert("parent".to_owned(), parent);
        }
        Value::Object(v)
    }

    fn cells(&self, now: UTime) -> Vec<String> {
        let parent = self.parent.as_ref().map(|p| {
            let name = Spec::name(&p.pool, &p.namespace, &p.image);
            format!("{name}@{}", p.snapshot)
        });
        let mut cells = self.texts(now).to_vec();
        cells.push(parent.unwrap_or_default());
        cells
    }
}

fn name(image: &TrashImage) -> String {
    String::from_utf8_lossy(&image.name).into_owned()
}

impl Tool {
    pub(super) async fn trash_move(&self) -> Done {
        let (target, _) = self.image().await?;
        let target = target.without_snap()?;
        let now = UTime::now();
        let until = match &self.args.expires_at {
            None => now,
            Some(text) => match date(text)? {
                past if past.sec < now.sec => {
                    return Err(bad("cannot use a date in the past as an expiration date"));
                }
                until => until,
            },
        };
        let moved = trash_move(&target.io, &target.spec.image, until.max(now)).await;
        moved.map_err(|e| failed("deferred delete error", &e))
    }

    /// The pool of the command, and the id of the image in its trash.
    async fn named_in_trash(&self) -> Result<(IoCtx, String), Exit> {
        let args = &self.args;
        let (mut pool, mut namespace, mut id) =
            (args.pool.clone(), args.namespace.clone(), args.image_id.clone());
        if let Some(word) = self.words.first().filter(|_| id.is_none()) {
            let spec = Spec::parse(word).filter(|s| s.snap.is_none());
            let spec = spec.ok_or_else(|| bad(format!("invalid spec '{word}'")))?;
            pool = spec.pool.or(pool);
            namespace = spec.namespace.or(namespace);
            id = Some(spec.image);
        }
        let id = id.ok_or_else(|| bad("image id was not specified"))?;
        Ok((self.pool(pool.as_deref(), namespace.as_deref()).await?, id))
    }

    pub(super) async fn trash_remove(&self) -> Done {
        let (io, id) = self.named_in_trash().await?;
        let progress = self.progress("Removing image");
        let removed = trash_remove(&io, &id, self.args.force, &progress.listener()).await;
        if let Err(e) = &removed {
            match e.errno() {
                errno::ENOTEMPTY => eprintln!(
                    "rbd: image has snapshots - these must be deleted with 'rbd snap purge' before the image can be \
                     removed."
                ),
                errno::EUCLEAN => eprintln!("rbd: error: image not fully moved to trash."),
                errno::EBUSY => eprintln!(
                    "rbd: error: image still has watchers\nThis means the image is still open or the client using it \
                     crashed. Try again after closing/unmapping it or waiting 30s for the crashed client to timeout."
                ),
                errno::EMLINK => eprintln!("\nRemove the image from the group and try again."),
                errno::EPERM => eprintln!(
                    "\nDeferment time has not expired, please use --force if you really want to remove the image"
                ),
                _ => eprintln!("rbd: remove error: {}", e.errno()),
            }
        }
        progress.end(removed).map_err(|e| e.errno().into())
    }

    pub(super) async fn trash_restore(&self) -> Done {
        let (io, id) = self.named_in_trash().await?;
        let restored = trash_restore(&io, &id, self.args.image.as_deref()).await;
        restored.map_err(|e| match e.errno() {
            errno::ENOENT => complain(errno::ENOENT, "error: image does not exist in trash"),
            errno::EEXIST => complain(
                errno::EEXIST,
                "error: an image with the same name already exists, try again with a different name",
            ),
            _ => failed("restore error", &e),
        })
    }

    pub(super) async fn trash_list(&self) -> Done {
        let io = self.named_pool().await?;
        let listed = trash_list(&io).await;
        let mut images: Vec<_> = listed
            .map_err(|e| failed("trash list", &e))?
            .into_iter()
            .collect();
        images.retain(|(_, i)| i.source != REMOVING && (self.args.all || i.source == USER));
        if self.args.long {
            return self.trash_list_long(&io, images).await;
        }
        if self.format.is_structured() {
            let trees: Vec<Value> = images
                .iter()
                .map(|(id, image)| json!({"id": id, "name": name(image)}))
                .collect();
            self.print(&json!(trees), "trash", "image");
        } else {
            images
                .iter()
                .for_each(|(id, image)| println!("{id} {}", name(image)));
        }
        Ok(())
    }

    async fn trash_list_long(&self, io: &IoCtx, images: Vec<(String, TrashImage)>) -> Done {
        let is_empty = images.is_empty();
        let mut lines = Vec::new();
        for (id, image) in images {
            let options = Options {
                read_only: true,
                ..Options::default()
            };
            let opened = match Image::open_by_id(io, "", &id, options).await {
                Ok(opened) => opened,
                // It was removed meanwhile.
                Err(e) if e.is(errno::ENOENT) => continue,
                Err(e) => {
                    eprintln!("rbd: error opening {id}: {}", e.errno());
                    continue;
                }
            };
            let parent = opened.parent_names().await;
            let parent = parent.map_err(|e| failed("trash list", &e))?;
            lines.push(Line { id, image, parent });
        }
        let now = UTime::now();
        if self.format.is_structured() {
            let trees: Vec<Value> = lines.iter().map(|l| l.tree(now)).collect();
            self.print(&json!(trees), "trash", "image");
        } else if !is_empty {
            let names = ["ID", "NAME", "SOURCE", "DELETED_AT", "STATUS", "PARENT"];
            let mut table = Table::new(&names.map(|n| (n, Align::Left, Align::Left)));
            lines.iter().for_each(|l| table.row(l.cells(now)));
            print!("{}", table.render());
        }
        Ok(())
    }

    pub(super) async fn trash_purge(&self) -> Done {
        let threshold = match self.args.threshold.as_deref() {
            None => None,
            Some(text) => Some(text.parse::<f64>().map_err(|_| {
                complain(
                    Exit::USAGE,
                    format!("the argument ('{text}') for option '--threshold' is invalid"),
                )
            })?),
        };
        let io = self.named_pool().await?;
        let before = match (&self.args.expired_before, threshold) {
            (Some(text), None) => date(text)?,
            _ => UTime::now(),
        };
        let progress = self.progress("Removing images");
        let purged = match trash_due(&io, before, threshold).await {
            Ok(ids) => trash_purge(&io, ids, &progress.listener()).await,
            Err(e) => Err(e),
        };
        let purged = progress.end(purged);
        if let Err(e) = &purged
            && matches!(
                e.errno(),
                errno::ENOTEMPTY | errno::EBUSY | errno::EMLINK | errno::EUCLEAN
            )
        {
            eprintln!(
                "rbd: some expired images could not be removed\nEnsure that they are closed/unmapped, do not have snapshots \
                 (including trashed snapshots with linked clones), are not in a group and were moved to the trash \
                 successfully."
            );
        }
        purged.map_err(|e| e.errno().into())
    }
}
