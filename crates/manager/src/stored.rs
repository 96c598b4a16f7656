//! Decodes the manager's records in pools: for the fuzz target `manager`.

use chrono::DateTime;
use spirula_maps::PoolId;

use crate::rights::Place;
use crate::schedules::Schedule;
use crate::tasks::Task;

/// Decodes bytes as a task in a pool `p`, and as a schedule. Undecodable records, which the manager
/// leaves in place, are ignored here.
///
/// # Panics
/// Where the reader has a defect.
pub fn read_stored(data: &[u8]) {
    let (key, value) = data.split_at(data.len().min(16));
    let home = Place {
        pool: PoolId::new(1),
        namespace: String::new(),
    };
    if let Ok(mut task) = Task::stored(key, value, &home, "p") {
        let spec = task.spec().to_string();
        assert!(spec.starts_with("p/"), "a task about {spec}");
        // A task is shown and stored again.
        task.attempted(DateTime::UNIX_EPOCH);
        let _ = (task.to_json(), task.origin());
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(schedule) = Schedule::from_json(text)
    {
        let _ = schedule.next_run(DateTime::UNIX_EPOCH.naive_utc());
        let _ = schedule.to_json();
    }
}
