//! OSDs that will not have deep-scrubbed their PGs in time, and what limits them:
//! `OSD_SCRUB_TOO_SLOW`. It comes days before `PG_NOT_DEEP_SCRUBBED` would.

use spirula_maps::OsdId;
use spirula_proto::internal::report::{ScrubEnd, ScrubLimit, ScrubOutlook, ScrubReport};

use super::{Check, Checks, plural, warn};
use crate::core::View;

/// The option by which share of their interval deep scrubs may be late.
const RATIO: &str = "mon_warn_pg_not_deep_scrubbed_ratio";
/// The share of the interval by which an OSD must be in time before it is late no longer.
const BACK: f64 = 0.1;
/// The part by which the end must come earlier without a limit, for the limit to be named.
const NOTABLE: f64 = 0.01;

/// What an OSD says of its scrubs.
#[derive(Debug, Clone, Default)]
pub struct Scrubs {
    /// Its last report, with the last outlook that it had; `None` before the first, and from an OSD of
    /// the version before.
    pub(crate) report: Option<ScrubReport>,
    /// Whether it will be late.
    is_late: bool,
}

impl Scrubs {
    /// Takes a report. After a restart the OSD must measure again before it can foretell anything:
    /// until then what it has said before counts.
    pub(crate) fn take(&mut self, mut report: ScrubReport, view: &View) {
        let before = self.report.take().and_then(|r| r.outlook);
        report.pgs.retain(|pg, _| view.state.osd.map.has_pg(*pg));
        report.outlook = report.outlook.or(before);
        let most = most(view) - if self.is_late { BACK } else { 0.0 };
        self.is_late = report.outlook.as_ref().is_some_and(|o| !is_in_time(&o.end, most));
        self.report = Some(report);
    }

    /// How late the OSD will be, and why.
    fn reason(&self, most: f64) -> Option<String> {
        let report = self.report.as_ref().filter(|_| self.is_late)?;
        let outlook = report.outlook.as_ref()?;
        let ScrubEnd { age, interval } = outlook.end;
        let late = f64::from(age) - f64::from(interval) * most;
        Some(match age {
            u32::MAX => format!("will never be done: {}", limits(report, outlook, most)),
            _ if late > 0.0 => {
                let why = limits(report, outlook, most);
                format!("at this pace done {} late: {why}", span(late))
            }
            _ => {
                let why = limits(report, outlook, most - BACK);
                format!("at this pace done only just in time: {why}")
            }
        })
    }
}

/// What keeps an OSD from being in time.
fn limits(report: &ScrubReport, outlook: &ScrubOutlook, most: f64) -> String {
    let alone = outlook.without.iter().find(|(_, end)| is_in_time(end, most));
    if let Some((limit, _)) = alone {
        return name(report, *limit);
    }
    if !is_in_time(&outlook.at_best, most) {
        return "the disk is too slow for its data (osd_deep_scrub_interval)".to_owned();
    }
    let helps = |end: &ScrubEnd| f64::from(end.age) < f64::from(outlook.end.age) * (1.0 - NOTABLE);
    let several = outlook.without.iter().filter(|(_, end)| helps(end));
    let several: Vec<String> = several.map(|(limit, _)| name(report, *limit)).collect();
    match several.is_empty() {
        // Each of them alone would do as much.
        true => {
            let all = outlook.without.keys().filter_map(|limit| limit.name());
            format!("several limits together ({})", all.collect::<Vec<_>>().join(", "))
        }
        false => several.join("; "),
    }
}

/// What a limit is, with its options.
fn name(report: &ScrubReport, limit: ScrubLimit) -> String {
    let what = match limit {
        ScrubLimit::HOURS => format!("permitted are {} of 24 hours", report.hours),
        ScrubLimit::DAYS => format!("permitted are {} of 7 days", report.days),
        ScrubLimit::SLEEP => "scrubs pause after each step".to_owned(),
        ScrubLimit::SHARE => "scrubs get too little time beside clients".to_owned(),
        ScrubLimit::SLOTS => "too few scrubs run at a time".to_owned(),
        ScrubLimit::LOAD => "the load of the machine keeps scrubs from beginning".to_owned(),
        _ => "something else limits scrubs".to_owned(),
    };
    format!("{what} ({limit})")
}

/// The greatest age of what was read in time, in intervals; infinite if nobody wants to know.
fn most(view: &View) -> f64 {
    match view.values.float(RATIO) {
        0.0 => f64::INFINITY,
        ratio => 1.0 + ratio,
    }
}

fn is_in_time(end: &ScrubEnd, most: f64) -> bool {
    let ends = end.age != u32::MAX && f64::from(end.age) <= f64::from(end.interval) * most;
    ends || most.is_infinite()
}

/// `9 days`, `5 hours`, `1 minute`.
fn span(seconds: f64) -> String {
    let whole = |unit: f64| (seconds / unit).round() as usize;
    match seconds {
        s if s >= 2.0 * 86_400.0 => plural(whole(86_400.0), "day"),
        s if s >= 2.0 * 3600.0 => plural(whole(3600.0), "hour"),
        _ => plural(whole(60.0), "minute"),
    }
}

/// The OSDs that will be late.
pub(super) fn check(view: &View, out: &mut Checks) {
    let (map, lives) = (&view.state.osd.map, &view.state.osd.lives);
    let most = most(view);
    let late = map.osds().filter(|o| map.is_up(*o));
    let late: Vec<(OsdId, String)> = late
        .filter_map(|osd| Some((osd, lives.get(osd)?.scrubs.reason(most)?)))
        .collect();
    if !late.is_empty() {
        out.insert("OSD_SCRUB_TOO_SLOW", too_slow(&late));
    }
}

fn too_slow(late: &[(OsdId, String)]) -> Check {
    let names: Vec<String> = late.iter().map(|(osd, _)| format!("osd.{osd}")).collect();
    let detail = late
        .iter()
        .map(|(osd, why)| format!("osd.{osd}: {why}"))
        .collect();
    let summary = format!(
        "{} will not have deep-scrubbed their data in time: {}",
        plural(late.len(), "osd"),
        names.join(", ")
    );
    warn(summary, late.len(), detail)
}
