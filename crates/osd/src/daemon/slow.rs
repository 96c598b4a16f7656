//! Requests that take too long: counted for the health, and reported in the cluster log.

use std::collections::BTreeMap;

use spirula_denc::{Micros, UTime};
use spirula_maps::PoolId;
use spirula_proto::internal::report::SlowOps;
use spirula_proto::mon::LogPriority;

use super::report::Reporting;
use crate::pg::describe::OpRecord;

/// Ticks between two lines about slow requests.
const LINE_TICKS: u32 = 5;

/// A line about all slow requests, as official OSDs write it. `pools` names a pool.
fn summary(slow: &[OpRecord], pool: impl Fn(PoolId) -> Option<String>) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pools: BTreeMap<PoolId, usize> = BTreeMap::new();
    for op in slow {
        *kinds.entry(op.progress.kind()).or_default() += 1;
        *pools.entry(op.pgid.pool).or_default() += 1;
    }
    let kinds: String = kinds.iter().map(|(k, n)| format!("'{k}' : {n} ")).collect();
    let most = pools
        .iter()
        .max_by_key(|(_, n)| **n)
        .and_then(|(id, n)| Some((pool(*id)?, n)));
    let most = most.map_or_else(String::new, |(name, n)| {
        format!(" most affected pool [ '{name}' : {n} ]")
    });
    format!("{} slow requests (by type [ {kinds}]{most})", slow.len())
}

impl Reporting<'_> {
    /// The number of requests that have been here for longer than `osd_op_complaint_time`, and the
    /// age of the oldest in milliseconds.
    pub(super) fn slow_ops(&self) -> SlowOps {
        let (now, limit) = (self.setup.usec(), self.complaint_time());
        let mut found = SlowOps::default();
        for age in self.pgs.ops_received().map(|t| now.saturating_sub(t)) {
            if age >= limit {
                found.count += 1;
                let ms = u32::try_from(age.as_millis()).unwrap_or(u32::MAX);
                found.oldest_ms = found.oldest_ms.max(ms);
            }
        }
        found
    }

    fn complaint_time(&self) -> Micros {
        Micros::from_secs_f64(self.setup.values.float("osd_op_complaint_time"))
    }

    /// Reports slow requests in the cluster log, every [`LINE_TICKS`].
    pub(super) fn log_slow_ops(&mut self) {
        if !self.reports.is_line_due(LINE_TICKS) || self.slow_ops().count == 0 {
            return; // Not yet, or there are none.
        }
        let (now, limit) = (self.setup.usec(), self.complaint_time());
        let age = |op: &OpRecord| now.saturating_sub(op.stamps.received);
        let slow: Vec<OpRecord> = self.pgs.op_records().filter(|op| age(op) >= limit).collect();
        if let Some(oldest) = slow.iter().max_by_key(|op| age(op)) {
            let (count, what) = (slow.len(), &oldest.description);
            tracing::warn!(
                "{count} slow requests, the oldest is {what} currently {}",
                oldest.progress.flag_point()
            );
        }
        if self.setup.values.flag("osd_aggregated_slow_ops_logging") {
            let map = self.maps.map();
            let line = summary(&slow, |id| map.pool_name(id).map(str::to_owned));
            return self.mons.cluster_log(self.setup, LogPriority::WARN, line);
        }
        let wall = self.setup.now().to_duration();
        // As many as one message may tell of; the health has the number.
        for op in slow.iter().take(100) {
            let since = wall.saturating_sub(age(op).into());
            let line = format!(
                "slow request {} initiated {} currently {}",
                op.description,
                UTime::from(since),
                op.progress.flag_point()
            );
            self.mons.cluster_log(self.setup, LogPriority::WARN, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{EntityAddr, EntityName};
    use spirula_maps::PgId;

    use super::*;
    use crate::pg::describe::Progress;
    use crate::pg::op::Stamps;

    fn op(pool: PoolId, progress: Progress) -> OpRecord {
        OpRecord {
            description: String::new(),
            client: EntityName::default(),
            addr: EntityAddr::default(),
            tid: 0,
            pgid: PgId::new(pool, 0),
            stamps: Stamps::default(),
            peers: Vec::new(),
            progress,
        }
    }

    #[test]
    fn the_line_is_that_of_official_osds() {
        let slow = [
            op(PoolId::new(1), Progress::Delayed("waiting for peered")),
            op(PoolId::new(2), Progress::SubOps),
            op(PoolId::new(2), Progress::SubOps),
        ];
        let name = |id| (id == PoolId::new(2)).then(|| "data".to_owned());
        assert_eq!(
            summary(&slow, name),
            "3 slow requests (by type [ 'delayed' : 1 'waiting for sub ops' : 2 ] most affected pool [ 'data' : 2 ])"
        );
        assert_eq!(
            summary(&slow[..1], name),
            "1 slow requests (by type [ 'delayed' : 1 ])"
        );
    }
}
