//! Making, showing, changing and removing images.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_client::errno;
use spirula_denc::UTime;
use spirula_maps::PoolId;
use spirula_rbd::{
    CloneFormat, CreateOptions, Features, Image, ImageTimes, MIRROR_BY_SNAPSHOTS, MirrorImage,
    MirrorImageState, NO_LIMIT, Options, ParentNames, Striping, create,
};
use spirula_text::size::bytes;

use super::{Done, Spec, Tool, bad, close, complain, failed, features, invalid, size};
use crate::rbd::Exit;

const MIB: u64 = 1 << 20;
/// Allowed sizes of an image's objects, as powers of two.
const ORDERS: std::ops::RangeInclusive<u8> = 12..=25;

/// The properties of an image that commands show.
struct Shown {
    parent: Option<ParentNames>,
    limit: u64,
    accessed: UTime,
    modified: UTime,
    data_pool: Option<String>,
    mirroring: Option<(MirrorImage, bool)>,
    /// The group that it belongs to.
    group: Option<String>,
}

impl Shown {
    /// The image's mirroring as keys with values. Empty if its features rule mirroring out.
    fn mirroring(&self, has_journal: bool) -> Vec<(&'static str, Value)> {
        let state = |state| match state {
            MirrorImageState::DISABLING => "disabling",
            MirrorImageState::ENABLED => "enabled",
            MirrorImageState::DISABLED => "disabled",
            _ => "unknown",
        };
        let Some((image, primary)) = &self.mirroring else {
            return match has_journal {
                true => vec![("mode", json!("journal")), ("state", json!("disabled"))],
                false => Vec::new(),
            };
        };
        let mode = match image.mode {
            0 => "journal",
            MIRROR_BY_SNAPSHOTS => "snapshot",
            _ => "unknown",
        };
        let mut all = vec![("mode", json!(mode)), ("state", json!(state(image.state)))];
        if image.state != MirrorImageState::DISABLED {
            let global_id = String::from_utf8_lossy(&image.global_id).into_owned();
            all.push(("global_id", json!(global_id)));
            all.push(("primary", json!(primary)));
        }
        all
    }
}

impl Tool {
    /// The options of a new image.
    pub(super) fn create_options(&self) -> Result<CreateOptions, Exit> {
        let args = &self.args;
        if args.image_format.as_deref().is_some_and(|f| f != "2") {
            return Err(invalid("image-format"));
        }
        if args.order.is_some_and(|order| !ORDERS.contains(&order)) {
            return Err(invalid("order"));
        }
        let order = match &args.object_size {
            None => args.order,
            Some(text) => {
                // The next power of two, as the official tool has it.
                let bytes = size("object-size", text, 1)?.checked_next_power_of_two();
                let order = bytes.and_then(|b| u8::try_from(b.trailing_zeros()).ok());
                let order = order.filter(|o| ORDERS.contains(o));
                Some(order.ok_or_else(|| invalid("object-size"))?)
            }
        };
        let mut wanted = match args.image_feature.is_empty() {
            true => None,
            false => {
                let parsed = features::parse(&args.image_feature);
                Some(parsed.ok_or_else(|| invalid("image-feature"))?)
            }
        };
        if args.image_shared {
            let single = Features::EXCLUSIVE_LOCK
                .with(Features::OBJECT_MAP)
                .with(Features::FAST_DIFF);
            let usual = Features::LAYERING.with(Features::DEEP_FLATTEN);
            wanted = Some(wanted.unwrap_or(usual).without(single));
        }
        let striping = match (&args.stripe_unit, args.stripe_count) {
            (None, None) => None,
            (Some(unit), Some(count)) => Some(Striping {
                unit: size("stripe-unit", unit, 1)?,
                count,
            }),
            _ => {
                return Err(bad(
                    "must specify both (or neither) of stripe-unit and stripe-count",
                ));
            }
        };
        let set = |name: &str| self.connection.set.get(name).map(String::as_str);
        let clone_format = match set("rbd_default_clone_format") {
            Some("1") => CloneFormat::V1,
            Some("2") => CloneFormat::V2,
            _ => CloneFormat::Auto,
        };
        Ok(CreateOptions {
            order,
            features: wanted,
            striping,
            data_pool: args.data_pool.clone(),
            clone_format,
            journal: self.journal_options()?,
        })
    }

    /// The size, which the command requires.
    fn wanted_size(&self) -> Result<u64, Exit> {
        match &self.args.size {
            Some(text) => size("size", text, MIB),
            None => Err(bad("must specify --size <M/G/T>")),
        }
    }

