//! Changes of the log's group, to make it match the monitor map.

use std::collections::BTreeSet;

use spirula_maps::MonMap;
use spirula_proto::internal::quorum::MonHello;

use super::{Error, Node, Raft, Runtime, View};

/// One change of the group. They are made one at a time, each with a majority of the old and of the
/// new members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Finish the change that another leader began.
    Settle,
    /// Give this node its name.
    Rename(Node),
    /// Admit a monitor, in place of the members that it was before it lost its disk.
    Admit {
        /// The monitor's number.
        id: u64,
        /// The monitor's address and name.
        node: Node,
        /// The numbers that it had before.
        instead: BTreeSet<u64>,
    },
    /// Remove the members that the map does not name.
    Expel(BTreeSet<u64>),
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// Where it did not come about, or it is not known whether it did.
    pub async fn make<R: Runtime>(self, raft: &Raft<R>) -> Result<(), Error> {
        match self {
            Self::Settle => raft.settle().await,
            Self::Rename(me) => raft.rename(me).await,
            Self::Admit { id, node, instead } => raft.admit(id, node, &instead).await,
            Self::Expel(ids) => raft.expel(&ids).await,
        }
    }
}

/// A monitor as the group knows it.
pub fn node_of(hello: &MonHello) -> Node {
    let socket = hello.addrs.v2().and_then(|a| a.socket);
    Node {
        addr: socket.map(|s| s.to_string()).unwrap_or_default(),
        name: hello.name.clone(),
    }
}

/// The next change that is due. `joins` are the monitors that want to be members and have their
/// place in the map.
pub fn next_change(me: &MonHello, map: &MonMap, view: &View, joins: &[MonHello]) -> Option<Change> {
    if view.changing {
        return Some(Change::Settle);
    }
    if view.voters.get(&me.node).is_some_and(|n| n.name.is_empty()) {
        return Some(Change::Rename(node_of(me)));
    }
    let wanted: BTreeSet<u64> = joins.iter().map(|j| j.node).collect();
    let gone = view
        .voters
        .iter()
        .filter(|(_, n)| !map.mons.contains_key(&n.name));
    let stray = view.learners.iter().filter(|(id, _)| !wanted.contains(id));
    let out: BTreeSet<u64> = gone.chain(stray).map(|(id, _)| *id).collect();
    if !out.is_empty() {
        return Some(Change::Expel(out));
    }
    let join = joins.iter().find(|j| !view.voters.contains_key(&j.node))?;
    let same = view.voters.iter().filter(|(_, n)| n.name == join.name);
    Some(Change::Admit {
        id: join.node,
        node: node_of(join),
        instead: same.map(|(id, _)| *id).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::{EntityAddr, Fsid, UTime};

    fn hello(name: &str, node: u64) -> MonHello {
        let port = 3300 + u16::from(name.as_bytes()[0]);
        MonHello {
            name: name.into(),
            node,
            addrs: EntityAddr::v2(([127, 0, 0, 1], port).into(), 0).into(),
            ..MonHello::default()
        }
    }

    fn map(names: &[&str]) -> MonMap {
        let mut map = MonMap::initial(Fsid::default(), UTime::ZERO);
        for name in names {
            map.add(name, hello(name, 0).addrs);
        }
        map
    }

    fn view(voters: &[(&str, u64)]) -> View {
        let nodes = voters.iter().map(|(n, id)| (*id, node_of(&hello(n, *id))));
        View {
            voters: nodes.collect(),
            ..View::default()
        }
    }

    #[test]
    fn the_group_follows_the_map() {
        let a = hello("a", 1);
        let full = view(&[("a", 1), ("b", 2)]);
        assert_eq!(next_change(&a, &map(&["a", "b"]), &full, &[]), None);
        assert_eq!(
            next_change(&a, &map(&["a"]), &full, &[]),
            Some(Change::Expel(BTreeSet::from([2])))
        );
        // A place in the map alone makes no member: it has to come.
        assert_eq!(next_change(&a, &map(&["a", "b", "c"]), &full, &[]), None);
        let c = hello("c", 3);
        let admit = |c: &MonHello, instead: &[u64]| Change::Admit {
            id: c.node,
            node: node_of(c),
            instead: instead.iter().copied().collect(),
        };
        let abc = map(&["a", "b", "c"]);
        assert_eq!(
            next_change(&a, &abc, &full, std::slice::from_ref(&c)),
            Some(admit(&c, &[]))
        );
        // With another disk it is another node.
        let b = hello("b", 9);
        assert_eq!(
            next_change(&a, &map(&["a", "b"]), &full, std::slice::from_ref(&b)),
            Some(admit(&b, &[2]))
        );
        let mut joint = full.clone();
        joint.changing = true;
        assert_eq!(next_change(&a, &abc, &joint, &[c]), Some(Change::Settle));
        let mut old = view(&[("a", 1)]);
        old.voters.insert(1, Node::default());
        assert_eq!(
            next_change(&a, &map(&["a"]), &old, &[]),
            Some(Change::Rename(node_of(&a)))
        );
    }
}
