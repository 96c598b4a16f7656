//! Whole clusters, driven with the official tools: one binary, so that two tests at a time run in
//! whatever file they are.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helper fails the test"
)]

mod common;

mod auth;
mod cached_reads;
mod capabilities;
mod client_handle;
mod commands;
mod conformance;
mod connection_modes;
mod crash;
mod damage;
mod damaged_index;
mod degraded;
mod encryption;
mod erasure;
mod failure;
mod files;
mod first_light;
mod full;
mod hostile;
mod hostile_connections;
mod hostile_objects;
mod hostile_readers;
mod hostile_requests;
mod hostile_waiting;
mod hostile_with_key;
mod hosts;
mod key_types;
mod logins;
mod manager_deputy;
mod manager_process;
mod memory;
mod processes;
mod purged_snaps;
mod quorum;
mod rados_commands;
mod radosgw;
mod raw_device;
mod rbd_groups;
mod rbd_images;
mod rbd_library;
mod rbd_perf;
mod rbd_serve;
mod rbd_sharing;
mod rbd_tasks;
mod scheduler;
mod scrub;
mod services;
mod slow_disk;
mod small_machine;
mod space;
mod store_objects;
mod tickets;
mod up;
mod up_lost;
mod up_says_why;
mod watch;
