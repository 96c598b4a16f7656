//! Slow heartbeats: `OSD_SLOW_PING_TIME_BACK` and `OSD_SLOW_PING_TIME_FRONT`.

use std::collections::BTreeSet;

use spirula_asok::osd_network::{slow_limit, slowest};
use spirula_denc::Micros;
use spirula_maps::{OsdId, PingSeries};

use super::{Checks, warn};
use crate::core::View;

/// The most detail lines of a check; the rest is for `dump_osd_network`.
const MOST_LINES: usize = 10;
/// Times are reported for this many graces after they were measured.
const GRACES: u64 = 60;

/// A pair of OSDs between which heartbeats take long. Ordered by time, from, to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slow {
    /// The longest average.
    time: Micros,
    from: OsdId,
    to: OsdId,
    improving: bool,
}

impl Slow {
    fn of(from: OsdId, to: OsdId, s: &PingSeries, limit: Micros) -> Option<Self> {
        let [one, five, fifteen] = s.average;
        let time = slowest(s);
        (time > limit).then_some(Self {
            time,
            from,
            to,
            improving: one < five && five < fifteen,
        })
    }
}

/// As milliseconds with three digits.
fn ms(time: Micros) -> String {
    format!("{}.{:03}", time.as_millis(), time.count() % 1000)
}

impl View {
    pub(super) fn slow_pings(&self, out: &mut Checks) {
        let grace = self.values.uint("osd_heartbeat_grace");
        let limit = slow_limit(&self.values);
        if limit.is_zero() {
            return;
        }
        let (mut back, mut front) = (BTreeSet::new(), BTreeSet::new());
        for (from, stat) in &self.state.stats.osds {
            for (to, times) in &stat.hb_pingtime {
                let age = self.now.sec.saturating_sub(times.last_update);
                if u64::from(age) <= grace * GRACES {
                    back.extend(Slow::of(*from, *to, &times.back, limit));
                    front.extend(Slow::of(*from, *to, &times.front, limit));
                }
            }
        }
        self.slow_net("back", "OSD_SLOW_PING_TIME_BACK", &back, out);
        self.slow_net("front", "OSD_SLOW_PING_TIME_FRONT", &front, out);
    }

    fn slow_net(&self, net: &str, code: &'static str, slow: &BTreeSet<Slow>, out: &mut Checks) {
        let Some(worst) = slow.last() else { return };
        let mut detail: Vec<String> = slow
            .iter()
            .rev()
            .take(MOST_LINES)
            .map(|s| {
                format!(
                    "Slow OSD heartbeats on {net} from {} to {} {} msec{}",
                    self.osd_with_place(s.from),
                    self.osd_with_place(s.to),
                    ms(s.time),
                    if s.improving { " possibly improving" } else { "" }
                )
            })
            .collect();
        if slow.len() > MOST_LINES {
            detail.push(
                "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more information"
                    .to_owned(),
            );
        }
        let summary = format!("Slow OSD heartbeats on {net} (longest {}ms)", ms(worst.time));
        out.insert(code, warn(summary, slow.len(), detail));
    }

    /// `osd.0 [rack1] (down)`: the OSD with its buckets, except the root and the level of hosts.
    fn osd_with_place(&self, osd: OsdId) -> String {
        let map = &self.state.osd.map;
        let level = self.values.get("mon_osd_reporter_subtree_level");
        let path = map.crush.map().location(osd.item());
        let names: BTreeSet<String> = path
            .into_iter()
            .filter(|(kind, _)| kind != "root" && kind != level)
            .map(|(_, name)| name)
            .collect();
        let names: Vec<String> = names.into_iter().collect();
        let down = if map.is_down(osd) { " (down)" } else { "" };
        format!("osd.{osd} [{}]{down}", names.join(","))
    }
}
