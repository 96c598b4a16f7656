//! Damaged stores of OSDs: `OSD_STORE_DAMAGED`.

use spirula_proto::internal::report::DamagedStore;

use super::{Checks, place, plural, warn};
use crate::core::View;
use crate::core::store_damage::{Damage, LIFETIME};

/// What an OSD does about its damaged store.
fn outlook(damage: &Damage) -> String {
    let (count, first) = damage.needed;
    let pgs = || match first {
        Some(first) if count == 1 => format!("pg {first}"),
        Some(first) => format!("{count} pgs, one of them {first},"),
        // Another OSD was let go just before.
        None => "the cluster".to_owned(),
    };
    match (damage.state, count) {
        (DamagedStore::SERVES, 0) => "it stops soon to be mended".to_owned(),
        (DamagedStore::SERVES, _) => {
            format!(
                "it serves on with what can be read, as {} can't do without it",
                pgs()
            )
        }
        (DamagedStore::WAITS, 0) => "it is about to be made anew".to_owned(),
        (DamagedStore::WAITS, _) => {
            format!(
                "it does not serve, and keeps what it has until {} can do without it",
                pgs()
            )
        }
        _ => "it is being mended".to_owned(),
    }
}

/// OSDs that have told of damage in their stores of late.
pub(super) fn damaged(mon: &View, out: &mut Checks) {
    let (map, now) = (&mon.state.osd.map, mon.steady.now());
    let mut detail = Vec::new();
    for osd in map.osds() {
        let damage = mon.state.osd.lives.get(osd).and_then(|l| l.damage.as_ref());
        let Some(damage) = damage.filter(|d| now.saturating_sub(d.reported) <= LIFETIME) else {
            continue;
        };
        detail.push(format!(
            "osd.{osd} ({}): {}: {}",
            place(map, osd.item()),
            damage.words,
            outlook(damage)
        ));
    }
    if !detail.is_empty() {
        let summary = format!("{} with a damaged store", plural(detail.len(), "osd"));
        out.insert("OSD_STORE_DAMAGED", warn(summary, detail.len(), detail));
    }
}
