//! The options that have an effect in Spirula, and their defaults here.

use super::Kind::{self, Addr, Bool, Float, Int, Millisecs, Secs, Size, Str, Uint, Uuid};
use super::Level::{self, Advanced, Basic, Dev};

/// An option with an effect.
pub(super) struct Built {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) level: Level,
    pub(super) default: &'static str,
    pub(super) services: &'static str,
    pub(super) help: &'static str,
}

macro_rules! options {
    ($($name:ident $kind:ident $level:ident $default:literal [$services:literal] $help:literal;)*) => {
        /// All of them.
        pub(super) const BUILT: &[Built] = &[$(Built {
            name: stringify!($name), kind: $kind, level: $level, default: $default,
            services: $services, help: $help,
        }),*];
    };
}

options! {
    admin_socket Str Advanced "$run_dir/$cluster-$name.asok" [""] "path of the daemon's admin socket";
    admin_socket_mode Str Advanced "" [""] "permissions of the admin socket, in octal";
    auth_allow_insecure_global_id_reclaim Bool Advanced "false" ["mon"] "let clients that are too old to prove it reclaim a global id";
    auth_client_required Str Advanced "cephx" ["mon"] "authentication methods clients accept";
    auth_cluster_required Str Advanced "cephx" [""] "authentication methods daemons accept of each other";
    auth_expose_insecure_global_id_reclaim Bool Advanced "false" ["mon"] "make clients connect twice to see who reclaims a global id insecurely: never done";
    auth_mon_ticket_ttl Float Advanced "259200" ["mon"] "seconds a monitor ticket lives";
    auth_service_required Str Advanced "cephx" [""] "authentication methods services accept";
    auth_service_ticket_ttl Float Advanced "3600" ["mon"] "seconds a service ticket lives";
    bluestore_default_buffered_read Bool Advanced "true" ["osd"] "let small reads go through the page cache of the system, which keeps them while memory is free";
    client_mount_timeout Secs Advanced "300" ["mds_client"] "how long mounting may take";
    cluster_addr Addr Basic "" ["osd"] "address for the replication traffic";
    cluster_network Str Advanced "" ["osd"] "networks of the replication traffic: an address of the host in one of them is taken";
    cluster_network_interface Str Advanced "" ["mon mds osd mgr"] "interfaces to take an address of cluster_network from";
    crush_location Str Advanced "" ["osd"] "where an OSD belongs in the CRUSH map; empty for root=default host=$host";
    crush_location_hook Str Advanced "" ["osd"] "program that prints where an OSD belongs in the CRUSH map";
    crush_location_hook_timeout Int Advanced "10" ["osd"] "seconds that crush_location_hook may take";
    debug_client Str Advanced "0/5" [""] "log level of the file system client";
    debug_heartbeat_testing_span Int Dev "0" ["osd"] "seconds that a minute of the heartbeat times takes, for tests";
    debug_mon Str Advanced "1/5" ["mon"] "log level of the monitor";
    debug_ms Str Advanced "0/0" [""] "log level of the messenger";
    debug_objecter Str Advanced "0/1" [""] "log level of the object client";
    debug_osd Str Advanced "1/5" ["osd"] "log level of the OSD";
    debug_rados Str Advanced "0/5" [""] "log level of librados";
    debug_rbd Str Advanced "0/5" [""] "log level of librbd";
    fsid Uuid Basic "" [""] "the cluster's id";
    host Str Basic "" [""] "the host's name";
    keyring Str Advanced "" [""] "path of the keyring";
    log_file Str Basic "" [""] "path of the log";
    max_open_files Int Advanced "131072" [""] "how many files a daemon may have open";
    mon_addr Str Basic "" ["mon"] "address and port of a monitor";
    mon_allow_pool_delete Bool Advanced "false" ["mon"] "allow pools to be deleted";
    mon_allow_pool_size_one Bool Advanced "false" ["mon"] "allow pools with a single replica";
    mon_auth_allow_insecure_key Bool Advanced "true" ["mon"] "let commands make keys of types whose weaknesses are known, while such keys are allowed";
    mon_client_hunt_interval Float Advanced "3" [""] "seconds between attempts to reach a monitor";
    mon_client_ping_interval Float Advanced "10" [""] "seconds between pings of the monitor";
    mon_client_ping_timeout Float Advanced "30" [""] "seconds after which a silent monitor is given up";
    mon_clock_drift_allowed Float Advanced "0.05" ["mon"] "seconds that the clocks of daemons may differ from the monitor's before it warns";
    mon_cluster_log_to_file Bool Advanced "true" ["mon"] "write the cluster log to the monitor's log";
    mon_compact_on_start Bool Advanced "false" ["mon"] "compact the store when the monitor starts";
    mon_data Str Advanced "/var/lib/ceph/mon/$cluster-$id" ["mon"] "the monitor's directory";
    mon_data_avail_crit Int Advanced "5" ["mon"] "percentage of free disk at or below which the monitor's health is an error";
    mon_data_avail_warn Int Advanced "30" ["mon"] "percentage of free disk at or below which the monitor warns";
    mon_data_size_warn Size Advanced "16106127360" ["mon"] "bytes of the monitor's store from which it warns";
    mon_health_log_update_period Int Dev "5" ["mon"] "seconds between cluster log entries about the same health check";
    mon_health_to_clog Bool Advanced "true" ["mon"] "tell the cluster log of changes of the health";
    mon_host Str Basic "" [""] "the monitors' addresses";
    mon_initial_members Str Advanced "" ["mon"] "names of the first monitors";
    mon_max_osd Int Advanced "10000" ["mon"] "most OSD ids";
    mon_max_pg_per_osd Uint Advanced "250" ["mon"] "placement groups per OSD that may not be exceeded";
    mon_max_pool_pg_num Uint Advanced "65536" ["mon"] "most placement groups of one pool";
    mon_max_snap_prune_per_epoch Uint Advanced "100000" ["mon"] "snapshots that one osdmap marks as trimmed everywhere, at most";
    mon_min_osdmap_epochs Int Advanced "500" ["mon"] "OSDMap epochs kept at least";
    mon_osd_adjust_down_out_interval Bool Advanced "true" ["mon"] "give OSDs that are known to be slow more time before they are marked out";
    mon_osd_adjust_heartbeat_grace Bool Advanced "true" ["mon"] "give OSDs that are known to be slow more time before they are marked down";
    mon_osd_auto_mark_in Bool Advanced "false" ["mon"] "mark an OSD in whenever it boots";
    mon_osd_auto_mark_auto_out_in Bool Advanced "true" ["mon"] "mark an OSD in when it boots after it was marked out automatically";
    mon_osd_auto_mark_new_in Bool Advanced "true" ["mon"] "mark a new OSD in when it boots";
    mon_osd_backfillfull_ratio Float Advanced "0.9" ["mon"] "use of an OSD from which nothing is backfilled to it, in new clusters";
    mon_osd_destroyed_out_interval Int Advanced "600" ["mon"] "seconds after which a destroyed OSD is marked out";
    mon_osd_down_out_interval Int Advanced "600" ["mon"] "seconds after which a down OSD is marked out";
    mon_osd_down_out_subtree_limit Str Advanced "rack" ["mon"] "do not mark OSDs out where a whole bucket of this type is down";
    mon_osd_full_ratio Float Advanced "0.95" ["mon"] "use of an OSD from which writes stop, in new clusters";
    mon_osd_laggy_halflife Int Advanced "3600" ["mon"] "seconds in which what is known of an OSD's slowness counts half";
    mon_osd_laggy_max_interval Int Advanced "300" ["mon"] "seconds that an OSD may be down at most for its slowness";
    mon_osd_laggy_weight Float Advanced "0.3" ["mon"] "how much the last time counts in an OSD's slowness";
    mon_osd_min_down_reporters Uint Advanced "2" ["mon"] "reporters it takes to mark an OSD down";
    mon_osd_min_in_ratio Float Advanced "0.75" ["mon"] "share of OSDs that are left in when others go down";
    mon_osd_min_up_ratio Float Advanced "0.3" ["mon"] "share of OSDs that are left up when others fail";
    mon_osd_nearfull_ratio Float Advanced "0.85" ["mon"] "use of an OSD from which the monitor warns, in new clusters";
    mon_osd_report_timeout Int Advanced "900" ["mon"] "seconds after which an OSD that does not report is marked down";
    mon_osd_reporter_subtree_level Str Advanced "host" ["mon"] "type of the buckets that reporters of a failure must differ in";
    mon_osd_snap_trim_queue_warn_on Int Advanced "32768" ["mon"] "snapshots waiting to be trimmed from which the monitor warns";
    mon_osd_warn_num_repaired Uint Advanced "10" ["mon"] "repaired reads of an OSD from which the monitor warns";
    mon_pg_stuck_threshold Int Advanced "60" ["mgr"] "seconds after which a placement group counts as stuck";
    mon_pg_warn_min_per_osd Uint Advanced "0" ["mgr"] "placement groups per OSD below which the monitor warns";
    mon_reweight_max_change Float Advanced "0.05" ["mgr"] "most that reweight-by-* changes an OSD's weight by";
    mon_reweight_max_osds Int Advanced "4" ["mgr"] "most OSDs that reweight-by-* changes at once";
    mon_reweight_min_bytes_per_osd Size Advanced "104857600" ["mgr"] "bytes per OSD below which reweight-by-utilization refuses";
    mon_reweight_min_pgs_per_osd Uint Advanced "10" ["mgr"] "placement groups per OSD below which reweight-by-pg refuses";
    mon_target_pg_per_osd Uint Advanced "100" ["mgr"] "placement groups per OSD to aim at";
    mon_timecheck_interval Float Advanced "300" ["mon"] "seconds between comparisons of the monitors' clocks";
    mon_timecheck_skew_interval Float Advanced "30" ["mon"] "seconds between comparisons while clocks differ";
    mon_warn_older_version_delay Secs Advanced "604800" ["mon"] "seconds that daemons may run different versions before the monitor warns";
    mon_warn_on_insecure_global_id_reclaim_allowed Bool Advanced "true" ["mon"] "warn where insecure global_id reclaim is allowed";
    mon_warn_on_misplaced Bool Advanced "false" ["mgr"] "warn about misplaced objects";
    mon_warn_on_older_version Bool Advanced "true" ["mon"] "warn when daemons run different versions";
    mon_warn_on_pool_no_app Bool Dev "true" ["mgr"] "warn about pools without an application";
    mon_warn_on_pool_no_redundancy Bool Advanced "true" ["mon"] "warn about pools with a single replica";
    mon_warn_on_osd_down_out_interval_zero Bool Advanced "true" ["mon"] "warn when mon_osd_down_out_interval is zero";
    mon_warn_on_slow_ping_ratio Float Advanced "0.05" ["mgr"] "share of the heartbeat grace from which heartbeats are slow";
    mon_warn_on_slow_ping_time Float Advanced "0" ["mgr"] "milliseconds from which heartbeats are slow, instead of the ratio";
    mon_warn_pg_not_deep_scrubbed_ratio Float Advanced "0.75" ["mgr"] "share of osd_deep_scrub_interval by which a placement group's deep scrub may be late before there is a warning; 0 for none";
    mon_warn_pg_not_scrubbed_ratio Float Advanced "0.5" ["mgr"] "share of osd_scrub_max_interval by which a placement group's scrub may be late before there is a warning; 0 for none";
    ms_bind_ipv4 Bool Advanced "true" [""] "bind IPv4 addresses";
    ms_bind_ipv6 Bool Advanced "false" [""] "bind IPv6 addresses";
    ms_bind_msgr1 Bool Advanced "false" [""] "bind addresses of msgr1: never done";
    ms_bind_port_max Int Advanced "7300" ["osd mds"] "highest port to bind";
    ms_bind_port_min Int Advanced "6800" ["osd mds"] "lowest port to bind";
    ms_client_mode Str Basic "crc secure" [""] "connection modes that clients ask of OSDs and managers, the preferred one first";
    ms_cluster_mode Str Basic "crc secure" [""] "connection modes of OSDs and managers among each other and towards monitors";
    ms_mon_client_mode Str Basic "secure crc" [""] "connection modes that clients ask of monitors";
    ms_mon_cluster_mode Str Basic "secure crc" [""] "connection modes among monitors";
    ms_mon_service_mode Str Basic "secure crc" ["mon"] "connection modes that monitors accept of all others";
    ms_service_mode Str Basic "crc secure" [""] "connection modes that OSDs and managers accept of clients";
    ms_tcp_nodelay Bool Advanced "true" [""] "send small segments at once";
    objecter_inflight_op_bytes Size Advanced "104857600" [""] "bytes a client has in flight at most";
    objecter_inflight_ops Uint Advanced "1024" [""] "operations a client has in flight at most";
    osd_aggregated_slow_ops_logging Bool Advanced "true" ["osd"] "tell the cluster log of slow operations in one line";
    osd_beacon_report_interval Int Advanced "300" ["osd"] "seconds between beacons to the monitors";
    osd_bench_duration Uint Advanced "30" ["osd"] "seconds that a benchmark may take at the assumed speeds";
    osd_bench_large_size_max_throughput Size Advanced "104857600" ["osd"] "bytes a second that a benchmark of large blocks is assumed to reach";
    osd_bench_max_block_size Size Advanced "67108864" ["osd"] "largest block of a benchmark";
    osd_bench_small_size_max_iops Uint Advanced "100" ["osd"] "operations a second that a benchmark of small blocks is assumed to reach";
    osd_class_default_list Str Advanced "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap queue 2pc_queue fifo" ["osd"] "object classes that the capabilities x, class-read and class-write cover";
    osd_class_load_list Str Advanced "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap queue 2pc_queue fifo" ["osd"] "object classes that may be used";
    osd_class_update_on_start Bool Advanced "true" ["osd"] "give an OSD without device class that of its device when it boots";
    osd_client_message_cap Uint Advanced "256" ["osd"] "client operations an OSD holds at most";
    osd_client_message_size_cap Size Advanced "524288000" ["osd"] "bytes of client operations an OSD holds at most";
    osd_client_watch_timeout Int Dev "30" ["osd"] "seconds without a sign of a watcher after which its watch is dropped";
    osd_crush_chooseleaf_type Int Dev "1" ["mon"] "bucket type over which the first rule spreads";
    osd_crush_device_class Str Advanced "" ["osd"] "device class of a new OSD";
    osd_crush_initial_weight Float Advanced "-1" ["osd"] "CRUSH weight of a new OSD; negative for its size in TiB";
    osd_crush_update_on_start Bool Advanced "true" ["osd"] "place an OSD in the CRUSH map when it boots";
    osd_data Str Advanced "/var/lib/ceph/osd/$cluster-$id" ["osd"] "the OSD's directory";
    osd_deep_scrub_interval Float Advanced "604800" ["osd"] "seconds between deep scrubs";
    osd_deep_scrub_keys Int Advanced "1024" ["osd"] "keys of an omap that a deep scrub reads at a time";
    osd_deep_scrub_large_omap_object_key_threshold Uint Advanced "200000" ["osd"] "keys in an omap above which a deep scrub calls it large";
    osd_deep_scrub_large_omap_object_value_sum_threshold Size Advanced "1073741824" ["osd"] "bytes of values in an omap above which a deep scrub calls it large";
    osd_deep_scrub_randomize_ratio Float Advanced "0.15" ["osd"] "share of osd_deep_scrub_interval by which deep scrubs begin earlier at most, so that they spread";
    osd_deep_scrub_stride Size Advanced "524288" ["osd"] "bytes of an object that a deep scrub reads at a time";
    osd_deep_scrub_update_digest_min_age Int Advanced "7200" ["osd"] "seconds since an object's last change after which a deep scrub notes its digests";
    osd_default_notify_timeout Uint Advanced "30" ["osd"] "seconds that a notification waits for its watchers";
    osd_failsafe_full_ratio Float Advanced "0.97" ["osd"] "use of an OSD from which it refuses to grow, whatever the map says";
    osd_fast_fail_on_connection_refused Bool Advanced "true" ["osd"] "report an OSD that refuses connections at once";
    osd_heartbeat_grace Int Advanced "20" ["osd mon"] "seconds after which a silent OSD is down";
    osd_heartbeat_interval Int Dev "6" ["osd"] "seconds between heartbeats";
    osd_heartbeat_min_healthy_ratio Float Advanced "0.33" ["osd"] "share of its peers that an OSD must hear to boot again after it was marked down";
    osd_heartbeat_min_peers Int Advanced "10" ["osd"] "peers that an OSD exchanges heartbeats with at least";
    osd_heartbeat_min_size Size Advanced "2000" ["osd"] "bytes of a heartbeat at least";
    osd_heartbeat_stale Int Advanced "600" ["osd mon"] "seconds after which heartbeat times, and complaints that nobody confirms, are old";
    osd_log_device Str Advanced "" ["osd"] "file or device of the store's log (ours)";
    osd_max_attr_name_len Uint Advanced "100" ["osd"] "longest name of an extended attribute";
    osd_max_attr_size Uint Advanced "0" ["osd"] "largest extended attribute; 0 for no limit";
    osd_max_backfills Uint Advanced "1" ["osd"] "placement groups that are copied in the background from an OSD, and to it, at the same time";
    osd_max_markdown_count Int Advanced "5" ["osd"] "times that an OSD may be marked down while it runs within osd_max_markdown_period before it stops";
    osd_max_markdown_period Int Advanced "600" ["osd"] "seconds in which being marked down is counted";
    osd_max_object_name_len Uint Advanced "2048" ["osd"] "longest object name";
    osd_max_object_namespace_len Uint Advanced "256" ["osd"] "longest namespace";
    osd_max_object_size Size Advanced "134217728" ["osd"] "largest object";
    osd_max_omap_bytes_per_request Size Advanced "8M" ["osd"] "bytes of omap keys and values that one operation returns (our default)";
    osd_max_omap_entries_per_request Uint Advanced "1024" ["osd"] "keys in one listing of omap keys or values";
    osd_max_pgls Uint Advanced "1024" ["osd"] "objects in one listing";
    osd_max_scrubs Int Advanced "1" ["osd"] "placement groups that an OSD scrubs at the same time, as primary or replica";
    osd_max_trimming_pgs Uint Advanced "2" ["osd"] "placement groups that trim snapshots at the same time";
    osd_max_write_op_reply_len Size Advanced "64" ["osd"] "bytes that an operation of a write may return";
    osd_max_write_size Size Advanced "90" ["osd"] "largest write, in MiB";
    osd_mclock_profile Str Advanced "high_client_ops" ["osd"] "how work in the background shares an OSD with clients that work: copies weigh half of a client, as much, or twice as much; custom takes the weights of osd_mclock_scheduler_*";
    osd_mclock_scheduler_background_best_effort_lim Uint Advanced "999999" ["osd"] "with the profile custom: steps of scrubs, trimming and deletion in a second, at most; 0 for any number";
    osd_mclock_scheduler_background_best_effort_res Uint Advanced "1" ["osd"] "with the profile custom: such steps in a second while clients work, at least";
    osd_mclock_scheduler_background_best_effort_wgt Uint Advanced "1" ["osd"] "with the profile custom: weight of such steps beside the clients'";
    osd_mclock_scheduler_background_recovery_lim Uint Advanced "999999" ["osd"] "with the profile custom: steps of a background copy in a second, at most; 0 for any number";
    osd_mclock_scheduler_background_recovery_res Uint Advanced "1" ["osd"] "with the profile custom: such steps in a second while clients work, at least";
    osd_mclock_scheduler_background_recovery_wgt Uint Advanced "1" ["osd"] "with the profile custom: weight of a background copy beside the clients'";
    osd_mclock_scheduler_client_wgt Uint Advanced "1" ["osd"] "with the profile custom: weight of the clients";
    osd_memory_target Size Basic "134217728" ["osd"] "memory an OSD uses at most (our default)";
    osd_op_complaint_time Float Advanced "30" ["osd"] "seconds after which an operation counts as slow";
    osd_op_history_duration Uint Advanced "600" ["osd"] "seconds for which the slowest operations are remembered";
    osd_op_history_size Uint Advanced "20" ["osd"] "slowest operations that are remembered";
    osd_op_history_slow_op_size Uint Advanced "20" ["osd"] "slow operations that are remembered for longer";
    osd_op_history_slow_op_threshold Float Advanced "10.0" ["osd"] "seconds from which an operation is remembered for longer";
    osd_pg_log_dups_tracked Uint Dev "3000" ["osd"] "requests that a PG remembers, to recognise them when they are sent again";
    osd_pg_max_concurrent_snap_trims Uint Advanced "2" ["osd"] "clones that a placement group trims at the same time";
    osd_pool_default_crush_rule Int Advanced "-1" ["mon"] "CRUSH rule of new pools; negative for the first";
    osd_pool_default_ec_fast_read Bool Advanced "false" ["mon"] "mark new erasure-coded pools as fast_read";
    osd_pool_default_erasure_code_profile Str Advanced "plugin=jerasure technique=reed_sol_van k=2 m=2" ["mon"] "the profile called default of a new cluster";
    osd_pool_default_flag_bulk Bool Advanced "false" ["mon"] "set bulk on new pools";
    osd_pool_default_flag_hashpspool Bool Advanced "true" ["mon"] "set hashpspool on new pools";
    osd_pool_default_flag_nodelete Bool Advanced "false" ["mon"] "set nodelete on new pools";
    osd_pool_default_flag_nopgchange Bool Advanced "false" ["mon"] "set nopgchange on new pools";
    osd_pool_default_flag_nosizechange Bool Advanced "false" ["mon"] "set nosizechange on new pools";
    osd_pool_default_min_size Uint Advanced "0" ["mon"] "replicas that must be there for I/O; 0 for size minus size/2";
    osd_pool_default_pg_num Uint Advanced "32" ["mon"] "placement groups of new pools";
    osd_pool_default_pgp_num Uint Advanced "0" ["mon"] "placement groups of new pools for placement; 0 for pg_num";
    osd_pool_default_size Uint Advanced "3" ["mon"] "replicas of new pools";
    osd_pool_default_type Str Advanced "replicated" ["mon"] "type of new pools: replicated or erasure";
    osd_pool_erasure_code_stripe_unit Size Advanced "4096" ["mon"] "bytes of a stripe of a new erasure-coded pool that each chunk with data has, unless its profile says it";
    osd_recovery_max_active Uint Advanced "0" ["osd"] "pushes that a background copy has under way while no client works; 0 for the default";
    osd_recovery_max_chunk Size Advanced "8388608" ["osd"] "bytes in a push of a background copy; 1 MiB at most";
    osd_recovery_sleep Float Advanced "0" ["osd"] "seconds between pushes of a background copy";
    osd_scrub_auto_repair Bool Advanced "false" ["osd"] "repair what scheduled deep scrubs find damaged";
    osd_scrub_auto_repair_num_errors Uint Advanced "5" ["osd"] "errors in a placement group above which osd_scrub_auto_repair repairs nothing";
    osd_scrub_begin_hour Int Advanced "0" ["osd"] "hour of the day from which scheduled scrubs may begin";
    osd_scrub_begin_week_day Int Advanced "0" ["osd"] "day of the week from which scheduled scrubs may begin; 0 is Sunday";
    osd_scrub_chunk_max Int Advanced "25" ["osd"] "objects that a scrub compares at a time, at most";
    osd_scrub_during_recovery Bool Advanced "false" ["osd"] "let scheduled scrubs begin while the OSD recovers placement groups";
    osd_scrub_end_hour Int Advanced "0" ["osd"] "hour of the day from which scheduled scrubs no longer begin; the same as the first one for any time";
    osd_scrub_end_week_day Int Advanced "0" ["osd"] "day of the week from which scheduled scrubs no longer begin; the same as the first one for any day";
    osd_scrub_interval_randomize_ratio Float Advanced "0.5" ["osd"] "share of osd_scrub_min_interval by which scheduled scrubs are put off at random, so that they spread";
    osd_scrub_load_threshold Float Advanced "0.5" ["osd"] "load of the machine by processor above which scheduled scrubs do not begin";
    osd_scrub_max_interval Float Advanced "604800" ["osd"] "seconds after which a scrub is due whatever the load";
    osd_scrub_max_preemptions Uint Advanced "5" ["osd"] "times that writes of clients may stop a step of a scrub before they wait for it";
    osd_scrub_min_interval Float Advanced "86400" ["osd"] "seconds between scrubs";
    osd_scrub_sleep Float Advanced "0" ["osd"] "seconds between steps of a scrub";
    osd_snap_trim_sleep Float Advanced "0" ["osd"] "seconds between groups of clones that are trimmed";
    pid_file Str Advanced "" [""] "path of the daemon's process id";
    public_addr Addr Basic "" ["mon mds osd mgr"] "address to bind";
    public_network Str Advanced "" ["mon mds osd mgr"] "networks of the clients: an address of the host in one of them is taken";
    public_network_interface Str Advanced "" ["mon mds osd mgr"] "interfaces to take an address of public_network from";
    rados_mon_op_timeout Secs Advanced "0" [""] "seconds a monitor operation may take; 0 for no limit";
    rados_osd_op_timeout Secs Advanced "0" [""] "seconds an operation may take; 0 for no limit";
    rbd_cache Bool Advanced "true" ["rbd"] "cache image data in the client";
    rbd_cache_max_dirty Size Advanced "25165824" ["rbd"] "bytes of dirty data in the cache at most";
    rbd_cache_size Size Advanced "33554432" ["rbd"] "bytes of the cache";
    rbd_cache_writethrough_until_flush Bool Advanced "true" ["rbd"] "write through until the first flush";
    rbd_default_data_pool Str Advanced "" ["rbd"] "pool for the data of new images";
    rbd_default_features Str Advanced "61" ["rbd"] "features of new images";
    rbd_default_order Uint Advanced "22" ["rbd"] "object size of new images, as a power of two";
    rbd_default_pool Str Advanced "rbd" ["rbd"] "pool used where none is named";
    run_dir Str Advanced "/var/run/ceph" [""] "directory of pid files and sockets";
    setgroup Str Advanced "" ["mon mgr osd mds"] "group that a daemon becomes when it is started as root";
    setuser Str Advanced "" ["mon mgr osd mds"] "user that a daemon becomes when it is started as root";
    setuser_match_path Str Advanced "" ["mon mgr osd mds"] "stay root unless this belongs to setuser and setgroup";
    spirula_manager_silence Float Advanced "60" ["mon"] "seconds after which a manager that says nothing is killed and another one started (ours)";
    spirula_slow_disk_ratio Float Advanced "10" ["mon"] "how many times longer than others' an OSD's commits may take before health names its disk; 0 for never (ours)";
    spirula_slow_disk_time Float Advanced "50" ["mon"] "milliseconds below which commits are never called slow (ours)";
    spirula_osd_discard_rate Size Advanced "67108864" ["osd"] "bytes a second of freed space that an OSD gives back to the file system or device below; 0 for none (ours)";
    spirula_osd_refill Bool Advanced "true" ["osd"] "make a store that is damaged beyond repair anew, once the monitors say that no placement group needs what it has (ours)";
    spirula_osd_down_grace Millisecs Advanced "1000" ["mon"] "how long after its connection broke an OSD is marked down, unless it reconnects (ours)";
    spirula_osd_scrub_share Float Advanced "0.1" ["osd"] "largest part of its time that an OSD reads for scrubs while clients work; less if less is enough for all to be in time (ours)";
}

/// The options of the manager's modules, which no daemon reads.
pub(super) const OF_MODULES: &[Built] = &[
    Built {
        name: "mgr/crash/retain_interval",
        kind: Secs,
        level: Advanced,
        default: "31536000",
        services: "mgr",
        help: "how long crashes are kept",
    },
    Built {
        name: "mgr/crash/warn_recent_interval",
        kind: Secs,
        level: Advanced,
        default: "1209600",
        services: "mgr",
        help: "for how long the health tells of a crash that nobody has looked at",
    },
];
