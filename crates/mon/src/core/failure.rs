//! The judgement on an OSD that others report as not answering. Official monitors want complaints
//! from OSDs in different buckets of one type, which have lasted for a grace that is longer for
//! OSDs known to be slow. Here the monitor is a witness too: if it has heard nothing from the OSD
//! itself for that long, this counts as one more complaint. So a dead OSD is found in a cluster of
//! two hosts or of one, and two OSDs that cannot reach each other but the monitors are both left
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::{OsdId, OsdMap, OsdXInfo};

use crate::options::Values;

/// An OSD that was well for this many half-lives is not slow any more.
const FORGIVEN_AFTER: u32 = 48;

/// The complaints about an OSD: their reporters, and since when it is silent to each, converted
/// from the reporter's monotonic clock to the monitor's steady one.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    reports: BTreeMap<OsdId, Duration>,
}

impl Failure {
    pub(super) fn report(&mut self, reporter: OsdId, since: Duration) {
        self.reports.insert(reporter, since);
    }

    /// Removes a complaint that its reporter has withdrawn.
    pub(crate) fn cancel(&mut self, reporter: OsdId) {
        self.reports.remove(&reporter);
    }

    pub(crate) fn clear(&mut self) {
        self.reports.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }
}

/// The options.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    grace: Duration,
    reporters: usize,
    pub(super) level: String,
    adjust: bool,
    halflife: f64,
    stale: Duration,
}

impl Policy {
    pub(super) fn of(values: &Values) -> Self {
        let seconds = |name: &str| Duration::from_secs(values.uint(name));
        Self {
            grace: seconds("osd_heartbeat_grace"),
            reporters: usize::try_from(values.uint("mon_osd_min_down_reporters")).unwrap_or(usize::MAX),
            level: values.get("mon_osd_reporter_subtree_level").to_owned(),
            adjust: values.flag("mon_osd_adjust_heartbeat_grace"),
            halflife: halflife(values),
            stale: seconds("osd_heartbeat_stale"),
        }
    }
}

/// Seconds after which a measurement of an OSD's slowness counts half.
pub(super) fn halflife(values: &Values) -> f64 {
    values.float("mon_osd_laggy_halflife").max(1.0)
}

/// The clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub(super) steady: Duration,
    pub(super) wall: UTime,
}

/// Why an OSD is marked down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) reporters: usize,
    pub(super) failed_for: Duration,
    pub(super) grace: Duration,
}

