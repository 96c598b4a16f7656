//! Taking pools to their target number of PGs. In Ceph the manager does this.

use spirula_maps::{PgId, PgPool, PgState, PoolId};

use super::{Turn, View};

impl View {
    /// Takes a pool closer to its targets if its PGs are ready for it. Returns whether it changed.
    ///
    /// First PGs split where they are; once the new ones are active, `pgp_num` spreads them. Not
    /// both at once: a PG that is split off and moved in one step would have to be searched for.
    pub(crate) fn adjust_pg_num(&self, id: PoolId, p: &mut PgPool) -> bool {
        let pgp_num = p.pgp_num_target.min(p.pg_num);
        let split = p.pg_num_target > p.pg_num;
        if (!split && pgp_num == p.pgp_num) || !self.all_active(id) {
            return false;
        }
        if split {
            p.pg_num = p.pg_num_target;
            p.pg_num_pending = p.pg_num_target;
            // Clients that know nothing of splits send their ops again.
            p.last_force_op_resend_preluminous = self.state.osd.map.epoch.next();
        } else {
            p.pgp_num = pgp_num;
        }
        true
    }

    /// Whether every PG of a pool serves, as its primary reported since the last change of their
    /// number.
    fn all_active(&self, id: PoolId) -> bool {
        let Some(p) = self.state.osd.map.pool(id) else {
            return false;
        };
        (0..p.pg_num).all(|seed| {
            let stat = self.state.stats.pgs.get(&PgId::new(id, seed));
            stat.is_some_and(|s| s.state.contains(PgState::ACTIVE) && !s.state.contains(PgState::STALE))
        })
    }
}

impl Turn<'_> {
    /// Adjusts all pools.
    pub(super) fn adjust_pg_nums(&mut self) {
        let map = self.view.state.osd.map.clone();
        for (id, pool) in &map.pools {
            let mut next = pool.clone();
            if self.view.adjust_pg_num(*id, &mut next) {
                // Another change of the pool goes first; this one is found again.
                self.pending_osd().new_pools.entry(*id).or_insert(next);
            }
        }
    }
}
