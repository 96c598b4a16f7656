//! Background tasks of the manager on images, started with the official tools.

use crate::common::{Cluster, binary};

const COMMON: &str = include_str!("../data/rbd/common.sh");

fn cluster(name: &str, osds: u32, options: &[&str]) -> Cluster {
    let c = Cluster::up(name, osds, options);
    c.sh("mkdir work; for pool in p q; do ceph osd pool create $pool 8 8 replicated; rbd pool init $pool; done");
    c
}

fn run(c: &Cluster, script: &str) -> String {
    let common = format!(
        "cd work\n{COMMON}\n{}",
        include_str!("../data/rbd/tasks_common.sh")
    );
    c.sh(&format!("{common}\n{script}"))
}

#[test]
fn tasks_are_added_listed_done_and_canceled() {
    let c = cluster("tasks", 1, &[]);
    run(&c, include_str!("../data/rbd/tasks.sh"));
    let peak = c.peak_rss("mon.a");
    println!("the monitor took {} MiB at most", peak >> 20);
}

#[test]
fn images_are_removed_with_their_journals_and_mirroring() {
    let c = cluster("tasks-journals", 1, &[]);
    let script = include_str!("../data/rbd/tasks_journals.sh");
    run(&c, &format!("SPIRULA={}\n{script}", binary().display()));
}

#[test]
fn keys_are_limited_to_their_pools() {
    let c = cluster("tasks-caps", 1, &[]);
    run(&c, include_str!("../data/rbd/tasks_caps.sh"));
}

#[test]
fn schedules_are_kept_and_followed() {
    let c = cluster("schedules", 1, &[]);
    run(&c, include_str!("../data/rbd/schedules.sh"));
}

/// The manager dies during a task: the next one puts its client on the blocklist and does the task.
#[test]
fn the_next_manager_goes_on_with_a_task() {
    let c = cluster("tasks-leader", 1, &["--mons", "3", "--no-respawn"]);
    run(
        &c,
        "until [ \"$(ceph quorum_status -f json | value 'len(v[\"quorum_names\"])')\" = 3 ]; do sleep 0.2; done
         rbd create --size 512 --object-size 64K p/parent
         rbd bench --io-type write --io-size 1M --io-total 512M p/parent >/dev/null
         rbd snap create --no-progress p/parent@s; rbd snap protect p/parent@s
         rbd clone p/parent@s p/clone; rbd export --no-progress p/clone before
         ready
         ceph rbd task add flatten p/clone
         in_progress",
    );
    let leader = c.sh("ceph mgr dump -f json | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)[\"active_name\"])'");
    c.kill(&format!("mon.{}", leader.trim()));
    run(
        &c,
        "ready
         while rbd info p/clone | grep parent: >/dev/null; do sleep 0.2; done
         until [ \"$(ceph rbd task list)\" = '[]' ]; do sleep 0.2; done
         same p/clone before
         rbd snap unprotect p/parent@s; rbd snap rm --no-progress p/parent@s; rbd rm --no-progress p/parent
         same p/clone before
         ceph osd blocklist ls 2>/dev/null | grep :0/ >/dev/null",
    );
}

fn migrate(name: &str, script: &str) {
    let c = cluster(name, 1, &[]);
    c.sh("ceph osd pool create d 8 8 replicated; rbd pool init d");
    run_migration(&c, script);
}

fn run_migration(c: &Cluster, script: &str) -> String {
    let common = include_str!("../data/rbd/migration_common.sh");
    run(c, &format!("{common}\n{script}"))
}

#[test]
fn migrations_are_executed_and_committed() {
    migrate("tasks-migration", include_str!("../data/rbd/migration_tasks.sh"));
}

#[test]
fn clones_and_their_parents_are_migrated() {
    migrate("tasks-clones", include_str!("../data/rbd/migration_clones.sh"));
}

#[test]
fn migrations_are_given_up() {
    migrate("tasks-abort", include_str!("../data/rbd/migration_abort.sh"));
}

#[test]
fn an_image_is_migrated_while_it_is_written() {
    migrate("tasks-busy", include_str!("../data/rbd/migration_busy.sh"));
}

/// The manager is killed during each part of migrations, and comes back.
#[test]
fn migrations_go_on_after_a_kill() {
    migrate("tasks-killed", include_str!("../data/rbd/migration_killed.sh"));
}

/// The manager dies during the copy: the next one puts its client on the blocklist and completes
/// it.
#[test]
fn the_next_manager_goes_on_with_a_migration() {
    let c = cluster("tasks-migration-leader", 1, &["--mons", "3", "--no-respawn"]);
    run_migration(
        &c,
        "until [ \"$(ceph quorum_status -f json | value 'len(v[\"quorum_names\"])')\" = 3 ]; do sleep 0.2; done
         rbd create --size 256 --object-size 64K p/i
         rbd bench --io-type write --io-size 1M --io-total 128M p/i >/dev/null
         rbd snap create --no-progress p/i@s; rbd export --no-progress p/i@s before
         rbd bench --io-type write --io-size 64K --io-total 8M --io-pattern rand p/i >/dev/null
         rbd export --no-progress p/i now
         rbd migration prepare p/i q/i
         ready
         ceph rbd task add migration execute q/i
         in_progress
         until rbd status q/i | grep 'complete\\|executed' >/dev/null; do sleep 0.1; done",
    );
    let leader = c.sh("ceph mgr dump -f json | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)[\"active_name\"])'");
    c.kill(&format!("mon.{}", leader.trim()));
    run_migration(
        &c,
        "ready
         until [ \"$(ceph rbd task list)\" = '[]' ]; do sleep 0.2; done
         test \"$(state_of q/i)\" = executed
         ceph osd blocklist ls 2>/dev/null | grep :0/ >/dev/null
         migrate commit q/i
         same q/i@s before; same q/i now
         mapped q/i s",
    );
}
