//! The leader makes the log's group match the monitor map.

use spirula_denc::UTime;

use super::hub::{Event, Hub};
use crate::raft::next_change;

impl Hub {
    /// Starts the change that is due, unless one is under way.
    pub(super) fn keep_members(&self) {
        let Some(shell) = self.shell() else { return };
        if !self.is_leader() || self.is_keeping() {
            return;
        }
        let (map, mut placed) = (shell.peek(|c| c.view.state.monmap.map.clone()), Vec::new());
        for join in self.fresh_joins() {
            match map.mons.get(&join.name) {
                Some(i) if i.public_addrs == join.addrs => placed.push(join),
                _ => shell.with_core(|c| c.join(&join.name, &join.addrs, UTime::now())),
            }
        }
        let Some(change) = next_change(self.me(), &map, &self.raft().view(), &placed) else {
            return;
        };
        self.set_keeping(true);
        tracing::info!("members of the group: {change:?}");
        let (raft, events) = (self.raft().clone(), self.events());
        tokio::task::spawn_local(async move {
            let made = change.make(&raft).await;
            if let Err(e) = &made {
                tracing::warn!("members of the group: {e}");
            }
            let _ = events.send(Event::MembersKept(made.is_ok()));
        });
    }
}
