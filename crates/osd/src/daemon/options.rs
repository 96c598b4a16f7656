//! The options that take effect while the daemon runs, from `ceph.conf`, the monitors and
//! `config set`.

use std::sync::Arc;

use spirula_conf::options::Values;
use spirula_denc::Micros;
use spirula_store::MAX_OBJECT_SIZE;

use super::state::Osd;
use crate::pg::config::{PgConfig, ScrubConfig, Window};
use crate::pg::scrub::Strides;
use crate::pg::scrub::schedule::Intervals;
use crate::pg::{ClientRate, Rate};

/// The options that may change at any time. Other options are read at the start, or by official
/// daemons only.
const LIVE: &[&str] = &[
    "bluestore_default_buffered_read",
    "debug_heartbeat_testing_span",
    "mon_osd_min_down_reporters",
    "mon_osd_reporter_subtree_level",
    "mon_warn_on_slow_ping_ratio",
    "mon_warn_on_slow_ping_time",
    "osd_beacon_report_interval",
    "osd_bench_duration",
    "osd_bench_large_size_max_throughput",
    "osd_bench_max_block_size",
    "osd_bench_small_size_max_iops",
    "osd_class_default_list",
    "osd_class_load_list",
    "osd_client_watch_timeout",
    "osd_deep_scrub_interval",
    "osd_deep_scrub_keys",
    "osd_deep_scrub_large_omap_object_key_threshold",
    "osd_deep_scrub_large_omap_object_value_sum_threshold",
    "osd_deep_scrub_randomize_ratio",
    "osd_deep_scrub_stride",
    "osd_deep_scrub_update_digest_min_age",
    "osd_default_notify_timeout",
    "osd_failsafe_full_ratio",
    "osd_fast_fail_on_connection_refused",
    "osd_heartbeat_grace",
    "osd_heartbeat_interval",
    "osd_heartbeat_min_healthy_ratio",
    "osd_heartbeat_min_peers",
    "osd_heartbeat_min_size",
    "osd_heartbeat_stale",
    "osd_max_attr_name_len",
    "osd_max_attr_size",
    "osd_max_backfills",
    "osd_max_markdown_count",
    "osd_max_markdown_period",
    "osd_max_object_name_len",
    "osd_max_object_namespace_len",
    "osd_max_object_size",
    "osd_max_omap_bytes_per_request",
    "osd_max_omap_entries_per_request",
    "osd_max_pgls",
    "osd_max_scrubs",
    "osd_max_trimming_pgs",
    "osd_max_write_op_reply_len",
    "osd_max_write_size",
    "osd_mclock_profile",
    "osd_mclock_scheduler_background_best_effort_lim",
    "osd_mclock_scheduler_background_best_effort_res",
    "osd_mclock_scheduler_background_best_effort_wgt",
    "osd_mclock_scheduler_background_recovery_lim",
    "osd_mclock_scheduler_background_recovery_res",
    "osd_mclock_scheduler_background_recovery_wgt",
    "osd_mclock_scheduler_client_lim",
    "osd_mclock_scheduler_client_res",
    "osd_mclock_scheduler_client_wgt",
    "osd_op_complaint_time",
    "osd_op_history_duration",
    "osd_op_history_size",
    "osd_op_history_slow_op_size",
    "osd_op_history_slow_op_threshold",
    "osd_pg_log_dups_tracked",
    "osd_pg_max_concurrent_snap_trims",
    "osd_recovery_max_active",
    "osd_recovery_max_chunk",
    "osd_recovery_sleep",
    "osd_scrub_auto_repair",
    "osd_scrub_auto_repair_num_errors",
    "osd_scrub_begin_hour",
    "osd_scrub_begin_week_day",
    "osd_scrub_chunk_max",
    "osd_scrub_during_recovery",
    "osd_scrub_end_hour",
    "osd_scrub_end_week_day",
    "osd_scrub_interval_randomize_ratio",
    "osd_scrub_load_threshold",
    "osd_scrub_max_interval",
    "osd_scrub_max_preemptions",
    "osd_scrub_min_interval",
    "osd_scrub_sleep",
    "osd_snap_trim_sleep",
    "spirula_osd_discard_rate",
    "spirula_osd_scrub_share",
    "spirula_osd_refill",
];

/// The most clones that a PG trims at the same time: their infos are in memory.
const MOST_SNAP_TRIMS: usize = 1024;

