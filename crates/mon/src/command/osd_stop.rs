//! Whether OSDs may be stopped for a while (`ok-to-stop`) or removed for good (`safe-to-destroy`),
//! as the manager of Ceph tells it from the statistics of PGs (`src/mgr/DaemonServer.cc`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use spirula_maps::{OsdId, PgId, PgStat, PgState};

use super::osd_query::asked;
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd safe-to-destroy ids:String..." "osd" "r" safe_to_destroy, "tell whether OSDs hold nothing that is needed";
    "osd ok-to-stop ids:String... max?:Int" "osd" "r" ok_to_stop, "tell whether OSDs may be stopped";
}

/// A set of OSDs as `set<int>` prints.
fn list(osds: &BTreeSet<OsdId>) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(",")
}

/// The OSDs that a question names; there must be at least one.
fn asked_set(m: &View, call: &Call<'_>) -> Result<BTreeSet<OsdId>, Reply> {
    let osds: BTreeSet<OsdId> = asked(m, call)?.into_iter().collect();
    match osds.is_empty() {
        true => refuse(errno::EINVAL, "must specify one or more OSDs"),
        false => Ok(osds),
    }
}

/// OSDs by whether they may be removed for good.
#[derive(Default)]
struct Removable {
    safe: BTreeSet<OsdId>,
    /// OSDs to which PGs are mapped.
    active: BTreeSet<OsdId>,
    /// OSDs without statistics, while not all PGs are active and clean.
    missing: BTreeSet<OsdId>,
    /// OSDs that last reported that they still have PGs, while not all PGs are active and clean.
    stored: BTreeSet<OsdId>,
    /// The number of PGs on the active OSDs.
    pgs: usize,
}

fn sort_removable(m: &View, osds: &BTreeSet<OsdId>) -> Result<Removable, Reply> {
    let (map, stats) = (&m.state.osd.map, &m.state.stats);
    let unknown = stats.pgs.values().filter(|s| s.state == PgState::empty()).count();
    if unknown > 0 {
        let text = format!("{unknown} pgs have unknown state; cannot draw any conclusions");
        return refuse(errno::EAGAIN, text);
    }
    let is_clean = |s: &PgStat| s.state.contains(PgState::ACTIVE.with(PgState::CLEAN));
    let all_clean = stats.pgs.values().all(is_clean);
    let mut out = Removable::default();
    for osd in osds {
        let pgs = stats.pgs.values();
        let mapped = pgs
            .filter(|s| s.up.contains(*osd) || s.acting.contains(*osd))
            .count();
        let stat = stats.osds.get(osd).filter(|_| map.is_up(*osd));
        let among = match stat {
            _ if !map.exists(*osd) => &mut out.safe,
            _ if mapped > 0 => {
                out.pgs += mapped;
                &mut out.active
            }
            _ if all_clean => &mut out.safe,
            None => &mut out.missing,
            Some(stat) if stat.num_pgs > 0 => &mut out.stored,
            Some(_) => &mut out.safe,
        };
        among.insert(*osd);
    }
    Ok(out)
}

impl Removable {
    /// Refuses if one of the OSDs holds data that is needed, or may be.
    fn check(&self) -> Result<(), Reply> {
        let mut text = String::new();
        if !self.active.is_empty() {
            let (osds, pgs) = (list(&self.active), self.pgs);
            text += &format!("OSD(s) {osds} have {pgs} pgs currently mapped to them. ");
        }
        if !self.missing.is_empty() {
            text += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                list(&self.missing)
            );
        }
        if !self.stored.is_empty() {
            text += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure \
                 they aren't still needed.",
                list(&self.stored)
            );
        }
        if text.is_empty() {
            return Ok(());
        }
        if !self.safe.is_empty() {
            let osds = list(&self.safe);
            text = format!("OSD(s) {osds} are safe to destroy without reducing data durability. {text}");
        }
        match self.active.is_empty() && self.stored.is_empty() {
            true => refuse(errno::EAGAIN, text),
            false => refuse(errno::EBUSY, text),
        }
    }
}

/// Refuses if an OSD holds data that is needed, or may be.
pub(super) fn removable(m: &View, osd: OsdId) -> Result<(), Reply> {
    sort_removable(m, &BTreeSet::from([osd]))?.check()
}

fn safe_to_destroy(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osds = asked_set(m.view, call)?;
    let r = sort_removable(m.view, &osds)?;
    if call.format.is_structured() {
        let v = json!({"safe_to_destroy": r.safe, "active": r.active, "missing_stats": r.missing, "stored_pgs": r.stored});
        return now(Reply::json(call.format, &v));
    }
    r.check()?;
    let osds = list(&osds);
    now(Reply::status(format!(
        "OSD(s) {osds} are safe to destroy without reducing data durability."
    )))
}

