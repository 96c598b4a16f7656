//! The last state that each of the other monitors sent, and whether they are alive.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spirula_proto::internal::quorum::MonState;

/// A monitor that has said nothing for this long is not in quorum. Monitors send their state every
/// [`super::TICK`].
const ALIVE: Duration = Duration::from_secs(2);

struct Heard {
    connection: u64,
    at: Instant,
    state: MonState,
}

impl Heard {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < ALIVE
    }
}

/// By number in the log's group.
#[derive(Default)]
pub(super) struct Ears(RefCell<BTreeMap<u64, Heard>>);

impl Ears {
    /// Notes a monitor's state; returns whether it names another leader than before.
    pub(super) fn hear(&self, connection: u64, state: MonState) -> bool {
        let (node, leader) = (state.node, state.leader.clone());
        let heard = Heard {
            connection,
            at: Instant::now(),
            state,
        };
        let before = self.0.borrow_mut().insert(node, heard);
        before.is_none_or(|b| b.state.leader != leader)
    }

    /// Notes that a connection from a monitor has ended.
    pub(super) fn hung_up(&self, connection: u64) {
        self.0.borrow_mut().retain(|_, h| h.connection != connection);
    }

    /// Forgets the monitors that have been silent.
    pub(super) fn prune(&self) {
        self.0.borrow_mut().retain(|_, h| h.is_fresh());
    }

    /// The last state of a monitor that is alive.
    pub(super) fn state(&self, node: u64) -> Option<MonState> {
        let all = self.0.borrow();
        all.get(&node).filter(|h| h.is_fresh()).map(|h| h.state.clone())
    }

    /// Whether a monitor is alive.
    pub(super) fn alive(&self, node: u64) -> bool {
        self.0.borrow().get(&node).is_some_and(Heard::is_fresh)
    }

    /// Whether a monitor that is alive fulfils a condition.
    pub(super) fn any(&self, wanted: impl Fn(&MonState) -> bool) -> bool {
        let all = self.0.borrow();
        all.values().any(|h| h.is_fresh() && wanted(&h.state))
    }
}