/// The most bytes that a request writes: they go to the other members in one message, whose limit
/// is 128 MiB.
const MOST_WRITTEN: usize = 120 << 20;

/// The most pushes that a copy has under way: they are in memory, on both sides.
const MOST_PUSHES: usize = 64;

/// The most objects that a scrub compares at once: their accounts are in memory.
const MOST_COMPARED: usize = 1024;

/// The most bytes and keys of an object that a scrub reads at once.
const MOST_READ: u64 = 4 << 20;
const MOST_KEYS: usize = 16 << 10;

/// The smallest part of its time that an OSD reads for scrubs while clients work.
const LEAST_SCRUB_SHARE: f64 = 0.001;

/// Whether a change of this option takes effect while the daemon runs.
pub(super) fn is_live(name: &str) -> bool {
    LIVE.contains(&name)
}

/// The PG core's settings under these options, within the limits of the store and the messenger.
/// `base` has the settings that no option sets.
pub(super) fn pg_config(values: &Values, base: PgConfig) -> PgConfig {
    let size = |name: &str| usize::try_from(values.uint(name)).unwrap_or(usize::MAX);
    let seconds = |name: &str| u32::try_from(values.uint(name)).unwrap_or(u32::MAX);
    // 0 is no limit but the index's.
    let attr = Some(size("osd_max_attr_size")).filter(|n| *n > 0);
    PgConfig {
        max_object_size: values.uint("osd_max_object_size").min(MAX_OBJECT_SIZE),
        max_object_name_len: size("osd_max_object_name_len").min(base.max_object_name_len),
        max_object_namespace_len: size("osd_max_object_namespace_len").min(base.max_object_namespace_len),
        max_attr_name_len: size("osd_max_attr_name_len").min(spirula_store::MAX_ATTR_NAME),
        max_attr_size: attr.unwrap_or(usize::MAX).min(base.max_attr_size),
        max_write_size: size("osd_max_write_size")
            .saturating_mul(1 << 20)
            .min(MOST_WRITTEN),
        max_pgls: values.uint("osd_max_pgls").clamp(1, base.max_pgls * 16),
        class_load_list: values.get("osd_class_load_list").to_owned(),
        class_default_list: values.get("osd_class_default_list").to_owned(),
        max_omap_entries: size("osd_max_omap_entries_per_request").min(1 << 16),
        max_omap_bytes: size("osd_max_omap_bytes_per_request").min(base.max_omap_bytes),
        max_write_op_reply_len: size("osd_max_write_op_reply_len").min(base.max_write_reply),
        watch_timeout: seconds("osd_client_watch_timeout"),
        notify_timeout: seconds("osd_default_notify_timeout"),
        // A share of the memory that the other caches leave.
        watch_bytes: (size("osd_memory_target") / 16).clamp(4 << 20, 64 << 20),
        dups_tracked: size("osd_pg_log_dups_tracked"),
        max_snap_trims: size("osd_pg_max_concurrent_snap_trims").clamp(1, MOST_SNAP_TRIMS),
        max_backfills: size("osd_max_backfills").max(1),
        // 0 active ones leave it to the kind of device.
        backfill_window: Window {
            pushes: match size("osd_recovery_max_active") {
                0 => base.backfill_window.pushes,
                n => n.min(MOST_PUSHES),
            },
            chunk: values
                .uint("osd_recovery_max_chunk")
                .clamp(64 << 10, base.backfill_window.chunk),
            ..base.backfill_window
        },
        recovery_sleep: Micros::from_secs_f64(values.float("osd_recovery_sleep")),
        clients: client_rate(values),
        recovery: rate(values, "recovery"),
        best_effort: rate(values, "best_effort"),
        max_trimming_pgs: size("osd_max_trimming_pgs").max(1),
        snap_trim_sleep: Micros::from_secs_f64(values.float("osd_snap_trim_sleep")),
        scrub: scrub_config(values, base.scrub),
        ..base
    }
}

/// How fast a class of work in the background goes on, by the profile of the scheduler. The weights
/// of the profiles are those of Ceph 16, and so are the options of one's own profile: weights, and
/// the least and the most steps in a second.
fn rate(values: &Values, class: &str) -> Rate {
    let is_recovery = class == "recovery";
    match values.get("osd_mclock_profile") {
        "balanced" => Rate::weighing(1.0),
        "high_recovery_ops" => Rate::weighing(if is_recovery { 2.0 } else { 1.0 }),
        "custom" => {
            let of =
                |what: &str| values.uint(&format!("osd_mclock_scheduler_background_{class}_{what}")) as f64;
            let clients = values.uint("osd_mclock_scheduler_client_wgt").max(1) as f64;
            Rate {
                least: of("res"),
                most: of("lim"),
                ..Rate::weighing(of("wgt").max(0.01) / clients)
            }
        }
        _ => Rate::weighing(0.5),
    }
}