    pub(super) async fn create(&self) -> Done {
        let (target, _) = self.image().await?;
        let target = target.without_snap()?;
        let size = self.wanted_size()?;
        let options = self.create_options()?;
        let created = create(&target.io, &target.spec.image, size, &options).await;
        created.map_err(|e| {
            if e.is(errno::ENOENT) && target.spec.namespace.as_ref().is_some_and(|n| !n.is_empty()) {
                return complain(
                    errno::ENOENT,
                    "namespace not found - it must be created with 'rbd namespace create' before creating an image.",
                );
            }
            failed("create error", &e)
        })
    }

    pub(super) async fn remove(&self) -> Done {
        let (target, _) = self.image().await?;
        let target = target.without_snap()?;
        let progress = self.progress("Removing image");
        let removed = progress
            .end(spirula_rbd::remove(&target.io, &target.spec.image, &spirula_rbd::Progress::untold()).await);
        removed.map_err(|e| match e.errno() {
            errno::ENOTEMPTY => complain(
                errno::ENOTEMPTY,
                "image has snapshots - these must be deleted with 'rbd snap purge' before the image can be removed.",
            ),
            errno::EBUSY => complain(
                errno::EBUSY,
                "error: image still has watchers\nThis means the image is still open or the client using it crashed. \
                 Try again after closing/unmapping it or waiting 30s for the crashed client to timeout.",
            ),
            _ => failed("delete error", &e),
        })
    }

    pub(super) async fn resize(&self) -> Done {
        let (target, _) = self.image().await?;
        let target = target.without_snap()?;
        let size = self.wanted_size()?;
        let image = target.open(Options::default()).await?;
        let done = self.resize_open(&image, size).await;
        close(image, done).await
    }

    async fn resize_open(&self, image: &Image, size: u64) -> Done {
        let allow_shrink = self.args.allow_shrink;
        if image.size() == size {
            return Err(bad("new size is equal to original size "));
        }
        let progress = self.progress("Resizing image");
        let resized = progress.end(image.resize(size, allow_shrink).await);
        resized.map_err(|e| {
            if e.is(errno::EINVAL) && !allow_shrink {
                return bad("shrinking an image is only allowed with the --allow-shrink flag");
            }
            failed("resize error", &e)
        })
    }

    pub(super) async fn rename(&self) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        let dest = self.dest_near(rest, &target).await?.without_snap()?;
        if dest.io.pool_id() != target.io.pool_id() {
            return Err(bad("mv/rename across pools not supported"));
        }
        if dest.io.namespace() != target.io.namespace() {
            return Err(bad("mv/rename across namespaces not supported"));
        }
        let renamed = spirula_rbd::rename(&target.io, &target.spec.image, &dest.spec.image).await;
        renamed.map_err(|e| failed("rename error", &e))
    }

    pub(super) async fn info(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.open_to_read().await?;
        let shown = self.shown(&image).await;
        let shown = shown.map_err(|e| failed("info", &e))?;
        if self.format.is_structured() {
            self.print(
                &tree(&image, &shown, target.spec.snap.as_deref()),
                "image",
                "feature",
            );
        } else {
            print!("{}", text(&image, &shown, target.spec.snap.as_deref()));
        }
        close(image, Ok(())).await
    }

    async fn shown(&self, image: &Image) -> spirula_rbd::Result<Shown> {
        let ImageTimes { accessed, modified } = image.times().await?;
        let map = self.rados.latest_map().await?;
        let name = |id: PoolId| {
            let name = map.pool_names.get(&id).cloned();
            name.unwrap_or_else(|| format!("<missing data pool {id}>"))
        };
        Ok(Shown {
            parent: image.parent_names().await?,
            limit: image.snapshot_limit().await?,
            accessed,
            modified,
            data_pool: image.fixed().data_pool.map(name),
            mirroring: image.mirroring().await?,
            group: image
                .group()
                .await?
                .map(|g| Spec::name(&g.pool, &g.namespace, &g.group)),
        })
    }
}

/// Whether a snapshot is protected.
fn is_protected(image: &Image, snap: &str) -> bool {
    image.header().user_snapshot(snap).is_some_and(|s| s.protected)
}

/// The image's times by label, without those that were never set.
fn times(image: &Image, shown: &Shown) -> impl Iterator<Item = (&'static str, String)> {
    let all = [
        ("create_timestamp", image.fixed().created),
        ("access_timestamp", shown.accessed),
        ("modify_timestamp", shown.modified),
    ];
    let set = all.into_iter().filter(|(_, time)| !time.is_zero());
    set.map(|(name, time)| (name, time.to_ctime()))
}

