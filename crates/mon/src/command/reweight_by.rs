//! How evenly PGs are spread over OSDs, and evening that out by weights.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use spirula_crush::weight_to_f64;
use spirula_maps::{Incremental, OsdMap, PoolId};
use spirula_maps::{OsdId, osdmap::WEIGHT_IN};
use spirula_text::general;

use super::{Call, Done, Outcome, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd utilization" "osd" "r" utilization, "show how evenly the PGs are spread";
    "osd reweight-by-utilization oload?:Int max_change?:Float max_osds?:Int no_increasing?:{--no-increasing}" "osd" "rw" reweight,
        "change the weights of OSDs that are fuller or emptier than the average";
    "osd test-reweight-by-utilization oload?:Int max_change?:Float max_osds?:Int no_increasing?:Bool" "osd" "r"
        reweight, "show what reweight-by-utilization would do";
    "osd reweight-by-pg oload?:Int max_change?:Float max_osds?:Int pools?:Poolname..." "osd" "rw" reweight,
        "change the weights of OSDs that hold more or fewer PGs than the average";
    "osd test-reweight-by-pg oload?:Int max_change?:Float max_osds?:Int pools?:Poolname..." "osd" "r" reweight,
        "show what reweight-by-pg would do";
}

/// The number of an OSD's PGs, before and after the change.
#[derive(Debug, Clone, Copy, Default)]
struct Pgs {
    before: usize,
    after: usize,
}

/// PGs of each OSD that is up and in, before and after a change.
struct Spread {
    osds: BTreeMap<OsdId, Pgs>,
    total: usize,
    moved: usize,
    /// Whether there are numbers after the change.
    compares: bool,
}

impl Spread {
    fn of(map: &OsdMap, next: Option<&OsdMap>, pools: &BTreeSet<PoolId>) -> Self {
        let there = map.osds().filter(|o| map.is_up(*o) && map.is_in(*o));
        let mut s = Self {
            osds: there.map(|o| (o, Pgs::default())).collect(),
            total: 0,
            moved: 0,
            compares: next.is_some(),
        };
        for pg in map
            .pgs()
            .filter(|pg| pools.is_empty() || pools.contains(&pg.pool))
        {
            let before = map.map_pg(pg).up;
            s.total += map.pool_of(pg).map_or(0, |p| usize::from(p.size));
            for osd in before.osds() {
                if let Some(n) = s.osds.get_mut(&osd) {
                    n.before += 1;
                }
            }
            let Some(after) = next.map(|n| n.map_pg(pg).up) else {
                continue;
            };
            for osd in after.osds() {
                if let Some(n) = s.osds.get_mut(&osd) {
                    n.after += 1;
                }
            }
            s.moved += before.osds().filter(|o| !after.contains(*o)).count();
        }
        s
    }

    fn average(&self) -> f32 {
        self.total as f32 / self.osds.len().max(1) as f32
    }

    fn deviation(&self, pgs: fn(&Pgs) -> usize) -> f32 {
        let avg = self.average();
        let sum: f32 = self.osds.values().map(|n| (pgs(n) as f32 - avg).powi(2)).sum();
        (sum / self.osds.len().max(1) as f32).sqrt()
    }

    /// The deviation that chance alone would cause.
    fn baseline(&self) -> f32 {
        let spread = 1.0 - 1.0 / self.osds.len().max(1) as f64;
        (f64::from(self.average()) * spread).sqrt() as f32
    }

    /// The OSDs with the fewest and the most PGs; the first of several.
    fn extremes(&self) -> Vec<(&'static str, OsdId, Pgs)> {
        let least = self.osds.iter().min_by_key(|(_, n)| n.before);
        let most = self.osds.iter().rev().max_by_key(|(_, n)| n.before);
        let pairs = [("min", least), ("max", most)].into_iter();
        pairs
            .filter_map(|(what, found)| found.map(|(o, n)| (what, *o, *n)))
            .collect()
    }

