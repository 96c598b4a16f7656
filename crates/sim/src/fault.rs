//! Faults, and their ends.

use std::collections::BTreeSet;

use spirula_maps::{OsdId, PgId};
use spirula_store::device;

use crate::client::POOL;
use crate::clock::SECOND;
use crate::contents;
use crate::mon::MonEvent;
use crate::net::Node;
use crate::osd::{OsdNode, Timer};
use crate::world::{Event, World};

/// The bytes of a block of a disk.
const BLOCK: u64 = 4096;
/// The OSD whose disk is damaged.
const FIRST: OsdId = OsdId::new(0);

/// The present state of the faults.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    /// Clients have begun to work.
    pub(crate) begun: bool,
    /// Clients begin new requests.
    pub(crate) working: bool,
    /// Faults are injected.
    pub(crate) stormy: bool,
    /// OSDs that are away.
    away: BTreeSet<OsdId>,
    /// A disk was damaged.
    pub(crate) rotten: bool,
    /// OSDs that stopped because of damage in their index.
    pub(crate) mended: u64,
    /// OSDs whose stores were ruined and made anew.
    pub(crate) refills: u64,
    /// How often an OSD has accepted more data than it had room for.
    pub(crate) overrun: u64,
    /// The pool was full.
    pub(crate) was_full: bool,
    /// PGs that the pool shall have.
    pub(crate) pg_num: u32,
    out: Option<OsdId>,
    cut_off: bool,
    /// A client that ends before the network is whole again.
    giving_up: Option<usize>,
}

/// The end of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    /// An OSD starts again.
    Osd(OsdId),
    /// The network is whole.
    Network,
    /// A disk is fast again.
    Disk(OsdId),
}

/// Injects a fault.
type Fault = fn(&mut World);

impl World {
    /// Begins to inject faults.
    pub(crate) fn begin_storm(&mut self) {
        self.weather.stormy = true;
        self.next_disturbance();
    }

    fn next_disturbance(&mut self) {
        let calm = self.setup.calm_ms * 1000;
        let after = self.rng.between(calm / 10, calm * 2);
        self.after(after, Event::Disturb);
    }

    pub(crate) fn on_disturb(&mut self) {
        if !self.weather.stormy {
            return;
        }
        self.weather.was_full |= self.is_full();
        let f = self.setup.faults;
        let kinds: [(u32, Fault); 18] = [
            (f.deaths, Self::lose_osd),
            (f.blackouts, Self::blackout),
            (f.monitors, Self::lose_mon),
            (f.partitions, Self::cut_off),
            (f.isolations, Self::isolate),
            (f.one_way, Self::one_way),
            (f.breaks, Self::break_some),
            (f.slow_disks, Self::slow_down),
            (f.rot, Self::rot),
            (f.misdirected, Self::misdirect),
            (f.slanders, Self::say_down),
            (f.moves, Self::move_out),
            (f.splits, Self::split),
            (f.clients, Self::lose_client),
            (f.scrubs, Self::scrub_some),
            (f.rot_data, Self::rot_data),
            (f.ruins, Self::ruin),
            (f.rot_index, Self::rot_index),
        ];
        let all: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.below(u64::from(all + f.calm));
        for (weight, kind) in kinds {
            if at < u64::from(weight) {
                kind(self);
                break;
            }
            at -= u64::from(weight);
        }
        self.next_disturbance();
    }

    fn any_client(&mut self) -> usize {
        usize::try_from(self.rng.below(self.clients.len() as u64)).unwrap_or(0)
    }

    fn any_mon(&mut self) -> usize {
        usize::try_from(self.rng.below(self.mons.count() as u64)).unwrap_or(0)
    }

    fn lose_client(&mut self) {
        let client = self.any_client();
        self.replace_client(client);
    }

    fn any_osd(&mut self) -> OsdId {
        OsdId::try_from(self.rng.below(self.setup.osds.into())).unwrap_or_default()
    }

    fn any_node(&mut self) -> Node {
        match self.rng.below(6) {
            0 => Node::Mon(self.any_mon()),
            1 => Node::Client(self.any_client()),
            _ => Node::Osd(self.any_osd()),
        }
    }

    fn lose_osd(&mut self) {
        let id = self.any_osd();
        if self.weather.away.len() < self.setup.most_down {
            self.lose(id);
        }
    }

    fn lose(&mut self, id: OsdId) {
        if !self.weather.away.insert(id) {
            return;
        }
        if self.rng.one_in(2) {
            self.kill_osd(id);
        } else {
            self.cut_power(id);
        }
        let after = match self.rng.below(3) {
            // Before anybody has noticed.
            0 => self.rng.between(SECOND / 10, SECOND),
            1 => self.rng.between(SECOND, 5 * SECOND),
            _ => self.rng.between(5 * SECOND, 20 * SECOND),
        };
        self.after(after, Event::Mend(Mend::Osd(id)));
    }

