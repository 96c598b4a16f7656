//! The commands of `rbd snap`.

use serde_json::{Map, Value, json};
use spirula_client::errno;
use spirula_rbd::{Image, NO_LIMIT, Options, Snapshot, SnapshotNamespace};
use spirula_text::{Align, Table, size::bytes};

use super::{Done, Target, Tool, bad, close, complain, failed};
use crate::rbd::Exit;

/// The name of a kind of snapshots.
fn kind(namespace: &SnapshotNamespace) -> &'static str {
    match namespace {
        SnapshotNamespace::User => "user",
        SnapshotNamespace::Group { .. } => "group",
        SnapshotNamespace::Trash { .. } => "trash",
        SnapshotNamespace::Mirror(_) => "mirror",
        SnapshotNamespace::Unknown => "unknown",
    }
}

/// The name of a snapshot before its removal.
fn original_name(namespace: &SnapshotNamespace) -> Option<String> {
    match namespace {
        SnapshotNamespace::Trash { original_name, .. } => {
            Some(String::from_utf8_lossy(original_name).into_owned())
        }
        _ => None,
    }
}

fn tree(snap: &Snapshot, all: bool) -> Value {
    let mut v = Map::new();
    let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
    put("id", json!(snap.id));
    put("name", json!(snap.name));
    put("size", json!(snap.size));
    put("protected", json!(snap.protected.to_string()));
    put("timestamp", json!(snap.timestamp.to_ctime()));
    if all {
        let mut namespace = Map::new();
        namespace.insert("type".to_owned(), json!(kind(&snap.namespace)));
        if let Some(name) = original_name(&snap.namespace) {
            namespace.insert("original_name".to_owned(), json!(name));
        }
        put("namespace", Value::Object(namespace));
    }
    Value::Object(v)
}

impl Tool {
    /// The snapshot of the command, with its image open for changes.
    async fn snapshot(&self) -> Result<(Target, Image), Exit> {
        let (target, _) = self.image().await?;
        target.snap()?;
        let image = target.open(Options::default()).await?;
        Ok((target, image))
    }

    pub(super) async fn snap_create(&self) -> Done {
        let (target, image) = self.snapshot().await?;
        let progress = self.progress("Creating snap");
        let created = progress.end(image.create_snapshot(target.snap()?).await);
        let done = created.map_err(|e| failed("failed to create snapshot", &e));
        close(image, done).await
    }

    pub(super) async fn snap_list(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let header = image.header();
        let all = self.args.all;
        let shown = header
            .snapshots
            .values()
            .filter(|s| all || s.namespace == SnapshotNamespace::User);
        let snaps: Vec<&Snapshot> = shown.collect();
        if self.format.is_structured() {
            let trees: Vec<Value> = snaps.iter().map(|s| tree(s, all)).collect();
            self.print(&json!(trees), "snapshots", "snapshot");
        } else if !snaps.is_empty() {
            let mut table = Table::new(&[
                ("SNAPID", Align::Left, Align::Right),
                ("NAME", Align::Left, Align::Left),
                ("SIZE", Align::Left, Align::Right),
                ("PROTECTED", Align::Left, Align::Left),
                ("TIMESTAMP", Align::Left, Align::Right),
            ]);
            if all {
                table.column("NAMESPACE", Align::Left, Align::Left);
            }
            for snap in snaps {
                let mut cells = vec![
                    snap.id.to_string(),
                    snap.name.clone(),
                    bytes(snap.size),
                    if snap.protected { "yes" } else { "" }.to_owned(),
                    snap.timestamp.to_ctime(),
                ];
                if all {
                    let original = original_name(&snap.namespace);
                    let original = original.map(|name| format!(" ({name})"));
                    cells.push(format!(
                        "{}{}",
                        kind(&snap.namespace),
                        original.unwrap_or_default()
                    ));
                }
                table.row(cells);
            }
            print!("{}", table.render());
        }
        close(image, Ok(())).await
    }

