//! The commands of `ceph daemon osd.N` and `ceph tell osd.N`: those of the official OSD, and why
//! some are not supported.

use spirula_asok::{COUNTER, Command};

const FILTER: &[(&str, &str)] = &[("filterstr*?", "CephString")];

macro_rules! commands {
    ($($name:literal $params:expr, $help:literal;)*) => {
        &[$(Command { name: $name, params: $params, help: $help },)*]
    };
}

/// The commands, besides those that every daemon has.
pub(super) const COMMANDS: &[Command] = commands! {
    "bench" &[("count?", "CephInt"), ("size?", "CephInt"), ("object_size?", "CephInt"), ("object_num?", "CephInt")],
        "OSD benchmark: write <count> <size>-byte objects(with <obj_size> <obj_num>), (default count=1G default size=4MB). Results in log.";
    "bluefs debug_inject_read_zeros" &[], "inject zeros into the next read of BlueFS";
    "bluefs files list" &[], "print the files of BlueFS";
    "bluefs stats" &[], "dump statistics of BlueFS";
    "bluestore allocator dump block" &[], "dump the allocator's free regions";
    "bluestore allocator fragmentation block" &[], "show how fragmented the allocator is";
    "bluestore allocator score block" &[], "show a score of the allocator's fragmentation";
    "bluestore bluefs device info" &[("alloc_size?", "CephInt")], "show the space of BlueFS's devices";
    "cache drop" &[], "Drop all OSD caches";
    "cache status" &[], "Get OSD caches statistics";
    "calc_objectstore_db_histogram" &[], "generate a histogram of BlueStore's keys and values";
    "check_index" &[], "look for damage in the index of the store, and show how far that is";
    "cluster_log" &[("level", "CephChoices,strings=error"), ("message*", "CephString")],
        "log a message to the cluster log";
    "compact" &[], "move what the store's log holds into its index, and remove garbage from that";
    "cpu_profiler" &[("arg", "CephChoices,strings=status|flush")], "run cpu profiling on daemon";
    "debug dump_missing" &[("filename", "CephFilepath")], "dump missing objects to a named file";
    "debug kick_recovery_wq" &[("delay", "CephInt,range=0")], "set osd_recovery_delay_start to <val>";
    "deep_scrub" &[("pgid?", "CephPgid"), ("time?", "CephInt")], "trigger a scheduled deep scrub";
    "dump_blocked_ops" FILTER, "show the blocked ops currently in flight";
    "dump_blocklist" &[], "dump blocklisted clients and times";
    "dump_clients" &[], "show clients with what they take: requests, bytes, watches, replies that wait";
    "dump_historic_ops" FILTER, "show recent ops";
    "dump_historic_ops_by_duration" FILTER, "show slowest recent ops, sorted by duration";
    "dump_historic_slow_ops" FILTER, "show slowest recent ops";
    "dump_mempools" &[], "get mempool stats";
    "dump_objectstore_kv_stats" &[], "print statistics of BlueStore's key-value store";
    "dump_op_pq_state" &[], "dump op priority queue state";
    "dump_ops_in_flight" FILTER, "show the ops currently in flight";
    "dump_osd_network" &[("value?", "CephInt")], "dump heartbeat times";
    "dump_pg_recovery_stats" &[], "dump pg recovery statistics";
    "dump_pgstate_history" &[], "show recent state history";
    "dump_recovery_reservations" &[], "show recovery reservations";
    "dump_scrub_outlook" &[], "show how fast scrubs read, for which share of time, and when they will be done";
    "dump_scrub_reservations" &[], "show scrub reservations";
    "dump_scrubs" &[], "print scheduled scrubs";
    "dump_transitions" &[], "show recent transitions of the store and of sessions";
    "dump_watchers" &[], "show clients which have active watches, and on which objects";
    "flush_journal" &[], "flush the journal to permanent store";
    "flush_pg_stats" &[], "flush pg stats";
    "flush_store_cache" &[], "flush BlueStore's cache";
    "get_heap_property" &[("property", "CephString")], "get malloc extension heap property";
    "get_latest_osdmap" &[], "force osd to update the latest map from the mon";
    "get_mapped_pools" &[], "dump pools whose PG(s) are mapped to this OSD.";
    "getomap" &[("pool", "CephString"), ("objname", "CephObjectname")], "output entire object map";
    "heap" &[("heapcmd", "CephChoices,strings=dump|start_profiler|stop_profiler|release|get_release_rate|set_release_rate|stats"),
        ("value?", "CephString")], "show heap usage info (available only if compiled with tcmalloc)";
    "injectdataerr" &[("pool", "CephString"), ("objname", "CephObjectname"), ("shardid?", "CephInt,range=0|255")],
        "inject data error to an object";
    "injectfull" &[("type?", "CephString"), ("count?", "CephInt")], "Inject a full disk (optional count times)";
    "injectmdataerr" &[("pool", "CephString"), ("objname", "CephObjectname"), ("shardid?", "CephInt,range=0|255")],
        "inject metadata error to an object";
    "list_devices" &[], "list OSD devices.";
    "list_unfound" &[("pgid?", "CephPgid"), ("offset?", "CephString")], "list unfound objects on this pg";
    "log dump" &[], "dump recent log entries to log file";
    "log flush" &[], "flush log entries to log file";
    "log reopen" &[], "reopen log file";
    "mark_unfound_lost" &[("pgid?", "CephPgid"), ("mulcmd", "CephChoices,strings=revert|delete")],
        "mark all unfound objects in this pg as lost";
    "objecter_requests" &[], "show in-progress osd requests";
    "ops" FILTER, "show the ops currently in flight";
    "perf dump" COUNTER, "dump perfcounters value";
    "perf histogram dump" COUNTER, "dump perf histogram values";
    "perf histogram schema" &[], "dump perf histogram schema";
    "perf reset" &[("var", "CephString")], "perf reset <name>: perf reset all or one perfcounter name";
    "perf schema" &[], "dump perfcounters schema";
    "pg" &[("pgid", "CephPgid"), ("cmd", "CephChoices,strings=query")], "";
    "pg" &[("pgid", "CephPgid"), ("cmd", "CephChoices,strings=mark_unfound_lost"), ("mulcmd", "CephChoices,strings=revert|delete")], "";
    "pg" &[("pgid", "CephPgid"), ("cmd", "CephChoices,strings=list_unfound"), ("offset?", "CephString")], "";
    "pg" &[("pgid", "CephPgid"), ("cmd", "CephChoices,strings=scrub"), ("time?", "CephInt")], "";
    "pg" &[("pgid", "CephPgid"), ("cmd", "CephChoices,strings=deep_scrub"), ("time?", "CephInt")], "";
    "query" &[("pgid?", "CephPgid")], "show details of a specific pg";
    "reset_pg_recovery_stats" &[], "reset pg recovery statistics";
    "reset_purged_snaps_last" &[], "reset the superblock's purged_snaps_last";
    "rmomapkey" &[("pool", "CephString"), ("objname", "CephObjectname"), ("key", "CephString")], "remove omap key";
    "scrub" &[("pgid?", "CephPgid"), ("time?", "CephInt")], "trigger a scheduled scrub";
    "scrub_purged_snaps" &[], "scrub placement groups for clones of purged snapshots, and trim these";
    "send_beacon" &[], "send OSD beacon to mon immediately";
    "set_heap_property" &[("property", "CephString"), ("value", "CephInt")], "update malloc extension heap property";
    "set_recovery_delay" &[("utime?", "CephInt")], "delay osd recovery by specified seconds";
    "setomapheader" &[("pool", "CephString"), ("objname", "CephObjectname"), ("header", "CephString")],
        "set omap header";
    "setomapval" &[("pool", "CephString"), ("objname", "CephObjectname"), ("key", "CephString"), ("val", "CephString")],
        "set omap key";
    "smart" &[("devid?", "CephString")], "probe OSD devices for SMART data.";
    "status" &[], "high-level status of OSD";
    "truncobj" &[("pool", "CephString"), ("objname", "CephObjectname"), ("len", "CephInt")], "truncate object to length";
};

