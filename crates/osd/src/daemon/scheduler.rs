//! What `ceph daemon osd.N dump_op_pq_state` tells of the requests that wait for their turn.

use serde_json::{Value, json};

use crate::core::{FlowState, SchedulerState};

/// The queue, with the names of `mClockScheduler::dump` where something here is the same.
pub(super) fn dump(s: &SchedulerState) -> Value {
    let waiting: usize = s.flows.iter().map(|f| f.waiting).sum();
    let flow = |f: &FlowState| {
        json!({
            "entity": f.client.entity,
            "name": f.client.name.to_string(),
            "address": f.client.addr.to_string(),
            "tag_ahead": f.ahead,
            "waiting": f.waiting,
            "waiting_cost": f.cost,
        })
    };
    let [small, large, reads] = s.under_way;
    json!({
        "OSD:ShardedOpWQ:0": {
            "queue_sizes": {"immediate": 0, "scheduler": waiting},
            "mClockClients": {
                "client_count": s.flows.len(),
                "clients": s.flows.iter().map(flow).collect::<Vec<_>>(),
            },
            "under_way": {"small_writes": small, "large_writes": large, "reads": reads},
            "most_under_way": {"small_writes": s.most[0], "large_writes": s.most[1]},
        }
    })
}
