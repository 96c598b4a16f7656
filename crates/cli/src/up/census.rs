//! Compares the OSDs of the cluster with those of the directory: the monitors' OSD map against the
//! stores on disk.
//!
//! The map decides. An OSD that was removed from it is not made again. An OSD that the map has and
//! whose store is missing is not made anew either: the old store may be in a drawer. A directory
//! with a store is never touched.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use spirula_denc::Fsid;
use spirula_maps::OsdId;

use super::progress::quoted;
use super::provision::is_ready;
use crate::daemon::DaemonName;
use crate::layout::Layout;

/// One OSD of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InMap {
    /// The UUID of its store; zero without one (`destroyed`).
    pub(crate) uuid: Fsid,
    /// `ceph osd destroy`: the number is kept for a new store.
    pub(crate) is_destroyed: bool,
    /// The OSD has never run, so its store is empty.
    pub(crate) is_new: bool,
    /// The OSD is up.
    pub(crate) is_up: bool,
}

/// The part of the OSD map that decides about directories.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// One more than the largest number ever in use.
    max: u32,
    pub(crate) osds: BTreeMap<OsdId, InMap>,
}

impl Map {
    /// Parses the output of `ceph osd dump --format json`.
    pub(crate) fn from_dump(dump: &Value) -> Option<Self> {
        let one = |osd: &Value| {
            let states = osd["state"].as_array()?;
            let is = |name: &str| states.iter().any(|s| s == name);
            let in_map = InMap {
                uuid: Fsid::parse(osd["uuid"].as_str()?)?,
                is_destroyed: is("destroyed"),
                is_new: is("new"),
                is_up: is("up"),
            };
            Some((OsdId::try_from(osd["osd"].as_u64()?).ok()?, in_map))
        };
        Some(Self {
            max: u32::try_from(dump["max_osd"].as_u64()?).ok()?,
            osds: dump["osds"].as_array()?.iter().map(one).collect::<Option<_>>()?,
        })
    }
}

/// The content of an OSD's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    /// Nothing, or only links to devices for a new OSD.
    Nothing,
    /// An OSD whose making was begun.
    Begun {
        /// Its UUID, from the file `fsid` or from the store.
        uuid: Option<Fsid>,
        /// Whether its store is complete.
        has_store: bool,
    },
    /// A complete OSD, with its UUID if the file `fsid` exists.
    Made(Option<Fsid>),
}

impl Here {
    pub(crate) fn look(layout: &Layout, n: OsdId) -> Self {
        let name = DaemonName::osd(n);
        let dir = layout.data(&name);
        if is_ready(layout, &name) {
            Self::Made(uuid(&dir))
        } else if is_vacant(&dir) {
            Self::Nothing
        } else {
            let store = stored(&dir);
            Self::Begun {
                uuid: uuid(&dir).or(store),
                has_store: store.is_some(),
            }
        }
    }
}

/// Whether `dir` has nothing but an administrator's preparations for a new OSD: links, or a file
/// system of its own.
pub(crate) fn is_vacant(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return !dir.exists();
    };
    let is_prepared = |e: std::fs::DirEntry| {
        // Every new ext4 file system has it.
        e.file_name() == "lost+found" || e.file_type().is_ok_and(|t| t.is_symlink())
    };
    entries.into_iter().all(|entry| entry.is_ok_and(is_prepared))
}

/// The UUID of the store in an OSD's directory.
pub(super) fn stored(dir: &Path) -> Option<Fsid> {
    let store = spirula_store::superblock(&dir.join("block")).ok()?;
    Some(Fsid(store.osd_uuid))
}

/// The UUID under which the making of an OSD was begun in the directory.
pub(super) fn uuid(dir: &Path) -> Option<Fsid> {
    let text = std::fs::read_to_string(dir.join("fsid")).ok()?;
    Fsid::parse(text.trim())
}

/// The decision about an OSD of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The OSD is run.
    Run,
    /// The OSD is made, then run.
    Make,
    /// The OSD was removed and its directory is gone: it leaves the specification.
    Forget,
    /// The OSD is left alone, neither made nor run.
    Leave(Trouble),
}

/// Why an OSD is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The cluster has the OSD, and its store is not here.
    Lost,
    /// The OSD was removed from the cluster, and its store is here.
    Purged,
    /// The OSD was destroyed (`ceph osd destroy`), and its store is here.
    Destroyed,
    /// The cluster's OSD of that number has another UUID than the one here.
    Another,
}

impl Trouble {
    /// The trouble in words, with the remedy.
    pub(crate) fn text(self, layout: &Layout, n: OsdId) -> String {
        let root = quoted(layout.root());
        let dir = layout.data(&DaemonName::osd(n));
        let dir = dir.display();
        let anew = format!("`spirula up --replace-osd {n} --dir {root}`");
        let remove = format!("`spirula osd rm {n} --dir {root}`");
        match self {
            Self::Lost => format!(
                "the cluster has it, and there is no store of it in {dir}. Put its directory back if it still exists; else {anew} \
                 makes it anew and the others fill it, and {remove} takes it out of the cluster"
            ),
            Self::Purged => format!(
                "it was removed from the cluster, and its store is still in {dir}. {remove} deletes that"
            ),
            Self::Destroyed => format!(
                "it was destroyed (`ceph osd destroy`), and its store is still in {dir}. Move that away, then {anew} makes it anew; \
                 {remove} takes it out of the cluster and deletes the store"
            ),
            Self::Another => format!(
                "the store in {dir} is not the one that the cluster knows under this number. If that one is lost, move {dir} away, \
                 then {anew} makes it anew"
            ),
        }
    }
}

