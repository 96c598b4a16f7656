//! Running a rule: from an input to devices.
//!
//! The algorithm is the published one with all the variants that tunables select
//! (`src/crush/mapper.c`); the result must be the same integer for integer. Beyond it, the work of
//! one mapping is limited, so that a hostile map (billions of tries, a hierarchy in a circle) ends
//! with an empty result instead of never.

mod firstn;
mod indep;

use firstn::Firstn;
use indep::Indep;

use crate::choose::{Permutations, choose};
use crate::{Bucket, ChooseArgs, CrushMap, Op, Rule, Step, Weights, hash::hash32_2};

/// A position of the result that could not be filled (`CRUSH_ITEM_NONE`).
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// A position not decided yet; never in a result.
pub(crate) const ITEM_UNDEF: i32 = 0x7fff_fffe;

/// Items looked at in one mapping before it is given up. A rule over ten thousand devices that are
/// all out looks at sixteen million.
const MAX_DRAWS: u64 = 1 << 25;

/// The work limit was reached.
struct Exhausted;

/// Scratch memory of the mapper. Keep one per thread to map without allocating.
#[derive(Debug)]
pub struct Workspace {
    perms: Permutations,
    working: Vec<i32>,
    out: Vec<i32>,
    leaves: Vec<i32>,
    max_draws: u64,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            perms: Permutations::default(),
            working: Vec::new(),
            out: Vec::new(),
            leaves: Vec::new(),
            max_draws: MAX_DRAWS,
        }
    }
}

impl Workspace {
    /// Fresh scratch memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scratch memory whose mappings give up after looking at `max_draws` items.
    pub fn with_max_draws(max_draws: u64) -> Self {
        Self {
            max_draws,
            ..Self::default()
        }
    }
}

impl CrushMap {
    /// Maps `x` by a rule to at most `result_max` devices.
    ///
    /// `weights` are the devices' reweights, 16.16, by device id: 0x10000 is in, 0 out, less a
    /// chance to be passed over; devices beyond its end are out. `choose_args` names the pool whose
    /// alternative weights apply (or the default ones, where it has none); `None` applies no
    /// alternatives. With `indep` rules positions that can't be filled are [`ITEM_NONE`]; with
    /// `firstn` the result is shorter. A rule that does not exist gives nothing.
    pub fn do_rule(
        &self,
        rule: u32,
        x: i32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
    ) -> Vec<i32> {
        let mut out = Vec::with_capacity(result_max);
        self.do_rule_with(
            &mut Workspace::new(),
            rule,
            x,
            result_max,
            weights,
            choose_args,
            &mut out,
        );
        out
    }

    /// [`CrushMap::do_rule`] into `result` (which is cleared), with scratch memory that the caller
    /// keeps.
    pub fn do_rule_with(
        &self,
        ws: &mut Workspace,
        rule: u32,
        x: i32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
        result: &mut Vec<i32>,
    ) {
        result.clear();
        let Some(rule) = self.rule(rule) else { return };
        if result_max == 0 {
            return;
        }
        let args = choose_args.and_then(|pool| self.choose_args_for(pool));
        ws.perms.clear();
        for v in [&mut ws.working, &mut ws.out, &mut ws.leaves] {
            v.clear();
            v.resize(result_max, ITEM_NONE);
        }
        let mut run = Run {
            map: self,
            x,
            weights,
            args,
            perms: &mut ws.perms,
            draws_left: ws.max_draws,
        };
        let ran = run.rule(
            rule,
            result_max,
            &mut ws.working,
            &mut ws.out,
            &mut ws.leaves,
            result,
        );
        if ran.is_err() {
            result.clear();
        }
    }
}

/// One mapping in progress.
struct Run<'a> {
    map: &'a CrushMap,
    x: i32,
    weights: &'a [u32],
    args: Option<&'a ChooseArgs>,
    perms: &'a mut Permutations,
    draws_left: u64,
}

/// The tunables as the steps of a rule have changed them.
#[derive(Clone, Copy)]
struct Settings {
    tries: u32,
    /// 0: not set.
    leaf_tries: u32,
    descend_once: bool,
    local_retries: u32,
    fallback_retries: u32,
    vary_r: u32,
    stable: bool,
}

/// The role of a drawn item in a descent.
enum Met<'a> {
    /// An item of the wanted type.
    Wanted,
    /// A bucket to go on in.
    Below(&'a Bucket),
    /// An item that the rule can't use: a device above the wanted type, an unknown device.
    Bad,
}

impl Settings {
    fn new(map: &CrushMap) -> Self {
        let t = &map.tunables;
        Self {
            // The tunable counts retries, the loops count tries.
            tries: t.choose_total_tries.wrapping_add(1),
            leaf_tries: 0,
            descend_once: t.chooseleaf_descend_once != 0,
            local_retries: t.choose_local_tries,
            fallback_retries: t.choose_local_fallback_tries,
            vary_r: u32::from(t.chooseleaf_vary_r),
            stable: t.chooseleaf_stable != 0,
        }
    }