    /// Cuts the power everywhere, on a host, or on a PG's members, as far as that many OSDs may be
    /// away. Each comes back at its own time.
    fn blackout(&mut self) {
        let all: Vec<OsdId> = match (self.rng.below(4), self.mons.map()) {
            (1, _) => {
                let one = self.any_osd();
                OsdId::below(self.setup.osds)
                    .filter(|o| self.setup.host(*o) == self.setup.host(one))
                    .collect()
            }
            (2.., Some(map)) => {
                let seed = u32::try_from(self.rng.below(self.weather.pg_num.into())).unwrap_or(0);
                let pool = POOL;
                map.map_pg(PgId { pool, seed }).acting.osds().collect()
            }
            _ => OsdId::below(self.setup.osds).collect(),
        };
        for id in all {
            if self.weather.away.len() < self.setup.most_down {
                self.lose(id);
            }
        }
    }

    fn lose_mon(&mut self) {
        if self.mons.count() == 1 {
            return;
        }
        let m = self.any_mon();
        self.kill_mon(m);
        let after = self.rng.between(SECOND / 2, 6 * SECOND);
        self.after(after, Event::Mon(MonEvent::Start(m)));
    }

    fn all_nodes(&self) -> Vec<Node> {
        let mons = (0..self.mons.count()).map(Node::Mon);
        let clients = (0..self.clients.len()).map(Node::Client);
        mons.chain(self.osds.keys().copied().map(Node::Osd))
            .chain(clients)
            .collect()
    }

    /// Separates some nodes from all others. Often a client is among them, which goes on reading.
    fn cut_off(&mut self) {
        if std::mem::replace(&mut self.weather.cut_off, true) {
            return;
        }
        let mut inside = BTreeSet::from([self.any_node()]);
        for _ in 0..self.rng.below(3) {
            inside.insert(self.any_node());
        }
        if self.rng.one_in(2) {
            inside.insert(Node::Client(self.any_client()));
        }
        self.enclose(&inside);
    }

