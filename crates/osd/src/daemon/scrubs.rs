//! Scrubs: when they are permitted, the monitors' orders, and commands about them (`dump_scrubs`,
//! `dump_scrub_outlook`, `dump_scrub_reservations`, `scrub`, `deep_scrub` and `scrub_purged_snaps` of
//! `ceph daemon osd.N` and `ceph tell`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use spirula_asok::Failure;
use spirula_conf::options::Values;
use spirula_denc::UTime;
use spirula_errno::EINVAL;
use spirula_invariant::dropped;
use spirula_maps::PgId;
use spirula_proto::osd::MOsdScrub2;

use super::admin::{failure, led, text};
use super::dropped::Dropped;
use super::state::Osd;
use crate::core::Core;
use crate::pg::scrub::hours::{Hours, Week};
use crate::pg::scrub::outlook::End;
use crate::pg::scrub::schedule::Permit;
use crate::pg::{Order, Pg};

/// The hours and days at which scheduled scrubs are permitted.
fn hours(values: &Values) -> Hours {
    let range = |first, end| (values.uint(first), values.uint(end));
    Hours::new(
        range("osd_scrub_begin_hour", "osd_scrub_end_hour"),
        range("osd_scrub_begin_week_day", "osd_scrub_end_week_day"),
    )
}

/// Whether scheduled scrubs may begin under a load for each processor.
fn is_calm(values: &Values, load: Option<f64>) -> bool {
    load.is_none_or(|load| load < values.float("osd_scrub_load_threshold"))
}

impl Osd {
    /// Decides whether scheduled scrubs are permitted now, of PGs and of the index.
    pub(super) fn permit_scrubs(&mut self) {
        let at = spirula_text::time::second_of_week(self.setup.now());
        let values = &self.setup.values;
        let permit = Permit {
            week: Week {
                hours: hours(values),
                at: at.into(),
            },
            load: is_calm(values, self.setup.host.load()),
        };
        self.core.permit_scrubs(permit);
        if let Err(e) = self.checking().tick(permit) {
            self.fail(e.into());
        }
    }

    /// Handles a monitor's order to scrub PGs.
    pub fn scrub_ordered(&mut self, m: MOsdScrub2) {
        let order = Order {
            deep: m.deep || m.repair,
            repair: m.repair,
            requested: true,
        };
        let told: BTreeSet<PgId> = m.pgs.iter().map(|pg| pg.pgid).collect();
        let is_told = |pg: &Pg| pg.seen().report().is_none() || told.contains(&pg.pgid());
        if m.deep && self.core.pgs().all(is_told) {
            // All that this OSD has is to be read.
            self.index.order();
        }
        for pg in m.pgs {
            let mut leads = false;
            self.drive(|core, cx| leads = core.order_scrub(pg.pgid, order, cx));
            if !leads {
                dropped!(self.perf.dropped, Dropped::ScrubOrder; pg = pg.pgid);
            }
        }
    }
}

/// The PGs that this OSD leads with the time at which each is due.
pub(super) fn dump(o: &Osd) -> Value {
    let led = o
        .core
        .pgs()
        .filter_map(|pg| Some((pg.pgid(), pg.seen().scrubs().scrub_times()?)));
    let mut all: Vec<_> = led.collect();
    all.sort_by_key(|(pgid, times)| (times.due, *pgid));
    let all = all.into_iter().map(|(pgid, times)| {
        json!({
            "pgid": pgid.to_string(),
            "sched_time": times.due.to_string(),
            "deadline": times.deadline.to_string(),
            "forced": times.is_ordered,
        })
    });
    Value::Array(all.collect())
}

/// The scrubs under way: of PGs that this OSD leads, and all others that it takes part in.
pub(super) fn reservations(o: &Osd) -> Value {
    let local = o
        .core
        .pgs()
        .filter(|pg| pg.seen().scrubs().is_scrubbing())
        .count();
    json!({
        "scrubs_local": local,
        "scrubs_remote": o.core.seen_scrubs().under_way().saturating_sub(local),
        "osd_max_scrubs": o.core.seen_scrubs().most(),
    })
}

/// A number that may be infinite, which JSON does not have.
fn finite(n: f64) -> Value {
    json!(n.is_finite().then_some(n))
}

/// What the OSD foretells of its deep scrubs, and from what: seconds, bytes, and parts from 0 to 1.
pub(super) fn outlook(o: &Osd) -> Value {
    let Some(known) = o.core.seen_scrubs().outlook_so_far() else {
        return json!({});
    };
    let (hours, days) = known.week.hours.count();
    let (bytes, objects) = known.left;
    let end = |end: &End| json!({"age": finite(end.age), "interval": end.interval});
    let measured = known.means.map(|m| {
        json!({
            "bytes_per_second": m.speed.bytes,
            "seconds_per_object": m.speed.look,
            "clients_work": m.busy,
            "slots_in_use": m.taken,
            "load_permits": m.calm,
        })
    });
    let ends = known.ends.as_ref().map(|ends| {
        let without = ends.without.iter();
        let without = without.map(|(limit, e)| (format!("{limit:?}").to_lowercase(), end(e)));
        json!({
            "end": end(&ends.end),
            "end_without": without.collect::<Map<_, _>>(),
            "end_at_best": end(&ends.at_best),
        })
    });
    json!({
        "share_while_clients_work": known.share,
        "permitted": {
            "hours_of_day": hours,
            "days_of_week": days,
            "now": known.week.is_open(),
            "opens_in": finite(known.week.until_open()),
        },
        "left": {"bytes": bytes, "objects": objects},
        "measured": measured,
        "outlook": ends,
    })
}

/// Has clones looked for that the trimming of snapshots has left, and trimmed: by scrubs of the PGs
/// that may have some.
pub(super) fn purged_snaps(o: &mut Osd) -> Value {
    o.drive(Core::scrub_for_strays);
    json!("")
}

/// Has a PG scrubbed when its turn comes: by making the last scrub older than it is, by `time`
/// seconds or the longest interval.
pub(super) fn age(o: &mut Osd, args: &Map<String, Value>, deep: bool) -> Result<Value, Failure> {
    if !args.contains_key("pgid") {
        return Err(failure(EINVAL, "no pgid specified"));
    }
    let pgid: PgId = led(o, text(args, "pgid")?)?.pgid;
    let given = args.get("time").and_then(Value::as_u64).filter(|time| *time > 0);
    let now = o.setup.now();
    let mut stamp = UTime::ZERO;
    o.drive(|core, cx| stamp = core.age_scrub(pgid, deep, given, now, cx));
    Ok(json!({"deep": deep, "stamp": stamp.to_string()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_days_and_load_hold() {
        let mut values = Values::default();
        assert_eq!(hours(&values).count(), (24, 7));
        assert!(is_calm(&values, Some(0.4)) && is_calm(&values, None));
        assert!(!is_calm(&values, Some(0.6)));
        for (name, value) in [
            ("osd_scrub_begin_hour", "22"),
            ("osd_scrub_end_hour", "6"),
            ("osd_scrub_begin_week_day", "1"),
            ("osd_scrub_end_week_day", "6"),
            ("osd_scrub_load_threshold", "2"),
        ] {
            values.central.insert(name.into(), value.into());
        }
        assert_eq!(hours(&values), Hours::new((22, 6), (1, 6)));
        assert!(is_calm(&values, Some(1.9)));
    }
}