fn tree(image: &Image, shown: &Shown, snap: Option<&str>) -> Value {
    let (fixed, header) = (image.fixed(), image.header());
    let mut v = Map::new();
    let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
    put("name", json!(image.name()));
    put("id", json!(fixed.id));
    put("size", json!(image.size()));
    put("objects", json!(fixed.layout.objects(image.size())));
    put("order", json!(fixed.order));
    put("object_size", json!(fixed.layout.object_size));
    put("snapshot_count", json!(header.snapshots.len()));
    if let Some(pool) = &shown.data_pool {
        put("data_pool", json!(pool));
    }
    put("block_name_prefix", json!(fixed.prefix));
    put("format", json!(2));
    put("features", json!(header.features.names().collect::<Vec<_>>()));
    put(
        "op_features",
        json!(header.op_features.names().collect::<Vec<_>>()),
    );
    put("flags", json!(header.flags.names().collect::<Vec<_>>()));
    if let Some(group) = &shown.group {
        put("group", json!(group));
    }
    for (name, time) in times(image, shown) {
        put(name, json!(time));
    }
    if let Some(snap) = snap {
        put("protected", json!(is_protected(image, snap).to_string()));
    }
    if shown.limit != NO_LIMIT {
        put("snapshot_limit", json!(shown.limit));
    }
    if let Some(p) = &shown.parent {
        let parent = json!({
            "pool": p.pool, "pool_namespace": p.namespace, "image": p.image, "id": p.id,
            "snapshot": p.snapshot, "trash": p.trash, "overlap": p.overlap,
        });
        put("parent", parent);
    }
    if header.has(Features::STRIPINGV2) {
        put("stripe_unit", json!(fixed.layout.stripe_unit));
        put("stripe_count", json!(fixed.layout.stripe_count));
    }
    if header.has(Features::JOURNALING) {
        put("journal", json!(fixed.id));
    }
    let mirroring = shown.mirroring(header.has(Features::JOURNALING));
    if !mirroring.is_empty() {
        let tree: Map<String, Value> = mirroring.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        put("mirroring", Value::Object(tree));
    }
    Value::Object(v)
}

fn text(image: &Image, shown: &Shown, snap: Option<&str>) -> String {
    let (fixed, header) = (image.fixed(), image.header());
    let mut lines = vec![
        format!(
            "size {} in {} objects",
            bytes(image.size()),
            fixed.layout.objects(image.size())
        ),
        format!(
            "order {} ({} objects)",
            fixed.order,
            bytes(fixed.layout.object_size.into())
        ),
        format!("snapshot_count: {}", header.snapshots.len()),
        format!("id: {}", fixed.id),
    ];
    lines.extend(shown.data_pool.iter().map(|pool| format!("data_pool: {pool}")));
    lines.push(format!("block_name_prefix: {}", fixed.prefix));
    lines.push("format: 2".to_owned());
    lines.push(format!("features: {}", header.features));
    lines.push(format!("op_features: {}", header.op_features));
    lines.push(format!("flags: {}", header.flags));
    lines.extend(shown.group.iter().map(|group| format!("group: {group}")));
    lines.extend(times(image, shown).map(|(name, time)| format!("{name}: {time}")));
    if let Some(snap) = snap {
        let protected = if is_protected(image, snap) {
            "True"
        } else {
            "False"
        };
        lines.push(format!("protected: {protected}"));
    }
    if shown.limit != NO_LIMIT {
        lines.push(format!("snapshot_limit: {}", shown.limit));
    }
    if let Some(p) = &shown.parent {
        let trash = if p.trash {
            format!(" (trash {})", p.id)
        } else {
            String::new()
        };
        let name = Spec::name(&p.pool, &p.namespace, &p.image);
        lines.push(format!("parent: {name}@{}{trash}", p.snapshot));
        lines.push(format!("overlap: {}", bytes(p.overlap)));
    }
    if header.has(Features::STRIPINGV2) {
        lines.push(format!("stripe unit: {}", bytes(fixed.layout.stripe_unit.into())));
        lines.push(format!("stripe count: {}", fixed.layout.stripe_count));
    }
    if header.has(Features::JOURNALING) {
        lines.push(format!("journal: {}", fixed.id));
    }
    let mirroring: BTreeMap<&str, Value> = shown
        .mirroring(header.has(Features::JOURNALING))
        .into_iter()
        .collect();
    for (key, name) in [
        ("state", "state"),
        ("mode", "mode"),
        ("global_id", "global id"),
        ("primary", "primary"),
    ] {
        // Without mirroring its mode has no meaning.
        if let Some(value) = mirroring
            .get(key)
            .filter(|_| key == "state" || mirroring.len() > 2)
        {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            lines.push(format!("mirroring {name}: {text}"));
        }
    }
    let mut out = format!("rbd image '{}':\n", image.name());
    for line in lines {
        out.push_str(&format!("\t{line}\n"));
    }
    out
}