/// The state of PGs if OSDs are stopped.
#[derive(Default)]
struct Offline {
    osds: BTreeSet<OsdId>,
    unknown: Vec<PgId>,
    no_pool: Vec<PgId>,
    already_inactive: Vec<PgId>,
    become_inactive: Vec<PgId>,
    not_ok: usize,
    become_degraded: Vec<PgId>,
    become_more_degraded: Vec<PgId>,
}

impl Offline {
    fn of(m: &View, osds: &BTreeSet<OsdId>) -> Self {
        let mut out = Self {
            osds: osds.clone(),
            ..Self::default()
        };
        for (pg, stat) in &m.state.stats.pgs {
            out.add(m, *pg, stat);
        }
        out
    }

    fn add(&mut self, m: &View, pg: PgId, stat: &PgStat) {
        if stat.state == PgState::empty() {
            self.unknown.push(pg);
            return;
        }
        let is_degraded = stat.state.contains(PgState::DEGRADED);
        // An OSD of an earlier version does not say which members lack nothing.
        let whole: BTreeSet<OsdId> = match is_degraded && !stat.avail_no_missing.is_empty() {
            true => stat.avail_no_missing.iter().map(|s| s.osd).collect(),
            false => stat.acting.osds().collect(),
        };
        if whole.is_disjoint(&self.osds) {
            return;
        }
        let left = whole.difference(&self.osds).count();
        let pool = m.state.osd.map.pool_of(pg);
        let dangers = [
            (pool.is_none(), &mut self.no_pool),
            (!stat.state.contains(PgState::ACTIVE), &mut self.already_inactive),
            (
                pool.is_some_and(|p| left < usize::from(p.min_size)),
                &mut self.become_inactive,
            ),
        ];
        let mut is_dangerous = false;
        for (_, pgs) in dangers.into_iter().filter(|(is, _)| *is) {
            pgs.push(pg);
            is_dangerous = true;
        }
        match (is_dangerous, is_degraded) {
            (true, _) => self.not_ok += 1,
            (false, true) => self.become_more_degraded.push(pg),
            (false, false) => self.become_degraded.push(pg),
        }
    }

    fn is_ok(&self) -> bool {
        self.not_ok == 0 && self.unknown.is_empty()
    }

    fn json(&self) -> Value {
        let ok = self.become_degraded.len() + self.become_more_degraded.len();
        let mut v = Map::from_iter([
            ("ok_to_stop".to_owned(), json!(self.is_ok())),
            ("osds".to_owned(), json!(self.osds)),
            ("num_ok_pgs".to_owned(), json!(ok)),
            ("num_not_ok_pgs".to_owned(), json!(self.not_ok)),
        ]);
        for (name, pgs) in [
            ("unknown_pgs", &self.unknown),
            ("bad_no_pool_pgs", &self.no_pool),
            ("bad_already_inactive", &self.already_inactive),
            ("bad_become_inactive", &self.become_inactive),
            ("ok_become_degraded", &self.become_degraded),
            ("ok_become_more_degraded", &self.become_more_degraded),
        ] {
            if !pgs.is_empty() {
                let pgs: Vec<String> = pgs.iter().map(ToString::to_string).collect();
                v.insert(name.to_owned(), json!(pgs));
            }
        }
        Value::Object(v)
    }
}

/// Up to `max` OSDs that may be stopped together, beginning with these: their neighbours in the
/// CRUSH hierarchy, level by level as long as all of a level may be.
fn most_to_stop(m: &View, osds: BTreeSet<OsdId>, max: usize) -> Offline {
    let mut report = Offline::of(m, &osds);
    let Some(mut at) = osds.first().map(|osd| osd.item()) else {
        return report;
    };
    if !report.is_ok() || osds.len() >= max {
        return report;
    }
    let mut osds = osds;
    while let Some(parent) = m.state.osd.map.crush.map().parent(at) {
        at = parent.id;
        let mut failed = false;
        for osd in m.state.osd.map.osds_below(at) {
            if !m.state.osd.map.is_up(osd) || !osds.insert(osd) {
                continue;
            }
            let more = Offline::of(m, &osds);
            if !more.is_ok() {
                osds.remove(&osd);
                failed = true;
                continue;
            }
            report = more;
            if osds.len() == max {
                return report;
            }
        }
        if failed {
            break;
        }
    }
    report
}

fn ok_to_stop(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osds = asked_set(m.view, call)?;
    let max = call.args.opt_int("max")?.and_then(|n| usize::try_from(n).ok());
    let max = max.unwrap_or(1).max(osds.len());
    let report = most_to_stop(m.view, osds, max);
    let mut reply = Reply::json(call.format.or_json(), &report.json()).with_newline();
    if !report.unknown.is_empty() {
        reply.code = -errno::EAGAIN;
        let pgs = report.unknown.len();
        reply.status = format!("{pgs} pgs have unknown state; cannot draw any conclusions");
    } else if report.not_ok > 0 {
        reply.code = -errno::EBUSY;
        let pgs = report.not_ok;
        reply.status = format!("unsafe to stop osd(s) at this time ({pgs} PGs are or would become offline)");
    }
    now(reply)
}