    fn json(&self) -> Map<String, Value> {
        let f = |v: f32| json!(f64::from(v));
        let mut v = Map::new();
        let mut put = |k: String, x: Value| v.insert(k, x);
        if self.compares {
            put("moved_pgs".into(), json!(self.moved));
            put("total_pgs".into(), json!(self.total));
        }
        put("avg_pgs".into(), f(self.average()));
        put("std_dev".into(), f(self.deviation(|n| n.before)));
        put("expected_baseline_std_dev".into(), f(self.baseline()));
        if self.compares {
            put("new_std_dev".into(), f(self.deviation(|n| n.after)));
        }
        for (what, osd, Pgs { before, after }) in self.extremes() {
            put(format!("{what}_osd"), json!(osd));
            put(format!("{what}_osd_pgs"), json!(before));
            if self.compares {
                put(format!("new_{what}_osd_pgs"), json!(after));
            }
        }
        v
    }

    fn text(&self) -> String {
        let f = |v: f32| general(f64::from(v), 6);
        let mut t = String::new();
        if self.compares {
            let share = self.moved as f32 * 100.0 / self.total.max(1) as f32;
            t.push_str(&format!(
                "moved {} / {} ({}%)\n",
                self.moved,
                self.total,
                f(share)
            ));
        }
        let arrow = |x: String| match self.compares {
            true => format!(" -> {x}"),
            false => String::new(),
        };
        let avg = self.average();
        t.push_str(&format!(
            "avg {}\nstddev {}{} (expected baseline {})\n",
            f(avg),
            f(self.deviation(|n| n.before)),
            arrow(f(self.deviation(|n| n.after))),
            f(self.baseline())
        ));
        // Without PGs the official code divides by zero and prints C's result.
        let share = |n: usize| match avg {
            0.0 => "-nan".to_owned(),
            avg => f(n as f32 / avg),
        };
        for (what, osd, Pgs { before, after }) in self.extremes() {
            t.push_str(&format!(
                "{what} osd.{osd} with {before}{} pgs ({}{} * mean)\n",
                arrow(after.to_string()),
                share(before),
                arrow(share(after))
            ));
        }
        t
    }
}

fn utilization(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let spread = Spread::of(&m.view.state.osd.map, None, &BTreeSet::new());
    if spread.osds.is_empty() {
        return refuse(errno::EINVAL, "");
    }
    now(match call.format.is_structured() {
        true => Reply::json(call.format, &Value::Object(spread.json())),
        false => Reply::text(spread.text()),
    })
}

/// The parameters of the command.
struct Wish {
    by_pg: bool,
    dry_run: bool,
    overload: i64,
    max_change: f64,
    max_osds: i64,
    pools: BTreeSet<PoolId>,
    no_increasing: bool,
}

impl Wish {
    fn read(m: &View, call: &Call<'_>) -> Result<Self, Reply> {
        let args = &call.args;
        let mut pools = BTreeSet::new();
        for name in args.list("pools") {
            match m.state.osd.map.pool_id(&name) {
                Some(id) => pools.insert(id),
                None => return refuse(errno::ENOENT, format!("pool '{name}' does not exist")),
            };
        }
        let max_change = args.opt_float("max_change")?;
        let wish = Self {
            by_pg: args.prefix().ends_with("-by-pg"),
            dry_run: args.prefix().starts_with("osd test-"),
            overload: args.opt_int("oload")?.unwrap_or(120),
            max_change: max_change.unwrap_or_else(|| m.values.float("mon_reweight_max_change")),
            max_osds: args
                .opt_int("max_osds")?
                .unwrap_or_else(|| m.values.int("mon_reweight_max_osds")),
            pools,
            no_increasing: args.flag("no_increasing"),
        };
        let positive = |name: &str, ok: bool, v: String| match ok {
            true => Ok(()),
            false => refuse(errno::EINVAL, format!("{name} {v} must be positive")),
        };
        positive("max_change", wish.max_change > 0.0, general(wish.max_change, 6))?;
        positive("max_osds", wish.max_osds > 0, wish.max_osds.to_string())?;
        if wish.overload <= 100 {
            return refuse(
                errno::EINVAL,
                "You must give a percentage higher than 100. The reweighting threshold will be calculated as <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs which are twice as utilized as the average OSD.\nFAILED reweight-by-pg",
            );
        }
        Ok(wish)
    }