/// The time that an OSD is known to take to answer, `elapsed` after that was measured.
pub(super) fn lag(x: &OsdXInfo, elapsed: Duration, halflife: f64) -> Duration {
    let decay = 0.5f64.powf(elapsed.as_secs_f64() / halflife);
    let seconds = decay * f64::from(x.laggy_interval) * f64::from(x.laggy_probability());
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn xinfo(map: &OsdMap, osd: OsdId) -> OsdXInfo {
    map.osd_xinfo.get(osd.index()).copied().unwrap_or_default()
}

/// The grace for an OSD: longer if it or its reporters were found to be slow before.
fn grace(
    map: &OsdMap,
    target: OsdId,
    f: &Failure,
    failed_for: Duration,
    p: &Policy,
    wall: UTime,
) -> Duration {
    if !p.adjust {
        return p.grace;
    }
    let own = lag(&xinfo(map, target), failed_for, p.halflife);
    let of_reporters: Duration = f
        .reports
        .keys()
        .map(|o| xinfo(map, *o))
        .map(|x| lag(&x, wall.since(x.down_stamp), p.halflife))
        .sum();
    let reporters = u32::try_from(f.reports.len()).unwrap_or(u32::MAX).max(1);
    p.grace + own + of_reporters / reporters
}

/// Judges an OSD; `silent` is how long this monitor has heard nothing from it, if that means
/// anything.
pub(super) fn judge(
    map: &OsdMap,
    target: OsdId,
    f: &mut Failure,
    silent: Option<Duration>,
    p: &Policy,
    clocks: Clocks,
) -> Option<Verdict> {
    f.reports.retain(|o, _| map.exists(*o));
    // The shortest complaint: only then all of them have lasted.
    let since = f.reports.values().max().copied()?;
    let failed_for = clocks.steady.saturating_sub(since);
    let grace = grace(map, target, f, failed_for, p, clocks.wall);
    let crush = map.crush.map();
    let place = |osd: OsdId| -> String {
        let at = crush
            .location(osd.item())
            .into_iter()
            .find(|(kind, _)| *kind == p.level);
        at.map_or_else(|| format!("osd.{osd}"), |(_, name)| name)
    };
    let places: BTreeSet<String> = f.reports.keys().map(|o| place(*o)).collect();
    let witness = silent.is_some_and(|s| s >= grace);
    let reporters = places.len() + usize::from(witness);
    if reporters >= p.reporters && failed_for >= grace {
        return Some(Verdict {
            reporters,
            failed_for,
            grace,
        });
    }
    if failed_for >= p.grace + p.stale {
        // Neither confirmed nor withdrawn for this long: the reporters have forgotten it.
        f.clear();
    }
    None
}

/// Updates the measured slowness of an OSD that has booted: `slow` if its process ran all the time
/// while it was down.
pub(super) fn after_boot(x: &mut OsdXInfo, slow: bool, now: UTime, values: &Values) {
    let weight = values.float("mon_osd_laggy_weight").clamp(0.0, 1.0);
    let mut interval = f64::from(x.laggy_interval) * (1.0 - weight);
    let mut probability = f64::from(x.laggy_probability()) * (1.0 - weight);
    if slow {
        if !x.down_stamp.is_zero() {
            let down = now.since(x.down_stamp).as_secs();
            let down = match values.uint("mon_osd_laggy_max_interval") {
                0 => down,
                most => down.min(most),
            };
            interval += down as f64 * weight;
        }
        probability += weight;
    }
    x.laggy_interval = interval as u32;
    x.laggy_probability_raw = (probability.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
}

/// Updates the measured slowness of an OSD that is marked down.
pub(super) fn before_down(x: &mut OsdXInfo, now: UTime, halflife: f64) {
    let well_for = now.since(x.down_stamp).as_secs_f64();
    if !x.down_stamp.is_zero() && well_for > halflife * f64::from(FORGIVEN_AFTER) {
        x.laggy_interval = 0;
        x.laggy_probability_raw = 0;
    }
    x.down_stamp = now;
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;
    use spirula_maps::OsdState;

    use super::*;

    /// Two OSDs on each of three hosts.
    fn map() -> OsdMap {
        let mut crush = CrushMap::with_default_root("host").unwrap();
        for o in 0..6 {
            let at = [
                ("root".into(), "default".into()),
                ("host".into(), format!("h{}", o / 2)),
            ];
            crush
                .insert_item(o, 0x10000, &format!("osd.{o}"), &at.into_iter().collect())
                .unwrap();
        }
        let mut map = OsdMap::new(Fsid::default(), crush);
        map.set_max_osd(6);
        map.osd_state.fill(OsdState::EXISTS.with(OsdState::UP));
        map
    }

    const fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn clocks(steady: u64) -> Clocks {
        Clocks {
            steady: secs(steady),
            wall: UTime::from_secs(1_000_000),
        }
    }

    fn reports(all: &[(OsdId, u64)]) -> Failure {
        let mut f = Failure::default();
        all.iter().for_each(|(o, since)| f.report(*o, secs(*since)));
        f
    }

    fn policy(set: &[(&str, &str)]) -> Policy {
        let mut v = Values::default();
        v.central = set.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Policy::of(&v)
    }

    #[test]
    fn it_takes_reporters_on_different_hosts_and_all_of_them_for_the_grace() {
        let (m, p) = (map(), policy(&[]));
        let ask = |all: &[(OsdId, u64)], silent, at| {
            judge(&m, OsdId::new(5), &mut reports(all), silent, &p, clocks(at))
        };
        assert_eq!(
            ask(&[(OsdId::new(0), 100), (OsdId::new(1), 100)], None, 130),
            None,
            "one host"
        );
        let verdict = ask(&[(OsdId::new(0), 100), (OsdId::new(2), 105)], None, 125).unwrap();
        assert_eq!((verdict.reporters, verdict.failed_for), (2, secs(20)));
        assert_eq!(
            ask(&[(OsdId::new(0), 100), (OsdId::new(2), 105)], None, 124),
            None
        );
        // The monitor's own silence is a voice, but never the only one.
        assert_eq!(
            ask(&[(OsdId::new(0), 100)], Some(secs(20)), 120)
                .unwrap()
                .reporters,
            2
        );
        assert_eq!(ask(&[(OsdId::new(0), 100)], Some(secs(19)), 120), None);
        assert_eq!(ask(&[], Some(secs(900)), 1000), None);
        let p = policy(&[("mon_osd_reporter_subtree_level", "osd")]);
        assert!(
            judge(
                &m,
                OsdId::new(5),
                &mut reports(&[(OsdId::new(0), 0), (OsdId::new(1), 0)]),
                None,
                &p,
                clocks(20)
            )
            .is_some()
        );
        let p = policy(&[("mon_osd_min_down_reporters", "1")]);
        assert!(
            judge(
                &m,
                OsdId::new(5),
                &mut reports(&[(OsdId::new(4), 0)]),
                None,
                &p,
                clocks(20)
            )
            .is_some()
        );
    }

    #[test]
    fn slow_osds_and_slow_reporters_get_more_time() {
        let mut m = map();
        let mut slow = OsdXInfo {
            laggy_interval: 60,
            laggy_probability_raw: u32::MAX / 2,
            down_stamp: UTime::from_secs(1_000_000),
            ..OsdXInfo::default()
        };
        m.osd_xinfo[5] = slow;
        let f = reports(&[(OsdId::new(0), 0), (OsdId::new(2), 0)]);
        let p = policy(&[]);
        let wall = UTime::from_secs(1_000_000);
        let g = grace(&m, OsdId::new(5), &f, secs(0), &p, wall).as_secs_f64();
        assert!((49.9..50.1).contains(&g), "{g}");
        // After an hour of silence half of it is left.
        let g = grace(&m, OsdId::new(5), &f, secs(3600), &p, wall).as_secs_f64();
        assert!((34.9..35.1).contains(&g), "{g}");
        slow.laggy_interval = 20;
        m.osd_xinfo[0] = slow;
        let g = grace(&m, OsdId::new(5), &f, secs(3600), &p, wall).as_secs_f64();
        assert!((39.9..40.1).contains(&g), "{g}");
        let p = policy(&[("mon_osd_adjust_heartbeat_grace", "false")]);
        assert_eq!(grace(&m, OsdId::new(5), &f, secs(0), &p, wall), secs(20));
    }

    #[test]
    fn complaints_that_nobody_confirms_are_forgotten() {
        let (m, p) = (map(), policy(&[]));
        let mut f = reports(&[(OsdId::new(0), 0)]);
        assert_eq!(judge(&m, OsdId::new(5), &mut f, None, &p, clocks(619)), None);
        assert!(!f.is_empty());
        assert_eq!(judge(&m, OsdId::new(5), &mut f, None, &p, clocks(620)), None);
        assert!(f.is_empty());
    }

    #[test]
    fn slowness_is_learnt_at_boot_and_forgotten_in_time() {
        let v = Values::default();
        let mut x = OsdXInfo {
            down_stamp: UTime::from_secs(1000),
            ..OsdXInfo::default()
        };
        after_boot(&mut x, true, UTime::from_secs(1100), &v);
        assert_eq!(x.laggy_interval, 30);
        assert!((x.laggy_probability() - 0.3).abs() < 1e-6);
        after_boot(&mut x, true, UTime::from_secs(9000), &v);
        assert_eq!(x.laggy_interval, 21 + 90, "at most five minutes count");
        assert!((x.laggy_probability() - 0.51).abs() < 1e-6);
        after_boot(&mut x, false, UTime::from_secs(9000), &v);
        assert_eq!(x.laggy_interval, 77);
        before_down(&mut x, UTime::from_secs(1000 + 48 * 3600), 3600.0);
        assert_eq!(x.laggy_interval, 77);
        before_down(&mut x, UTime::from_secs(2000 + 97 * 3600), 3600.0);
        assert_eq!((x.laggy_interval, x.laggy_probability_raw), (0, 0));
    }
}