/// Decides about OSD `n`.
pub(crate) fn judge(map: &Map, n: OsdId, here: Here) -> Verdict {
    let known = map.osds.get(&n);
    let is_same = |uuid: Option<Fsid>| {
        let of_map = known.map(|o| o.uuid);
        // OSDs of earlier versions always have a UUID; for one without, the daemon itself compares.
        uuid.is_none() || of_map == uuid
    };
    match (here, known) {
        (Here::Made(_), None) => Verdict::Leave(Trouble::Purged),
        (Here::Made(_), Some(o)) if o.is_destroyed => Verdict::Leave(Trouble::Destroyed),
        (Here::Made(uuid), Some(_)) if is_same(uuid) => Verdict::Run,
        (Here::Made(_), Some(_)) => Verdict::Leave(Trouble::Another),
        (Here::Begun { has_store: true, .. }, None) => Verdict::Leave(Trouble::Purged),
        (Here::Begun { has_store: true, .. }, Some(o)) if o.is_destroyed => {
            Verdict::Leave(Trouble::Destroyed)
        }
        (Here::Begun { .. }, None) => Verdict::Make,
        (Here::Begun { .. }, Some(o)) if o.is_destroyed => Verdict::Make,
        (Here::Begun { uuid, has_store }, Some(o)) if is_same(uuid) => match o.is_new || has_store {
            true => Verdict::Make,
            // It has run: its store would be made anew in silence.
            false => Verdict::Leave(Trouble::Lost),
        },
        (Here::Begun { .. }, Some(_)) => Verdict::Leave(Trouble::Another),
        (Here::Nothing, Some(_)) => Verdict::Leave(Trouble::Lost),
        (Here::Nothing, None) if u32::from(n) < map.max => Verdict::Forget,
        (Here::Nothing, None) => Verdict::Make,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OSD: OsdId = OsdId::new(2);
    const OURS: Fsid = Fsid([7; 16]);
    const OTHER: Fsid = Fsid([8; 16]);

    fn begun(uuid: Fsid) -> Here {
        Here::Begun {
            uuid: Some(uuid),
            has_store: false,
        }
    }

    fn map(states: &[&str], uuid: Fsid) -> Map {
        let osd = json!({"osd": 2, "uuid": uuid.to_string(), "state": states});
        Map::from_dump(&json!({"max_osd": 3, "osds": [osd]})).unwrap()
    }

    #[test]
    fn what_the_map_has_is_run_and_nothing_is_made_twice() {
        let run = map(&["exists"], OURS);
        assert_eq!(judge(&run, OSD, Here::Made(Some(OURS))), Verdict::Run);
        assert_eq!(judge(&run, OSD, Here::Made(None)), Verdict::Run);
        let left = |here| match judge(&run, OSD, here) {
            Verdict::Leave(trouble) => trouble,
            other => panic!("{other:?}"),
        };
        assert_eq!(left(Here::Made(Some(OTHER))), Trouble::Another);
        assert_eq!(left(begun(OTHER)), Trouble::Another);
        assert_eq!(left(begun(OURS)), Trouble::Lost);
        let whole = Here::Begun {
            uuid: Some(OURS),
            has_store: true,
        };
        assert_eq!(judge(&run, OSD, whole), Verdict::Make);
        assert_eq!(left(Here::Nothing), Trouble::Lost);
    }

    #[test]
    fn what_was_removed_stays_removed() {
        let empty = Map {
            max: 3,
            ..Map::default()
        };
        assert_eq!(judge(&empty, OSD, Here::Nothing), Verdict::Forget);
        let purged = Verdict::Leave(Trouble::Purged);
        assert_eq!(judge(&empty, OSD, Here::Made(Some(OURS))), purged);
        let destroyed = map(&["destroyed", "exists"], Fsid::default());
        let left = Verdict::Leave(Trouble::Destroyed);
        assert_eq!(judge(&destroyed, OSD, Here::Made(Some(OURS))), left);
        assert_eq!(
            judge(&destroyed, OSD, Here::Nothing),
            Verdict::Leave(Trouble::Lost)
        );
    }

    #[test]
    fn what_is_new_or_was_begun_is_made() {
        let empty = Map {
            max: 2,
            ..Map::default()
        };
        assert_eq!(judge(&empty, OSD, Here::Nothing), Verdict::Make);
        assert_eq!(judge(&empty, OsdId::new(1), begun(OURS)), Verdict::Make);
        let new = map(&["exists", "new"], OURS);
        assert_eq!(judge(&new, OSD, begun(OURS)), Verdict::Make);
        let destroyed = map(&["destroyed", "exists"], Fsid::default());
        assert_eq!(judge(&destroyed, OSD, begun(OURS)), Verdict::Make);
    }
}