    pub(super) async fn snap_remove(&self) -> Done {
        let (target, image) = self.snapshot().await?;
        let name = target.snap()?;
        let progress = self.progress("Removing snap");
        let removed = progress.end(image.remove_snapshot(name, &SnapshotNamespace::User).await);
        let done = removed.map_err(|e| {
            if e.is(errno::EBUSY) {
                return complain(
                    errno::EBUSY,
                    format!("snapshot '{name}' is protected from removal."),
                );
            }
            failed("failed to remove snapshot", &e)
        });
        close(image, done).await
    }

    pub(super) async fn snap_rename(&self) -> Done {
        let (target, rest) = self.image().await?;
        let from = target.snap()?;
        let dest = self.dest_near(rest, &target).await?;
        if dest.spec.image != target.spec.image {
            return Err(bad("source and destination image name differ"));
        }
        let image = target.open(Options::default()).await?;
        let done = match dest.snap() {
            Ok(to) => image
                .rename_snapshot(from, to)
                .await
                .map_err(|e| failed("renaming snap failed", &e)),
            Err(code) => Err(code),
        };
        close(image, done).await
    }

    pub(super) async fn snap_rollback(&self) -> Done {
        let (target, image) = self.snapshot().await?;
        let progress = self.progress("Rolling back to snapshot");
        let rolled = progress.end(image.roll_back(target.snap()?).await);
        close(image, rolled.map_err(|e| failed("rollback failed", &e))).await
    }

    pub(super) async fn snap_protect(&self) -> Done {
        let (target, image) = self.snapshot().await?;
        let done = image.protect_snapshot(target.snap()?).await;
        let done = done.map_err(|e| match e.is(errno::EBUSY) {
            true => complain(errno::EBUSY, "snap is already protected"),
            false => failed("protecting snap failed", &e),
        });
        close(image, done).await
    }

    pub(super) async fn snap_unprotect(&self) -> Done {
        let (target, image) = self.snapshot().await?;
        let done = image.unprotect_snapshot(target.snap()?).await;
        let done = done.map_err(|e| match e.is(errno::EINVAL) {
            true => bad("snap is already unprotected"),
            false => failed("unprotecting snap failed", &e),
        });
        close(image, done).await
    }

    pub(super) async fn snap_purge(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open(Options::default()).await?;
        let header = image.header();
        let (kept, gone): (Vec<&Snapshot>, Vec<&Snapshot>) =
            header.user_snapshots().partition(|s| s.protected);
        if kept.is_empty() && gone.is_empty() {
            return close(image, Ok(())).await;
        }
        if !kept.is_empty() {
            let names: Vec<&str> = kept.iter().map(|s| s.name.as_str()).collect();
            let are = if kept.len() == 1 { "is" } else { "are" };
            println!(
                "rbd: error removing snapshot(s) '[{}]', which {are} protected - these must be unprotected with \
                 `rbd snap unprotect`.",
                names.join(",")
            );
        }
        let progress = self.progress("Removing all snapshots");
        let mut done = Ok(());
        let all = header.user_snapshots().count() as u64;
        for (i, snap) in (1..).zip(&gone) {
            done = image.remove_snapshot(&snap.name, &SnapshotNamespace::User).await;
            if done.is_err() {
                break;
            }
            progress.update(i, all);
        }
        // Protected snapshots stay. The progress then ends as failed, but the command succeeds.
        if kept.is_empty() || done.is_err() {
            done = progress.end(done);
        } else {
            let _ = progress.end(Err::<(), ()>(()));
        }
        let done = done.map_err(|e| match e.is(errno::EBUSY) {
            true => errno::EBUSY.into(),
            false => failed("removing snaps failed", &e),
        });
        close(image, done).await
    }

    pub(super) async fn snap_limit(&self, set: bool) -> Done {
        let (target, _) = self.image().await?;
        let limit = match (set, self.args.limit) {
            (false, _) => NO_LIMIT,
            (true, Some(limit)) => limit,
            (true, None) => return Err(complain(errno::ERANGE, "must specify --limit <num>")),
        };
        let image = target.without_snap()?.open(Options::default()).await?;
        let done = image.set_snapshot_limit(limit).await;
        let what = if set {
            "setting snapshot limit failed"
        } else {
            "clearing snapshot limit failed"
        };
        close(image, done.map_err(|e| failed(what, &e))).await
    }
}
