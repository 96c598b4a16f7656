//! The monitor: cluster maps as services over a replicated log.
