//! The choice of the peers for heartbeats.

use std::collections::BTreeSet;

use spirula_crush::hash32_2;
use spirula_maps::{OsdId, OsdMap};

/// The number of peers wished for, and their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The least number of peers, if there are as many (`osd_heartbeat_min_peers`).
    pub min_peers: usize,
    /// Complaints from this many different places mark an OSD down (`mon_osd_min_down_reporters`).
    pub reporters: usize,
    /// The type of CRUSH bucket that is a place (`mon_osd_reporter_subtree_level`).
    pub level: String,
}

/// The bucket of this type that an OSD is in; the OSD itself if there is none, as the monitors
/// count it.
fn place(map: &OsdMap, osd: OsdId, level: &str) -> String {
    let path = map.crush.map().location(osd.item());
    let at = path.into_iter().find(|(kind, _)| kind == level);
    at.map_or_else(|| format!("osd.{osd}"), |(_, name)| name)
}

/// The OSDs that share PGs with `me`, its neighbours by number (which connects all OSDs to each
/// other), one in each of the other places, and as many more as the wish has.
pub(super) fn peers(map: &OsdMap, me: OsdId, partners: &BTreeSet<OsdId>, wish: &Wish) -> BTreeSet<OsdId> {
    let up: Vec<OsdId> = map.osds().filter(|o| *o != me && map.is_up(*o)).collect();
    let mut out: BTreeSet<OsdId> = up.iter().copied().filter(|o| partners.contains(o)).collect();
    // Behind `me` first, then round again.
    let split = up.partition_point(|o| *o < me);
    let round = || up[split..].iter().chain(&up[..split]).copied();
    out.extend(round().next());
    out.extend(round().next_back());
    add_places(map, me, &up, wish, &mut out);
    for osd in round() {
        if out.len() >= wish.min_peers {
            break;
        }
        out.insert(osd);
    }
    out
}

fn add_places(map: &OsdMap, me: OsdId, up: &[OsdId], wish: &Wish, out: &mut BTreeSet<OsdId>) {
    let of = |osd: OsdId| place(map, osd, &wish.level);
    let mut seen: BTreeSet<String> = out.iter().map(|o| of(*o)).collect();
    seen.insert(of(me));
    let limit = wish.reporters.max(wish.min_peers);
    // Any order will do that differs from OSD to OSD, so that not all of them watch the same ones.
    let mut rest: Vec<OsdId> = up.iter().copied().filter(|o| !out.contains(o)).collect();
    rest.sort_by_key(|o| hash32_2(me.into(), (*o).into()));
    for osd in rest {
        if seen.len() > limit {
            break;
        }
        if seen.insert(of(osd)) {
            out.insert(osd);
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;
    use spirula_maps::OsdState;

    use super::*;

    /// `hosts` hosts of `each` OSDs; all up but `down`.
    fn map(hosts: u16, each: u16, down: &[u16]) -> OsdMap {
        let mut crush = CrushMap::with_default_root("host").unwrap();
        let n = hosts * each;
        for o in 0..n {
            let at = [
                ("root".into(), "default".into()),
                ("host".into(), format!("h{}", o / each)),
            ];
            crush
                .insert_item(o.into(), 0x10000, &format!("osd.{o}"), &at.into_iter().collect())
                .unwrap();
        }
        let mut map = OsdMap::new(Fsid::default(), crush);
        map.set_max_osd(n.into());
        for o in 0..n {
            let up = !down.contains(&o);
            map.osd_state[usize::from(o)] = if up {
                OsdState::EXISTS.with(OsdState::UP)
            } else {
                OsdState::EXISTS
            };
        }
        map
    }

    fn wish(min_peers: usize, reporters: usize) -> Wish {
        Wish {
            min_peers,
            reporters,
            level: "host".into(),
        }
    }

    #[test]
    fn partners_neighbours_and_other_places_are_watched() {
        let m = map(4, 4, &[1, 15]);
        let got = peers(
            &m,
            OsdId::new(0),
            &BTreeSet::from([1, 9].map(OsdId::new)),
            &wish(0, 2),
        );
        // Its partner 9, the next one up (2) and the one before (14): three hosts, with which two
        // reporters are possible.
        assert_eq!(got, BTreeSet::from([2, 9, 14].map(OsdId::new)));
        let got = peers(&m, OsdId::new(0), &BTreeSet::new(), &wish(10, 2));
        assert_eq!(got.len(), 10);
        let places: BTreeSet<String> = got.iter().map(|o| place(&m, *o, "host")).collect();
        assert_eq!(places.len(), 4);
    }

    #[test]
    fn a_small_cluster_watches_itself_whole_and_one_osd_nobody() {
        let m = map(1, 3, &[]);
        assert_eq!(
            peers(&m, OsdId::new(1), &BTreeSet::new(), &wish(10, 2)),
            BTreeSet::from([0, 2].map(OsdId::new))
        );
        assert_eq!(
            peers(&map(1, 1, &[]), OsdId::new(0), &BTreeSet::new(), &wish(10, 2)),
            BTreeSet::new()
        );
        // So are OSDs that are not in the map yet.
        assert_eq!(
            peers(&m, OsdId::new(7), &BTreeSet::new(), &wish(0, 0)),
            BTreeSet::from([0, 2].map(OsdId::new))
        );
    }

    #[test]
    fn everybody_is_watched_by_somebody_on_another_host() {
        let m = map(10, 3, &[]);
        for target in 0..30 {
            let at = place(&m, OsdId::new(target), "host");
            let watchers = (0..30).filter(|o| {
                place(&m, OsdId::new(*o), "host") != at
                    && peers(&m, OsdId::new(*o), &BTreeSet::new(), &wish(10, 2)).contains(&OsdId::new(target))
            });
            let hosts: BTreeSet<String> = watchers.map(|o| place(&m, OsdId::new(o), "host")).collect();
            assert!(hosts.len() >= 2, "osd.{target}: {hosts:?}");
        }
    }
}
