//! The object storage daemon: PG core, backends and daemon.