    /// Separates an OSD and a client from all others; perhaps all others are told at once that the
    /// OSD is down. The client may end before it reaches any other node again.
    fn isolate(&mut self) {
        if std::mem::replace(&mut self.weather.cut_off, true) {
            return;
        }
        let client = match self.setup.readers {
            0 => self.any_client(),
            n => usize::try_from(self.rng.below(n as u64)).unwrap_or(0),
        };
        let id = self.any_osd();
        if self.setup.faults.slanders > 0 && self.rng.one_in(2) {
            self.command(&format!(r#"{{"prefix":"osd down","ids":["{id}"]}}"#));
        }
        if self.setup.faults.clients > 0 && self.rng.one_in(2) {
            self.weather.giving_up = Some(client);
        }
        self.enclose(&BTreeSet::from([Node::Osd(id), Node::Client(client)]));
    }

    /// Separates the nodes `inside` from all others for a while.
    fn enclose(&mut self, inside: &BTreeSet<Node>) {
        for a in self.all_nodes() {
            for b in inside {
                if !inside.contains(&a) {
                    self.net.blocked.insert((a, *b));
                    self.net.blocked.insert((*b, a));
                }
            }
        }
        let after = self.rng.between(SECOND / 5, 25 * SECOND);
        self.after(after, Event::Mend(Mend::Network));
    }

    /// Blocks all packets from one node to another, or to all others, in this direction only.
    fn one_way(&mut self) {
        if std::mem::replace(&mut self.weather.cut_off, true) {
            return;
        }
        let (a, b, all) = (self.any_node(), self.any_node(), self.rng.one_in(3));
        for other in self.all_nodes() {
            if other != a && (all || other == b) {
                self.net.blocked.insert((a, other));
            }
        }
        let after = self.rng.between(SECOND / 5, 25 * SECOND);
        self.after(after, Event::Mend(Mend::Network));
    }

    pub(crate) fn break_some(&mut self) {
        for _ in 0..=self.rng.below(4) {
            let all: Vec<u64> = self.net.conns.keys().copied().collect();
            if let Some(conn) = self.rng.pick(&all).copied() {
                self.break_conn(conn);
            }
        }
    }

    fn slow_down(&mut self) {
        let (id, slowness) = (self.any_osd(), self.rng.between(10, 300));
        if let Some(n) = self.osds.get_mut(&id) {
            n.slowness = slowness;
        }
        let after = self.rng.between(SECOND, 8 * SECOND);
        self.after(after, Event::Mend(Mend::Disk(id)));
    }

    /// Flips bits on the first OSD's disk: the other OSDs have good copies.
    fn rot(&mut self) {
        self.weather.rotten = true;
        let size = self.setup.disk as u64;
        for _ in 0..20 {
            let (at, bit) = (self.rng.below(size), self.rng.below(8));
            if let Some(n) = self.osds.get_mut(&FIRST) {
                n.rotten = true;
                n.disk
                    .flip_bit(usize::try_from(at).unwrap_or(0), u32::try_from(bit).unwrap_or(0));
            }
        }
    }

    /// Flips bits of objects on the first OSD's disk.
    pub(crate) fn rot_data(&mut self) {
        let Some(disk) = self.osds.get(&FIRST).map(|n| n.disk.copied(1)) else {
            return;
        };
        // A store that can't be opened is damaged enough.
        let places = contents::places(&disk).unwrap_or_default();
        for _ in 0..self.rng.between(1, 4) {
            let Some(block) = self.rng.pick(&places).copied() else {
                return;
            };
            let at = usize::try_from(block * BLOCK + self.rng.below(BLOCK)).unwrap_or(0);
            if let Some(n) = self.osds.get_mut(&FIRST) {
                self.weather.rotten = true;
                n.rotten = true;
                n.disk.flip_bit(at, 3);
            }
        }
    }

    /// Ends an OSD and ruins its store, so that it can't be opened any more; one at a time, and only
    /// while others have all that it has, unless PGs may wait for ever.
    fn ruin(&mut self) {
        let waits = |n: &OsdNode| n.refill.is_some();
        if self.osds.values().any(waits) || !self.setup.lonely && !self.is_well() {
            return;
        }
        let id = self.any_osd();
        self.lose(id);
        if let Some(n) = self.osds.get(&id) {
            for at in contents::INDEX_MAPS {
                n.disk.flip_bit(at + 50, 3);
            }
        }
    }

    /// Damages a page of the first OSD's index.
    fn rot_index(&mut self) {
        let Some(n) = self.osds.get(&FIRST) else { return };
        let pages = contents::index_pages(&n.disk);
        let at = usize::try_from(self.rng.below(BLOCK)).unwrap_or(0);
        if let Some(page) = self.rng.pick(&pages)
            && let Some(n) = self.osds.get(&FIRST)
        {
            n.disk.flip_bit(page + at, 3);
        }
    }

    /// Makes a write to the first OSD's disk go to another place.
    fn misdirect(&mut self) {
        self.weather.rotten = true;
        let fault = device::Fault {
            misdirect: Some(self.rng.below(20)),
            ..device::Fault::default()
        };
        if let Some(n) = self.osds.get_mut(&FIRST) {
            n.rotten = true;
            n.disk.arm(fault);
        }
    }

    /// The operator marks an OSD down that is up.
    fn say_down(&mut self) {
        let id = self.any_osd();
        self.command(&format!(r#"{{"prefix":"osd down","ids":["{id}"]}}"#));
    }

    fn move_out(&mut self) {
        match self.weather.out.take() {
            Some(id) => self.command(&format!(r#"{{"prefix":"osd in","ids":["{id}"]}}"#)),
            None if self.setup.osds > u32::from(self.setup.size) => {
                let id = self.any_osd();
                self.weather.out = Some(id);
                self.command(&format!(r#"{{"prefix":"osd out","ids":["{id}"]}}"#));
            }
            None => {}
        }
    }

    /// The operator has all PGs scrubbed.
    fn scrub_some(&mut self) {
        let (deep, repair) = [(false, false), (false, false), (true, false), (true, true)]
            [usize::try_from(self.rng.below(4)).unwrap_or(0)];
        self.scrub(deep, repair);
    }

    fn split(&mut self) {
        self.weather.pg_num = (self.weather.pg_num + 1).min(12);
        let to = self.weather.pg_num;
        self.command(&format!(
            r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{to}"}}"#
        ));
    }

    pub(crate) fn on_mend(&mut self, mend: Mend) {
        match mend {
            Mend::Osd(id) => {
                self.weather.away.remove(&id);
                self.revive_osd(id);
            }
            Mend::Network => {
                self.weather.cut_off = false;
                if let Some(client) = self.weather.giving_up.take() {
                    self.replace_client(client);
                }
                self.join_all();
            }
            Mend::Disk(id) => {
                let usual = self.slowness;
                if let Some(n) = self.osds.get_mut(&id) {
                    n.slowness = usual;
                }
            }
        }
    }

    /// Stops injecting faults, and ends those that last.
    pub(crate) fn end_storm(&mut self) {
        self.weather.stormy = false;
        self.on_mend(Mend::Network);
        for m in 0..self.mons.count() {
            self.start_mon(m);
        }
        if let Some(n) = self.osds.get(&FIRST) {
            n.disk.arm(device::Fault::default());
        }
        for id in OsdId::below(self.setup.osds) {
            self.on_mend(Mend::Disk(id));
            self.weather.away.remove(&id);
            if let Some(n) = self.osds.get_mut(&id) {
                n.powered = true;
                let life = n.life;
                // One that ended by itself too.
                self.after(1, Event::Osd(id, life, Timer::Start));
            }
        }
    }

    /// The operator undoes the changes that must not remain, and insists: commands may be lost while
    /// the monitors elect a leader.
    pub(crate) fn tidy_up(&mut self) {
        self.weather.out = None;
        let is_out = |id: &OsdId| self.mons.map().is_some_and(|m| m.is_up(*id) && m.is_out(*id));
        let out: Vec<OsdId> = OsdId::below(self.setup.osds).filter(is_out).collect();
        for id in out {
            self.command(&format!(r#"{{"prefix":"osd in","ids":["{id}"]}}"#));
        }
        self.make_room();
    }
}
