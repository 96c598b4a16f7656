//! `spirula up --replace-osd N`: a new store for an OSD that has lost its own. The other OSDs fill
//! it.

use serde_json::{Value, json};
use spirula_maps::OsdId;

use super::census::Here;
use super::progress::{Progress, quoted};
use super::provision;
use crate::admin::Admin;
use crate::daemon::DaemonName;
use crate::error::Error;
use crate::layout::{Layout, Spec};

/// The flag that accepts a possible loss of data, as in Ceph.
pub(crate) const SURE: &str = "--yes-i-really-mean-it";

/// Refuses requests that are wrong, before anything is started.
///
/// # Errors
/// If OSD `n` is not one of this directory, or its directory has content.
pub(super) fn check(layout: &Layout, spec: &Spec, n: OsdId) -> Result<(), Error> {
    let dir = layout.data(&DaemonName::osd(n));
    if !spec.osds.contains(&n) {
        return Err(Error::Usage(format!(
            "osd.{n} is not one of the cluster in {}; `spirula up --osds` adds OSDs",
            layout.root().display()
        )));
    }
    let holds_store = match Here::look(layout, n) {
        Here::Nothing => false,
        Here::Made(_) => true,
        // One that an earlier attempt has begun has neither.
        Here::Begun { has_store, .. } => has_store || ["block", "log"].iter().any(|f| is_file(&dir.join(f))),
    };
    if holds_store {
        let dir = quoted(&dir);
        return Err(Error::Usage(format!(
            "{dir} may hold the only copy of something, and is not overwritten. Is it really lost? Move it away, then try again: \
             mv {dir} {dir}.old"
        )));
    }
    Ok(())
}

fn is_file(path: &std::path::Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_file())
}

/// Marks the store of OSD `n` as lost in the cluster's map, and begins a new one here; the
/// supervisor makes it.
///
/// # Errors
/// If the OSD runs, or if the lost store may have the only copy of data and `sure` is not set.
pub(super) async fn replace(
    layout: &Layout,
    progress: &Progress,
    admin: &Admin,
    n: OsdId,
    sure: bool,
) -> Result<(), Error> {
    let map = admin.osd_map().await?;
    if let Some(known) = map.osds.get(&n) {
        if known.is_up {
            return Err(Error::Usage(format!("osd.{n} runs, somewhere: it is not lost")));
        }
        if !known.is_destroyed {
            let needed = in_need(&admin.pgs().await?);
            if let Some(pgs) = needed.filter(|_| !sure) {
                return Err(Error::Usage(format!(
                    "{pgs}: the lost store may hold what no other one has. If it can be found, put it back to {}; if it is lost \
                     for good, with what was only there, add {SURE}",
                    quoted(&layout.data(&DaemonName::osd(n)))
                )));
            }
            let destroy = json!({"prefix": "osd destroy", "id": n.to_string(), "yes_i_really_mean_it": true, "format": "json"});
            admin.tell(destroy).await?;
        }
    }
    provision::osd::begin(layout, n)?;
    progress.step(format!("osd.{n} is made anew, and filled by the others"));
    Ok(())
}

/// The PGs that can't serve, or have unfound objects, with their states; in words.
pub(crate) fn in_need(pgs: &[Value]) -> Option<String> {
    const WITHOUT: [&str; 6] = [
        "down",
        "incomplete",
        "stale",
        "unknown",
        "recovery_unfound",
        "backfill_unfound",
    ];
    let lacks = |pg: &&Value| {
        let mut states = pg["state"].as_str().unwrap_or("unknown").split('+');
        let unfound = pg["stat_sum"]["num_objects_unfound"].as_u64();
        states.any(|s| WITHOUT.contains(&s)) || unfound.is_some_and(|n| n > 0)
    };
    let lacking: Vec<String> = pgs
        .iter()
        .filter(lacks)
        .map(|pg| format!("{} is {}", text(&pg["pgid"]), text(&pg["state"])))
        .collect();
    match lacking.as_slice() {
        [] => None,
        [one] => Some(format!("PG {one}")),
        [first, ..] => Some(format!("{} PGs lack something: {first}, …", lacking.len())),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::super::census::is_vacant;
    use super::*;

    #[test]
    fn pgs_that_lack_something_are_told() {
        let pg = |state: &str, unfound: u64| json!({"pgid": "1.2", "state": state, "stat_sum": {"num_objects_unfound": unfound}});
        let needs = |pg: Value| in_need(&[pg]);
        assert_eq!(needs(pg("active+clean", 0)), None);
        assert_eq!(needs(pg("active+undersized+degraded", 0)), None);
        assert_eq!(needs(pg("undersized+degraded+peered", 0)), None);
        assert_eq!(needs(pg("down", 0)).as_deref(), Some("PG 1.2 is down"));
        assert!(needs(pg("active+recovery_unfound+degraded", 0)).is_some());
        assert!(needs(pg("active+degraded", 1)).is_some());
        assert!(needs(json!({"pgid": "1.2"})).is_some());
        let two = [pg("stale+active+clean", 0), pg("incomplete", 0)];
        assert!(
            in_need(&two)
                .unwrap()
                .starts_with("2 PGs lack something: 1.2 is stale")
        );
    }

    #[test]
    fn what_may_hold_data_is_not_replaced() {
        let root = std::env::temp_dir().join(format!("spirula-replace-{}", std::process::id()));
        let layout = Layout::new(&root).unwrap();
        let spec = Spec::new([127, 0, 0, 1].into(), 1, 2, 1 << 30).unwrap();
        let refused = |n| check(&layout, &spec, OsdId::new(n)).err().map(|e| e.to_string());
        assert!(refused(2).unwrap().contains("not one of the cluster"));
        assert_eq!(refused(1), None);
        let dir = layout.data(&DaemonName::osd(OsdId::new(1)));
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.join("block")).unwrap();
        assert!(is_vacant(&dir));
        assert_eq!(refused(1), None);
        // An attempt that was interrupted.
        provision::osd::begin(&layout, OsdId::new(1)).unwrap();
        assert_eq!(refused(1), None);
        std::fs::write(dir.join("log"), "").unwrap();
        assert!(refused(1).unwrap().contains("only copy"));
        std::fs::remove_file(dir.join("log")).unwrap();
        std::fs::write(dir.join("ready"), "").unwrap();
        assert!(refused(1).unwrap().contains("only copy"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