    /// The average use, and each OSD's.
    fn uses(&self, m: &View) -> Result<(f64, Vec<(OsdId, f64)>), Reply> {
        match self.by_pg {
            true => self.pgs_per_weight(m),
            false => bytes_used(m),
        }
    }

    fn pgs_per_weight(&self, m: &View) -> Result<(f64, Vec<(OsdId, f64)>), Reply> {
        let map = &m.state.osd.map;
        let mut pgs: BTreeMap<OsdId, usize> = BTreeMap::new();
        let counted = m.state.stats.pgs.iter();
        let counted = counted.filter(|(pg, _)| self.pools.is_empty() || self.pools.contains(&pg.pool));
        for osd in counted
            .flat_map(|(_, s)| s.acting.osds())
            .filter(|o| map.exists(*o))
        {
            *pgs.entry(osd).or_default() += 1;
        }
        let crush = map.crush.map();
        let weight = |osd: OsdId| crush.item_weight(osd.item()).map_or(0.0, weight_to_f64);
        pgs.retain(|osd, _| weight(*osd) > 0.0);
        let copies: usize = pgs.values().sum();
        let least = usize::try_from(m.values.uint("mon_reweight_min_pgs_per_osd")).unwrap_or(usize::MAX);
        if pgs.is_empty() || copies / pgs.len() < least {
            return too_little(format!("{copies} PGs across {} osds!", pgs.len()));
        }
        let weights: f64 = pgs.keys().map(|o| weight(*o)).sum();
        let uses = pgs.iter().map(|(o, n)| (*o, *n as f64 / weight(*o)));
        Ok((copies as f64 / weights, uses.collect()))
    }

    /// New weights, the OSDs furthest from the average first.
    fn weights(&self, map: &OsdMap, average: f64, mut uses: Vec<(OsdId, f64)>) -> Vec<(OsdId, u32)> {
        let far = |x: &(OsdId, f64)| (x.1 - average).abs();
        uses.sort_by(|a, b| far(b).total_cmp(&far(a)));
        let overloaded = average * self.overload as f64 / 100.0;
        let step = (self.max_change * f64::from(WEIGHT_IN)) as u32;
        let changed = uses.into_iter().filter_map(|(osd, used)| {
            let old = map.weight(osd);
            let fair = (average / used * f64::from(old)) as u32;
            let new = if used >= overloaded {
                fair.max(old.saturating_sub(step))
            } else if !self.no_increasing && used <= average {
                fair.min(old.saturating_add(step)).min(WEIGHT_IN)
            } else {
                old
            };
            let changes = old != 0 && (new > old || used >= overloaded);
            changes.then_some((osd, new))
        });
        changed
            .take(usize::try_from(self.max_osds).unwrap_or(usize::MAX))
            .collect()
    }
}

fn too_little<T>(what: String) -> Result<T, Reply> {
    let text = format!("Refusing to reweight: we only have {what}\nFAILED reweight-by-pg");
    refuse(errno::EDOM, text)
}

fn bytes_used(m: &View) -> Result<(f64, Vec<(OsdId, f64)>), Reply> {
    let raw = m.state.stats.raw(&m.state.osd.map);
    let n = m.state.stats.osds.len().max(1) as u64;
    let least = m.values.uint("mon_reweight_min_bytes_per_osd");
    if raw.total / n < least {
        return too_little(format!("{} kb across all osds!", raw.total / 1024));
    }
    if raw.used_raw() / n < least {
        return too_little(format!("{} kb used across all osds!", raw.used_raw() / 1024));
    }
    let with_space = m.state.stats.osds.iter().filter(|(_, s)| s.statfs.total > 0);
    let uses = with_space.map(|(o, s)| (*o, s.statfs.used_raw() as f64 / s.statfs.total as f64));
    Ok((raw.used_raw() as f64 / raw.total as f64, uses.collect()))
}