/// Why a command of the official OSD is not supported; `None` for one that is supported or does not
/// exist.
pub(super) fn unsupported(prefix: &str) -> Option<&'static str> {
    Some(match prefix {
        p if p.starts_with("bluefs ") || p.starts_with("bluestore ") => "this OSD's store is not BlueStore",
        "calc_objectstore_db_histogram" | "dump_objectstore_kv_stats" | "flush_store_cache" => {
            "this OSD's store is not BlueStore"
        }
        "cpu_profiler" => "cpu_profiler support not linked in",
        "debug dump_missing" => "a placement group serves only while no object is missing",
        "debug kick_recovery_wq"
        | "dump_pg_recovery_stats"
        | "reset_pg_recovery_stats"
        | "set_recovery_delay" => "recovery has no work queue of its own",
        "get_heap_property" | "set_heap_property" | "heap" => {
            "could not issue heap profiler command -- not using tcmalloc!"
        }
        "getomap" | "setomapval" | "rmomapkey" | "setomapheader" | "truncobj" | "injectdataerr"
        | "injectmdataerr" => "tests that go round the placement group's log are not offered",
        "log dump" => "recent log entries are not kept in memory",
        "log reopen" => "this process does not open its log: whoever started it does",
        "objecter_requests" => "an OSD makes no requests as a client",
        "reset_purged_snaps_last" => "purged snapshots are not kept in an index",
        "smart" => "devices are not asked for SMART data: use smartctl",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_about_a_command_in_the_table() {
        let refused = COMMANDS.iter().filter(|c| unsupported(c.name).is_some()).count();
        assert_eq!(refused, 31);
        assert!(unsupported("bench").is_none() && unsupported("nope").is_none());
        assert!(COMMANDS.is_sorted_by(|a, b| a.name <= b.name));
    }
}
