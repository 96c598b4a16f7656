//! Checks of how full OSDs are.

use spirula_maps::{OsdId, OsdMap, OsdState};

use super::{Checks, error, warn};

/// Checks for OSDs that run full, and for inconsistent ratios. `failsafe` is
/// `osd_failsafe_full_ratio`.
pub(super) fn check(map: &OsdMap, failsafe: f32, out: &mut Checks) {
    for (state, code, what, severe) in [
        (OsdState::FULL, "OSD_FULL", "full", true),
        (OsdState::BACKFILLFULL, "OSD_BACKFILLFULL", "backfill full", false),
        (OsdState::NEARFULL, "OSD_NEARFULL", "near full", false),
    ] {
        let osds: Vec<OsdId> = map.osds().filter(|o| map.state(*o).contains(state)).collect();
        if osds.is_empty() {
            continue;
        }
        let summary = if code == "OSD_NEARFULL" {
            format!("{} nearfull osd(s)", osds.len())
        } else {
            format!("{} {} osd(s)", osds.len(), what.replace(' ', ""))
        };
        let detail = osds.iter().map(|o| format!("osd.{o} is {what}")).collect();
        let n = osds.len();
        out.insert(
            code,
            if severe {
                error(summary, n, detail)
            } else {
                warn(summary, n, detail)
            },
        );
    }
    ratios(map, failsafe, out);
}

/// Checks for ratios that are out of order, which OSDs raise for themselves.
fn ratios(map: &OsdMap, failsafe: f32, out: &mut Checks) {
    let named = [
        ("nearfull_ratio", map.nearfull_ratio),
        ("backfillfull_ratio", map.backfillfull_ratio),
        ("full_ratio", map.full_ratio),
        ("osd_failsafe_full_ratio", failsafe),
    ];
    let (mut detail, mut below) = (Vec::new(), named[0]);
    for (name, ratio) in named.into_iter().skip(1) {
        if ratio < below.1 {
            detail.push(format!("{name} ({ratio}) < {} ({}), increased", below.0, below.1));
        }
        below = (name, ratio.max(below.1));
    }
    if !detail.is_empty() {
        let summary = "full ratio(s) out of order".to_owned();
        out.insert("OSD_OUT_OF_ORDER_FULL", error(summary, 0, detail));
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;

    use super::*;

    #[test]
    fn ratios_out_of_order_are_told_as_by_official_monitors() {
        let mut map = OsdMap::new(Fsid::default(), CrushMap::default());
        let mut told = |near, backfill, full| {
            (map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio) = (near, backfill, full);
            let mut out = Checks::new();
            check(&map, 0.97, &mut out);
            out.remove("OSD_OUT_OF_ORDER_FULL")
                .map(|c| c.detail)
                .unwrap_or_default()
        };
        assert!(told(0.85, 0.9, 0.95).is_empty());
        assert_eq!(
            told(0.97, 0.91, 0.96),
            [
                "backfillfull_ratio (0.91) < nearfull_ratio (0.97), increased",
                "full_ratio (0.96) < backfillfull_ratio (0.97), increased",
            ]
        );
        assert_eq!(
            told(0.97, 0.98, 0.96),
            [
                "full_ratio (0.96) < backfillfull_ratio (0.98), increased",
                "osd_failsafe_full_ratio (0.97) < full_ratio (0.98), increased",
            ]
        );
    }
}