/// How many requests of each client begin, which only one's own profile bounds.
fn client_rate(values: &Values) -> ClientRate {
    match values.get("osd_mclock_profile") {
        "custom" => ClientRate {
            least: values.uint("osd_mclock_scheduler_client_res") as f64,
            most: values.uint("osd_mclock_scheduler_client_lim") as f64,
        },
        _ => ClientRate::default(),
    }
}

/// The settings of scrubbing under these options.
fn scrub_config(values: &Values, base: ScrubConfig) -> ScrubConfig {
    let size = |name: &str| usize::try_from(values.uint(name)).unwrap_or(usize::MAX);
    let seconds = |name: &str| values.float(name).max(0.0);
    let share = |name: &str| values.float(name).clamp(0.0, 1.0);
    let errors = u32::try_from(values.uint("osd_scrub_auto_repair_num_errors")).unwrap_or(u32::MAX);
    ScrubConfig {
        most: size("osd_max_scrubs"),
        chunk: size("osd_scrub_chunk_max").clamp(1, MOST_COMPARED),
        strides: Strides {
            data: values.uint("osd_deep_scrub_stride").clamp(4 << 10, MOST_READ),
            keys: size("osd_deep_scrub_keys").clamp(1, MOST_KEYS),
        },
        patience: u32::try_from(values.uint("osd_scrub_max_preemptions")).unwrap_or(base.patience),
        during_recovery: values.flag("osd_scrub_during_recovery"),
        sleep: Micros::from_secs_f64(seconds("osd_scrub_sleep")),
        share: values
            .float("spirula_osd_scrub_share")
            .clamp(LEAST_SCRUB_SHARE, 1.0),
        intervals: Intervals {
            min: seconds("osd_scrub_min_interval"),
            max: seconds("osd_scrub_max_interval"),
            deep: seconds("osd_deep_scrub_interval"),
            jitter: seconds("osd_scrub_interval_randomize_ratio"),
            deep_jitter: share("osd_deep_scrub_randomize_ratio"),
        },
        digest_min_age: Micros::from_secs(values.uint("osd_deep_scrub_update_digest_min_age")),
        auto_repair: values.flag("osd_scrub_auto_repair").then_some(errors),
        large_omap_keys: values.uint("osd_deep_scrub_large_omap_object_key_threshold"),
        large_omap_bytes: values.uint("osd_deep_scrub_large_omap_object_value_sum_threshold"),
    }
}

impl Osd {
    /// Hands changed options to the parts that use them.
    pub(super) fn apply_options(&mut self) {
        let values = &self.setup.values;
        self.core
            .set_config(Arc::new(pg_config(values, self.setup.pg.clone())));
        let cached = values.flag("bluestore_default_buffered_read");
        self.io.store.set_cached_reads(cached);
        self.space.failsafe_ratio = values.float("osd_failsafe_full_ratio");
        self.perf.history.set_options(values);
        let heartbeat = super::heartbeat::settings(values);
        self.beats.core.set_settings(heartbeat);
        self.beating().choose_peers();
        self.spacing().check();
        self.reporting().report_config();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_core() {
        let (ours, core) = (
            pg_config(&Values::default(), PgConfig::default()),
            PgConfig::default(),
        );
        assert_eq!(format!("{ours:?}"), format!("{core:?}"));
    }

    #[test]
    fn values_stay_within_what_can_be_done() {
        let mut v = Values::default();
        v.central.insert("osd_max_object_size".into(), "1T".into());
        v.central.insert("osd_max_write_size".into(), "4".into());
        v.local.insert("osd_max_attr_size".into(), "1000".into());
        let c = pg_config(&v, PgConfig::default());
        assert_eq!(c.max_object_size, MAX_OBJECT_SIZE);
        assert_eq!(c.max_write_size, 4 << 20);
        assert_eq!(c.max_attr_size, 1000);
        for name in LIVE {
            assert!(spirula_conf::options::find(name).is_some(), "{name}");
        }
    }
}
