//! Reports of OSDs that the monitor only remembers: nothing of them is replicated.

use spirula_maps::OsdId;
use spirula_proto::internal::report::{ConfigReport, OsdReportReply, PgStatsAck, PgStatsReport};

use super::{SessionId, View};
use crate::options;

/// The most bytes of options that are kept for one OSD.
const MAX_CONFIG_BYTES: usize = 256 << 10;

impl View {
    /// Keeps an OSD's options with the session, which ends with the daemon. Returns whether there
    /// is room for them.
    pub(super) fn config_report(&mut self, id: SessionId, osd: OsdId, c: ConfigReport) -> bool {
        let layers = [&c.file, &c.central, &c.overrides];
        let pairs = layers.iter().flat_map(|l| l.iter());
        let bytes: usize = pairs.map(|(k, v)| k.len() + v.len()).sum();
        if bytes > MAX_CONFIG_BYTES || c.ignored.len() > options::all().len() {
            tracing::warn!("osd.{osd}: its options take {bytes} bytes, more than are kept");
            return false;
        }
        if let Some(s) = self.sessions.get_mut(&id) {
            s.running = Some(options::Values {
                local: c.file,
                central: c.central,
                overrides: c.overrides,
                ignored: c.ignored.into_iter().collect(),
            });
        }
        true
    }

    /// Handles the statistics of an OSD and its PGs; returns the acknowledgement, or `None` if they
    /// can't be read.
    pub(super) fn pg_stats(&mut self, osd: OsdId, r: &PgStatsReport) -> Option<OsdReportReply> {
        let life = self.state.osd.lives.entry(osd);
        life.slow_ops = r.slow_ops.clone();
        if let Some(sample) = r.clock.clone() {
            life.clock.take(sample);
        }
        if let Err(e) = self.state.stats.report(osd, r, &self.state.osd.map, self.now) {
            tracing::warn!("osd.{osd}: statistics do not decode: {e}");
            return None;
        }
        let stat = self.state.stats.osds.get(&osd);
        let commit = stat.map_or(0, |s| s.os_perf_stat.commit_latency_ns);
        self.commit_time(osd, commit);
        Some(OsdReportReply::PgStatsAck(PgStatsAck {
            seq: r.seq,
            stamp: self.now,
        }))
    }
}
