//! `pg force-recovery` and its like: forcing PGs to recover first. The primaries are told; nothing
//! of it is kept here.

use std::collections::{BTreeMap, BTreeSet};

use spirula_maps::{OsdId, PgId, PgStat, PgState};
use spirula_proto::internal::report::{ForceCopy, OsdReportReply};

use super::{Call, Done, Reply, commands, errno, now};
use crate::core::{Effect, Turn};

commands! {
    "pg force-recovery pgid:Pgid..." "pg" "rw" force_recovery, "recover placement groups before all others";
    "pg force-backfill pgid:Pgid..." "pg" "rw" force_backfill, "backfill placement groups before all others";
    "pg cancel-force-recovery pgid:Pgid..." "pg" "rw" cancel_recovery, "recover placement groups in their usual order";
    "pg cancel-force-backfill pgid:Pgid..." "pg" "rw" cancel_backfill, "backfill placement groups in their usual order";
    "osd pool force-recovery who:Poolname..." "osd" "rw" pool_force_recovery, "recover pools before all others";
    "osd pool force-backfill who:Poolname..." "osd" "rw" pool_force_backfill, "backfill pools before all others";
    "osd pool cancel-force-recovery who:Poolname..." "osd" "rw" pool_cancel_recovery,
        "recover pools in their usual order";
    "osd pool cancel-force-backfill who:Poolname..." "osd" "rw" pool_cancel_backfill,
        "backfill pools in their usual order";
}

/// The kind of copying, and whether to force it.
#[derive(Clone, Copy)]
struct Wish {
    backfill: bool,
    on: bool,
}

impl Wish {
    /// The wish's name in the official answer.
    fn name(self) -> String {
        let what = if self.backfill { "backfill" } else { "recovery" };
        format!("{}force-{what}", if self.on { "" } else { "cancel-" })
    }

    /// Why the wish is pointless for this PG, with the official code if it may be a mistake.
    fn objection(self, pg: PgId, stat: &PgStat) -> Option<(String, Option<errno::Errno>)> {
        let (waits, forced, noun, verb) = match self.backfill {
            true => (
                PgState::DEGRADED
                    .with(PgState::BACKFILL_WAIT)
                    .with(PgState::BACKFILLING),
                PgState::FORCED_BACKFILL,
                "backfill",
                "backfilling",
            ),
            false => (
                PgState::DEGRADED
                    .with(PgState::RECOVERY_WAIT)
                    .with(PgState::RECOVERING),
                PgState::FORCED_RECOVERY,
                "recovery",
                "recovery",
            ),
        };
        let is_forced = stat.state.contains(forced);
        match (self.on, is_forced) {
            (true, _) if !stat.state.intersects(waits) => {
                Some((format!("pg {pg} doesn't require {verb}; "), None))
            }
            (true, true) => Some((format!("pg {pg} {noun} already forced; "), Some(errno::EINVAL))),
            (false, false) => Some((format!("pg {pg} {noun} not forced; "), None)),
            _ => None,
        }
    }
}

/// Tells the primaries of these PGs.
fn tell(
    m: &mut Turn<'_>,
    pgs: BTreeSet<PgId>,
    wish: Wish,
    mut text: String,
    mut failed: Option<errno::Errno>,
) -> Done {
    let mut by_primary: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    let mut is_any_right = false;
    for pg in pgs {
        let Some(stat) = m.view.state.stats.pgs.get(&pg) else {
            text.push_str(&format!("pg {pg} does not exist; "));
            failed = Some(errno::ENOENT);
            continue;
        };
        match wish.objection(pg, stat) {
            Some((why, objection)) => {
                text.push_str(&why);
                failed = objection.or(failed);
            }
            None => {
                is_any_right = true;
                // Nothing is copied as long as a PG has no primary.
                if let Some(primary) = m.view.state.osd.map.map_pg(pg).acting_primary {
                    by_primary.entry(primary).or_default().push(pg);
                }
            }
        }
    }
    if !is_any_right && let Some(errno) = failed {
        text.push('\n');
        return Err(Reply::error(errno, text));
    }
    // As in Ceph, the text alone tells of PGs that can't be forced, and an OSD without a session
    // keeps no other from being told.
    let mut is_each_told = true;
    for (osd, pgs) in by_primary {
        let Some(session) = m.view.osd_session(osd) else {
            text.push_str(&format!("osd.{osd} is not currently connected"));
            is_each_told = false;
            continue;
        };
        let names: Vec<String> = pgs.iter().map(PgId::to_string).collect();
        text.push_str(&format!(
            "instructing pg(s) [{}] on osd.{osd} to {}; ",
            names.join(","),
            wish.name()
        ));
        let force = ForceCopy {
            pgs,
            backfill: wish.backfill,
            on: wish.on,
        };
        let msg = m.view.to_osd(session, &OsdReportReply::Force(force));
        m.effect(Effect::Send(session, msg));
    }
    text.push('\n');
    now(match is_each_told {
        true => Reply::status(text),
        false => Reply::error(errno::EAGAIN, text),
    })
}

fn force(m: &mut Turn<'_>, call: &Call<'_>, wish: Wish) -> Done {
    let (mut pgs, mut text, mut failed) = (BTreeSet::new(), String::new(), None);
    for name in call.args.list("pgid") {
        match name.parse::<PgId>() {
            Ok(pg) => drop(pgs.insert(pg)),
            Err(_) => {
                text.push_str(&format!("invalid pgid '{name}'; "));
                failed = Some(errno::EINVAL);
            }
        }
    }
    tell(m, pgs, wish, text, failed)
}

fn force_pools(m: &mut Turn<'_>, call: &Call<'_>, wish: Wish) -> Done {
    let (mut pgs, mut text, mut failed) = (BTreeSet::new(), String::new(), None);
    for name in call.args.list("who") {
        match m.view.state.osd.map.pool_id(&name) {
            Some(id) => pgs.extend(m.view.state.stats.pgs.keys().copied().filter(|pg| pg.pool == id)),
            None => {
                text.push_str(&format!("pool {name} does not exist; "));
                failed = Some(errno::ENOENT);
            }
        }
    }
    match failed {
        None => tell(m, pgs, wish, text, None),
        Some(errno) => Err(Reply::error(errno, text)),
    }
}

const fn wish(backfill: bool, on: bool) -> Wish {
    Wish { backfill, on }
}

fn force_recovery(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force(m, call, wish(false, true))
}

fn force_backfill(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force(m, call, wish(true, true))
}

fn cancel_recovery(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force(m, call, wish(false, false))
}

fn cancel_backfill(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force(m, call, wish(true, false))
}

fn pool_force_recovery(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force_pools(m, call, wish(false, true))
}

fn pool_force_backfill(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force_pools(m, call, wish(true, true))
}

fn pool_cancel_recovery(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force_pools(m, call, wish(false, false))
}

fn pool_cancel_backfill(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    force_pools(m, call, wish(true, false))
}