fn reweight(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let wish = Wish::read(m.view, call)?;
    let (average, uses) = wish.uses(m.view)?;
    let map = m.view.state.osd.map.clone();
    let weights = wish.weights(&map, average, uses);
    let mut inc = Incremental::new(map.fsid, map.epoch.next());
    inc.new_weight = weights.iter().copied().collect();
    let mut next = (*map).clone();
    next.apply(&inc)
        .map_err(|e| Reply::error(errno::EINVAL, e.to_string()))?;
    let spread = Spread::of(&map, Some(&next), &wish.pools);
    let overloaded = average * wish.overload as f64 / 100.0;
    let share = |w: u32| f64::from(w as f32 / WEIGHT_IN as f32);
    let reply = if call.format.is_structured() {
        let list: Vec<Value> = weights
            .iter()
            .map(|(o, w)| json!({"osd": o, "weight": share(map.weight(*o)), "new_weight": share(*w)}))
            .collect();
        let v = json!({"overload_min": wish.overload, "max_change": wish.max_change, "max_change_osds": wish.max_osds,
            "average_utilization": average, "overload_utilization": overloaded, "reweights": list,
            "utilization": spread.json()});
        Reply::json(call.format, &v)
    } else {
        let mut t = format!(
            "{}\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {average:.4}\noverload_utilization {overloaded:.4}\n",
            spread.text(),
            wish.overload,
            general(wish.max_change, 6),
            wish.max_osds
        );
        for (osd, w) in &weights {
            let (old, new) = (share(map.weight(*osd)), share(*w));
            t.push_str(&format!("osd.{osd} weight {old:.4} -> {new:.4}\n"));
        }
        Reply::text(t)
    };
    if wish.dry_run || weights.is_empty() {
        return now(reply.with_status("no change"));
    }
    for (osd, w) in weights {
        m.set_weight(osd, w);
    }
    Ok(Outcome::Commit(reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;
    use spirula_maps::OsdState;

    #[test]
    fn full_osds_lose_weight_and_empty_ones_regain_it() {
        let mut map = OsdMap::new(Fsid::default(), CrushMap::with_default_root("osd").unwrap());
        let mut inc = Incremental::new(map.fsid, map.epoch.next());
        inc.new_max_osd = 4;
        for osd in OsdId::below(4) {
            inc.new_state.insert(osd, OsdState::EXISTS);
            inc.new_weight.insert(
                osd,
                if osd.index() == 1 {
                    WEIGHT_IN / 2
                } else {
                    WEIGHT_IN
                },
            );
        }
        map.apply(&inc).unwrap();
        let mut wish = Wish {
            by_pg: false,
            dry_run: true,
            overload: 120,
            max_change: 0.05,
            max_osds: 4,
            pools: BTreeSet::new(),
            no_increasing: false,
        };
        let uses = vec![(0, 0.9), (1, 0.2), (2, 0.55), (3, 0.3)];
        let uses: Vec<_> = uses.into_iter().map(|(n, used)| (OsdId::new(n), used)).collect();
        let step = (0.05 * f64::from(WEIGHT_IN)) as u32;
        let down = (OsdId::new(0), WEIGHT_IN - step);
        let up = (OsdId::new(1), WEIGHT_IN / 2 + step);
        assert_eq!(wish.weights(&map, 0.5, uses.clone()), [down, up]);
        wish.no_increasing = true;
        assert_eq!(wish.weights(&map, 0.5, uses.clone()), [down]);
        wish.overload = 200;
        assert!(wish.weights(&map, 0.5, uses).is_empty());
    }
}