    fn apply(&mut self, step: &Step) {
        let Ok(value) = u32::try_from(step.arg1) else {
            return;
        };
        match step.op {
            Op::SET_CHOOSE_TRIES if value > 0 => self.tries = value,
            Op::SET_CHOOSELEAF_TRIES if value > 0 => self.leaf_tries = value,
            Op::SET_CHOOSE_LOCAL_TRIES => self.local_retries = value,
            Op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => self.fallback_retries = value,
            Op::SET_CHOOSELEAF_VARY_R => self.vary_r = value,
            Op::SET_CHOOSELEAF_STABLE => self.stable = value != 0,
            _ => {}
        }
    }

    fn firstn_leaf_tries(&self) -> u32 {
        match self.leaf_tries {
            0 if self.descend_once => 1,
            0 => self.tries,
            n => n,
        }
    }
}

impl<'a> Run<'a> {
    fn rule(
        &mut self,
        rule: &Rule,
        result_max: usize,
        working: &mut Vec<i32>,
        out: &mut Vec<i32>,
        leaves: &mut [i32],
        result: &mut Vec<i32>,
    ) -> Result<(), Exhausted> {
        let mut settings = Settings::new(self.map);
        let mut held = 0;
        for step in &rule.steps {
            match step.op {
                Op::TAKE => {
                    let item = step.arg1;
                    if (0..self.map.max_devices).contains(&item) || self.map.bucket(item).is_some() {
                        working[0] = item;
                        held = 1;
                    }
                }
                Op::CHOOSE_FIRSTN | Op::CHOOSE_INDEP | Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP
                    if held > 0 =>
                {
                    held = self.choose_step(step, &settings, &working[..held], out, leaves)?;
                    if matches!(step.op, Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP) {
                        out[..held].copy_from_slice(&leaves[..held]);
                    }
                    std::mem::swap(working, out);
                }
                Op::EMIT => {
                    let room = result_max - result.len();
                    result.extend_from_slice(&working[..held.min(room)]);
                    held = 0;
                }
                _ => settings.apply(step),
            }
        }
        Ok(())
    }

    /// Runs a choose step for each item of the working set; returns the number of chosen items.
    fn choose_step(
        &mut self,
        step: &Step,
        settings: &Settings,
        from: &[i32],
        out: &mut [i32],
        leaves: &mut [i32],
    ) -> Result<usize, Exhausted> {
        let to_leaf = matches!(step.op, Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP);
        let mut numrep = step.arg1;
        if numrep <= 0 {
            numrep = numrep.saturating_add(i32::try_from(out.len()).unwrap_or(i32::MAX));
        }
        if numrep <= 0 {
            return Ok(0);
        }
        let mut done = 0;
        for bucket in from.iter().filter_map(|item| self.map.bucket(*item)) {
            let room = out.len() - done;
            if matches!(step.op, Op::CHOOSE_FIRSTN | Op::CHOOSELEAF_FIRSTN) {
                let call = Firstn {
                    bucket,
                    settings: *settings,
                    type_id: step.arg2,
                    tries: settings.tries,
                    leaf_tries: settings.firstn_leaf_tries(),
                    parent_r: 0,
                };
                let leaves = to_leaf.then_some(&mut leaves[done..]);
                done += self.firstn(call, numrep, 0, room, &mut out[done..], leaves)?;
            } else {
                let n = room.min(usize::try_from(numrep).unwrap_or(room));
                let call = Indep {
                    bucket,
                    numrep,
                    type_id: step.arg2,
                    tries: settings.tries,
                    leaf_tries: settings.leaf_tries.max(1),
                    parent_r: 0,
                };
                let leaves = to_leaf.then_some(&mut leaves[done..done + n]);
                self.indep(call, 0, n, &mut out[done..done + n], leaves)?;
                done += n;
            }
        }
        Ok(done)
    }

    fn draw(&mut self, b: &Bucket, r: i32, position: usize) -> Option<i32> {
        // Every algorithm picks the only item; racks of one host and roots of one rack are common.
        if let [only] = b.items[..] {
            return Some(only);
        }
        match b.weights {
            Weights::Uniform(_) => self.perms.choose(b, self.x, r),
            _ => choose(b, self.x, r, self.args.and_then(|a| a.get(b.id)), position),
        }
    }

    fn charge(&mut self, b: &Bucket) -> Result<(), Exhausted> {
        self.draws_left = self.draws_left.checked_sub(1 + b.len() as u64).ok_or(Exhausted)?;
        Ok(())
    }

    fn meet(&self, item: i32, wanted: i32) -> Met<'a> {
        if item >= 0 {
            return if item < self.map.max_devices && wanted == 0 {
                Met::Wanted
            } else {
                Met::Bad
            };
        }
        match self.map.bucket(item) {
            Some(b) if i32::from(b.type_id) == wanted => Met::Wanted,
            Some(b) => Met::Below(b),
            None => Met::Bad,
        }
    }

    /// Whether a device is passed over: unknown, of weight 0, or by the chance that its reweight
    /// gives.
    fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item)
            .ok()
            .and_then(|i| self.weights.get(i))
            .copied()
            .unwrap_or(0);
        weight < 0x10000 && hash32_2(self.x as u32, item as u32) & 0xffff >= weight
    }
}
