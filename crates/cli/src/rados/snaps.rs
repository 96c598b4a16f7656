//! Snapshots of pools: `lssnap`, `mksnap`, `rmsnap`, `rollback`, `listsnaps`.

use serde_json::{Value, json};
use spirula_denc::Extent;
use spirula_denc::UTime;
use spirula_maps::{SnapId, snap};
use spirula_proto::osd_op_data::CloneInfo;
use spirula_text::Format;

use super::objects::print;
use super::{Done, OnObject, Tool, complain, format, shown};

/// A time as `lssnap` shows it.
fn stamp(t: UTime) -> String {
    let at = chrono::DateTime::from_timestamp(i64::from(t.sec), 0).unwrap_or_default();
    at.with_timezone(&chrono::Local)
        .format("%Y.%m.%d %H:%M:%S")
        .to_string()
}

/// Names of snapshots by their ids.
type SnapNames = std::collections::BTreeMap<SnapId, String>;

fn clone_value(clone: &CloneInfo, names: &SnapNames) -> Value {
    let snapshot = |id: &SnapId| match names.get(id) {
        Some(name) => json!({"id": id, "name": name}),
        None => json!({"id": id}),
    };
    let snapshots: Vec<Value> = clone.snaps.iter().map(snapshot).collect();
    if clone.id == snap::NOSNAP {
        return json!({"id": "head", "snapshots": snapshots, "size": clone.size});
    }
    let section = |o: &Extent| json!({"start": o.offset, "length": o.len});
    let overlaps: Vec<Value> = clone.overlap.iter().map(section).collect();
    json!({"id": clone.id, "snapshots": snapshots, "size": clone.size, "overlaps": overlaps})
}

fn clone_line(clone: &CloneInfo, names: &SnapNames) -> String {
    let named = |id: &SnapId| match names.get(id) {
        Some(name) => format!("{name}({id})"),
        None => id.to_string(),
    };
    let snaps: Vec<String> = clone.snaps.iter().map(named).collect();
    let snaps = if snaps.is_empty() {
        "-".to_owned()
    } else {
        snaps.join(",")
    };
    if clone.id == snap::NOSNAP {
        // The official tool ends the line behind the whole listing.
        return format!("head\t{snaps}\t{}", clone.size);
    }
    let section = |o: &Extent| format!("{}~{}", o.offset, o.len);
    let overlaps: Vec<String> = clone.overlap.iter().map(section).collect();
    format!(
        "{}\t{snaps}\t{}\t[{}]\n",
        clone.id,
        clone.size,
        overlaps.join(",")
    )
}

impl Tool {
    pub(super) async fn list_pool_snaps(&self) -> Done {
        let (io, words) = self.pool_command(0)?;
        if !words.is_empty() {
            return Err(self.usage());
        }
        let snaps = io.snaps().await.unwrap_or_default();
        for snap in &snaps {
            println!("{}\t{}\t{}", snap.snapid, snap.name, stamp(snap.stamp));
        }
        println!("{} snaps", snaps.len());
        Ok(())
    }

    pub(super) async fn make_snap(&self) -> Done {
        let (io, words) = self.pool_command(1)?;
        let (pool, name) = (self.pool_name(), words.first().map_or("", String::as_str));
        if io.has_self_managed_snaps().await.unwrap_or(false) {
            let why = format!("can't create snapshot: pool {pool} is in selfmanaged snaps mode");
            return Err(complain(1, why));
        }
        io.snap_create(name).await.map_err(|e| {
            let why = e.errno();
            complain(1, format!("error creating pool {pool} snapshot {name}: {why}"))
        })?;
        println!("created pool {pool} snap {name}");
        Ok(())
    }

    pub(super) async fn remove_snap(&self) -> Done {
        let (io, words) = self.pool_command(1)?;
        let (pool, name) = (self.pool_name(), words.first().map_or("", String::as_str));
        io.snap_remove(name).await.map_err(|e| {
            let why = e.errno();
            complain(1, format!("error removing pool {pool} snapshot {name}: {why}"))
        })?;
        println!("removed pool {pool} snap {name}");
        Ok(())
    }

    pub(super) async fn rollback(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(1..)?;
        let (pool, name) = (self.pool_name(), rest.first().map_or("", String::as_str));
        let rolled = match io.snap_by_name(name).await {
            Ok(snap) => io.rollback(&oid, snap.snapid).await,
            Err(e) => Err(e),
        };
        rolled.map_err(|e| {
            let (object, why) = (shown(&oid), e.errno());
            complain(
                1,
                format!("error rolling back pool {pool} to snapshot {object}{why}"),
            )
        })?;
        println!("rolled back pool {pool} to snapshot {name}");
        Ok(())
    }

    pub(super) async fn list_object_snaps(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let listed = io.list_snaps(&oid).await;
        let listed = listed.map_err(|e| self.failed("error listing snap shots", &oid, &e))?;
        let structured = self.format != Format::Plain;
        let mut names = SnapNames::new();
        if structured || self.args.pretty_format {
            let snaps = io.snaps().await.unwrap_or_default();
            names = snaps.into_iter().map(|s| (s.snapid, s.name)).collect();
        }
        if structured {
            let clones: Vec<Value> = listed.clones.iter().map(|c| clone_value(c, &names)).collect();
            let object = json!({"name": format::text(oid.as_bytes()), "clones": clones});
            return print(&format::render(self.format, &object, "object", ""));
        }
        let lines: String = listed.clones.iter().map(|c| clone_line(c, &names)).collect();
        let text = format!("{}:\ncloneid\tsnaps\tsize\toverlap\n{lines}\n", shown(&oid));
        print(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_show_their_snapshots_and_overlaps() {
        let names = SnapNames::from([(1, "a".to_owned())]);
        let clone = CloneInfo {
            id: 2,
            snaps: vec![1, 2],
            overlap: vec![Extent { offset: 0, len: 3 }, Extent { offset: 5, len: 1 }],
            size: 6,
        };
        assert_eq!(clone_line(&clone, &SnapNames::new()), "2\t1,2\t6\t[0~3,5~1]\n");
        assert_eq!(clone_line(&clone, &names), "2\ta(1),2\t6\t[0~3,5~1]\n");
        let head = CloneInfo {
            id: snap::NOSNAP,
            snaps: Vec::new(),
            overlap: Vec::new(),
            size: 7,
        };
        assert_eq!(clone_line(&head, &names), "head\t-\t7");
        assert_eq!(
            clone_value(&head, &names),
            json!({"id": "head", "snapshots": [], "size": 7})
        );
        let snapshots = &clone_value(&clone, &names)["snapshots"];
        assert_eq!(*snapshots, json!([{"id": 1, "name": "a"}, {"id": 2}]));
    }
}
