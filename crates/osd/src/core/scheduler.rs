//! Which requests begin now, and which wait: clients take turns by what their requests cost.
//!
//! Start-time fair queueing with a bounded number of bytes under way (SFQ(D): Jin, Chase, Kaur,
//! "Interposed proportional sharing for a storage service utility", 2004). Each client has a tag
//! that goes on with the cost of what it begins; the client with the lowest tag is next. A client
//! that was idle begins where the others are, so that it saves nothing up. All clients under one key
//! share a weight.
//!
//! One client alone never waits here. With others, large writes and small ones have a bound each: a
//! small write is not kept waiting by the bytes of large ones, nor a large one by the number of small
//! ones. Beside clients that send only small requests large writes rest after each for as long as it
//! took, so that both have half of the time, or less if there are more of the clients of large
//! writes. Reads have no bound here: those that wait for memory take turns for that
//! (`daemon/read_turns`), so one whose client does not take its replies would keep others waiting.
//!
//! Each client may have a reservation and a limit, in requests a second, as mClock's clients have
//! (Gulati, Merchant, Varman, "mClock: handling throughput variability for hypervisor IO
//! scheduling", 2010): a request that the reservation covers begins before all that none does, and
//! one beyond the limit waits for its time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use spirula_denc::Micros;
use spirula_invariant::impossible;
use spirula_maps::PgId;

use crate::pg::ClientRate;
use crate::pg::op::{Client, ClientOp};
use crate::pg::turn::{LOADS, Load, PER_OP, UnderWay, is_small};
use crate::pg::{Ctx, Output};

/// The bytes of a request beyond which its size does not count: a client may ask to read more than
/// there is.
const LARGEST: u64 = 32 << 20;
/// The time of which a client may make up for what it did not use of its limit, as requests come in
/// bursts and alarms ring late.
const SLACK: Micros = Micros::from_millis(50);
/// How long a client counts after its last request.
const RECENT: Micros = Micros::from_secs(1);

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    pgid: PgId,
    op: ClientOp,
    load: Load,
    cost: u64,
}

/// A client's requests.
#[derive(Debug)]
struct Flow {
    client: Arc<Client>,
    /// The client's tag: where its next request begins.
    tag: u64,
    /// When its reservation covers its next request.
    covered: Micros,
    /// When its limit lets its next request begin.
    free: Micros,
    /// When its last request came.
    last: Micros,
    /// When its last small request came, and its last large write.
    last_small: Option<Micros>,
    last_large: Option<Micros>,
    queue: VecDeque<Waiting>,
}

/// What `dump_op_pq_state` tells of a client.
#[derive(Debug, Clone)]
pub struct FlowState {
    /// The client.
    pub client: Arc<Client>,
    /// Its tag, relative to the lowest that a request may begin with now.
    pub ahead: u64,
    /// The number of its requests that wait.
    pub waiting: usize,
    /// The cost of these, in bytes.
    pub cost: u64,
}

/// What `dump_op_pq_state` tells.
#[derive(Debug, Clone)]
pub struct SchedulerState {
    /// Cost of the requests under way by their load, in bytes.
    pub under_way: [u64; LOADS],
    /// The bounds of small writes, and of large ones.
    pub most: [u64; 2],
    /// The clients that have sent requests lately.
    pub flows: Vec<FlowState>,
}

/// The requests of clients that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    flows: HashMap<u64, Flow>,
    /// The number of flows of each party that has some, by the party's address in memory, which is
    /// valid while a client of it is held.
    parties: HashMap<usize, u64>,
    /// The clients whose next request has this load, by their tags.
    next: [BTreeSet<(u64, u64)>; LOADS],
    /// Those of them that have a reservation, by the times at which it covers their next requests.
    covered: BTreeSet<(Micros, u64)>,
    /// The clients that wait for their limit, by the times at which it lets their next requests begin.
    limited: BTreeSet<(Micros, u64)>,
    rate: ClientRate,
    /// The tag with which the last request began.
    tag: u64,
    under_way: Arc<UnderWay>,
}

/// The time between steps of which there are so many in a second.
fn step(rate: f64) -> Option<Micros> {
    (rate > 0.0).then(|| Micros::from_secs_f64(1.0 / rate))
}

fn party(client: &Client) -> usize {
    Arc::as_ptr(&client.party).addr()
}

/// The number of clients of this one's party.
fn sharers(parties: &HashMap<usize, u64>, client: &Client) -> u64 {
    parties.get(&party(client)).copied().unwrap_or(1)
}

impl Scheduler {
    /// With this reservation and limit of each client.
    pub(super) fn new(rate: ClientRate) -> Self {
        Self {
            rate,
            ..Self::default()
        }
    }

    /// Takes a request that has come, and returns it if it begins now. Else it waits until
    /// [`Scheduler::next`] returns it.
    pub(super) fn enter(&mut self, pgid: PgId, mut op: ClientOp, now: Micros) -> Option<ClientOp> {
        let conn = op.client.conn;
        let cost = op.traffic().min(LARGEST) + PER_OP;
        let load = Load::of(op.may_write(), cost);
        self.look(now);
        let others = self.flows.len() - usize::from(self.flows.contains_key(&conn));
        self.under_way.share(others > 0);
        let may_begin = others == 0 || self.next[load as usize].is_empty() && self.under_way.has_room(load);
        let first = self.tag;
        let flow = self.flow(&op.client);
        flow.last = now;
        match load {
            Load::LargeWrites => flow.last_large = Some(now),
            _ if is_small(cost) => flow.last_small = Some(now),
            Load::SmallWrites | Load::Reads => {}
        }
        if flow.queue.is_empty() {
            // What the client did not use while it was idle is not its due.
            flow.tag = flow.tag.max(first);
            flow.covered = flow.covered.max(now);
            if may_begin && flow.free <= now {
                let tag = flow.tag;
                op.taken.turn = Some(self.under_way.begin(load, cost, now));
                self.begun(conn, tag, cost, now);
                return Some(op);
            }
        }
        op.stamps.scheduled = now;
        flow.queue.push_back(Waiting { pgid, op, load, cost });
        if flow.queue.len() == 1 {
            self.line_up(conn, now);
        }
        None
    }

    /// A client's flow, made if there is none.
    fn flow(&mut self, client: &Arc<Client>) -> &mut Flow {
        let parties = &mut self.parties;
        self.flows.entry(client.conn).or_insert_with(|| {
            *parties.entry(party(client)).or_default() += 1;
            Flow {
                client: Arc::clone(client),
                tag: 0,
                covered: Micros::ZERO,
                free: Micros::ZERO,
                last: Micros::ZERO,
                last_small: None,
                last_large: None,
                queue: VecDeque::new(),
            }
        })
    }

    /// Whether several clients have sent requests lately.
    pub(super) fn is_shared(&self) -> bool {
        self.flows.len() > 1
    }

    /// Notes what has become of the requests under way; returns when more may begin even if none
    /// ends.
    fn look(&self, now: Micros) -> Micros {
        self.under_way.look(now, || self.rest(now))
    }

    /// What large writes rest for, as a part of what they took: the number of clients that send only
    /// small requests, for each that sends large writes. More than all of it gives nobody more.
    fn rest(&self, now: Micros) -> f64 {
        let is_recent = |at: Option<Micros>| at.is_some_and(|at| now.saturating_sub(at) < RECENT);
        let (mut small, mut large) = (0.0, 0.0);
        for flow in self.flows.values() {
            let share = 1.0 / sharers(&self.parties, &flow.client) as f64;
            if is_recent(flow.last_large) {
                large += share;
            } else if is_recent(flow.last_small) {
                small += share;
            }
        }
        if small < large { small / large } else { 1.0 }
    }

    /// Sets the reservation and the limit of each client.
    pub(super) fn set_rate(&mut self, rate: ClientRate) {
        if self.rate == rate {
            return; // Other options have changed.
        }
        self.rate = rate;
        // The old ones end at once.
        for flow in self.flows.values_mut() {
            (flow.covered, flow.free) = (flow.last, Micros::ZERO);
        }
        self.covered.clear();
        self.next.iter_mut().for_each(BTreeSet::clear);
        self.limited.clear();
        let waiting = self.flows.iter().filter(|(_, f)| !f.queue.is_empty());
        let waiting: Vec<u64> = waiting.map(|(conn, _)| *conn).collect();
        waiting
            .into_iter()
            .for_each(|conn| self.line_up(conn, Micros::ZERO));
    }

    /// Has a client wait for its turn with its next request, or for its limit.
    fn line_up(&mut self, conn: u64, now: Micros) {
        let Some((flow, head)) = self.flows.get(&conn).and_then(|f| Some((f, f.queue.front()?))) else {
            return; // It has nothing that waits.
        };
        if flow.free > now {
            self.limited.insert((flow.free, conn));
            return; // It goes on when that time has come.
        }
        self.next[head.load as usize].insert((flow.tag, conn));
        if self.rate.least > 0.0 {
            self.covered.insert((flow.covered, conn));
        }
    }

    /// Moves a client's tag on by the cost of a request that begins with this tag.
    fn begun(&mut self, conn: u64, tag: u64, cost: u64, now: Micros) {
        self.tag = self.tag.max(tag);
        let (least, most) = (step(self.rate.least), step(self.rate.most));
        if let Some(flow) = self.flows.get_mut(&conn) {
            if let Some(step) = least {
                flow.covered += step;
            }
            if let Some(step) = most {
                flow.free = flow.free.max(now.saturating_sub(SLACK)) + step;
            }
            let sharers = sharers(&self.parties, &flow.client);
            flow.tag = tag.saturating_add(cost.saturating_mul(sharers));
        }
    }

    /// Takes the next request that may begin, and notes how long it has waited. If others wait, asks
    /// to be called when more may begin.
    pub(super) fn next(&mut self, cx: &mut Ctx<'_>) -> Option<(PgId, ClientOp)> {
        let looks = self.look(cx.usec);
        if self.limited.is_empty() && self.next.iter().all(BTreeSet::is_empty) {
            return None;
        }
        let Some((pgid, op)) = self.pop(cx.usec) else {
            let waits = self.next.iter().any(|next| !next.is_empty());
            let limit = self.limited.first().map(|(free, _)| *free);
            let alarms = waits.then_some(looks).into_iter().chain(limit);
            if let Some(usec) = alarms.min() {
                cx.out.push(Output::Alarm { usec });
            }
            return None;
        };
        cx.perf.turns.add(cx.usec.saturating_sub(op.stamps.scheduled));
        Some((pgid, op))
    }

    fn pop(&mut self, now: Micros) -> Option<(PgId, ClientOp)> {
        while let Some((_, conn)) = self.limited.first().filter(|(free, _)| *free <= now).copied() {
            self.limited.pop_first();
            self.line_up(conn, now);
        }
        let (tag, conn, load) = self.first_covered(now).or_else(|| self.first())?;
        self.next[load as usize].remove(&(tag, conn));
        let flow = self.flows.get_mut(&conn);
        if let Some(flow) = &flow {
            self.covered.remove(&(flow.covered, conn));
        }
        let Some(Waiting {
            pgid, mut op, cost, ..
        }) = flow.and_then(|f| f.queue.pop_front())
        else {
            impossible!("a client whose turn it is to have a request that waits"; connection = conn);
        };
        op.taken.turn = Some(self.under_way.begin(load, cost, now));
        self.begun(conn, tag, cost, now);
        self.line_up(conn, now);
        Some((pgid, op))
    }

    /// Whether a request with this load may begin.
    fn may_begin(&self, load: Load) -> bool {
        !self.is_shared() || self.under_way.has_room(load)
    }

    /// The client with the lowest tag of those whose next request may begin.
    fn first(&self) -> Option<(u64, u64, Load)> {
        let heads = Load::ALL.into_iter().filter(|load| self.may_begin(*load));
        let firsts = heads.filter_map(|load| {
            let (tag, conn) = self.next[load as usize].first()?;
            Some((*tag, *conn, load))
        });
        firsts.min_by_key(|(tag, conn, _)| (*tag, *conn))
    }

    /// The client whose reservation has covered its next request for longest.
    fn first_covered(&self, now: Micros) -> Option<(u64, u64, Load)> {
        let covered = self.covered.iter().take_while(|(since, _)| *since <= now);
        let heads = covered.filter_map(|(_, conn)| {
            let flow = self.flows.get(conn)?;
            Some((flow.tag, *conn, flow.queue.front()?.load))
        });
        heads.into_iter().find(|(_, _, load)| self.may_begin(*load))
    }

    /// The requests that wait.
    pub(super) fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.flows.values().flat_map(|f| f.queue.iter().map(|w| &w.op))
    }

    /// Drops what waits of a connection that has ended.
    pub(super) fn forget(&mut self, conn: u64) {
        let Some(flow) = self.flows.remove(&conn) else {
            return; // It has sent nothing lately.
        };
        self.next.iter_mut().for_each(|n| n.retain(|(_, c)| *c != conn));
        self.covered.remove(&(flow.covered, conn));
        self.limited.remove(&(flow.free, conn));
        self.leave_party(&flow.client);
    }

    fn leave_party(&mut self, client: &Client) {
        let party = party(client);
        if let Some(sharers) = self.parties.get_mut(&party) {
            *sharers -= 1;
            if *sharers == 0 {
                self.parties.remove(&party);
            }
        }
    }

    /// Handles the passing of a second: forgets clients that send nothing.
    pub(super) fn tick(&mut self, now: Micros) {
        let is_idle = |f: &Flow| f.queue.is_empty() && now.saturating_sub(f.last) >= RECENT;
        let idle: Vec<u64> = self
            .flows
            .iter()
            .filter(|(_, f)| is_idle(f))
            .map(|(c, _)| *c)
            .collect();
        idle.into_iter().for_each(|conn| self.forget(conn));
    }

    /// What there is to tell.
    pub(super) fn state(&self) -> SchedulerState {
        let by_conn: BTreeMap<u64, &Flow> = self.flows.iter().map(|(c, f)| (*c, f)).collect();
        let flow = |f: &Flow| FlowState {
            client: Arc::clone(&f.client),
            ahead: f.tag.saturating_sub(self.tag),
            waiting: f.queue.len(),
            cost: f.queue.iter().map(|w| w.cost).sum(),
        };
        SchedulerState {
            under_way: Load::ALL.map(|load| self.under_way.cost(load)),
            most: [Load::SmallWrites, Load::LargeWrites].map(|load| self.under_way.most(load)),
            flows: by_conn.into_values().map(flow).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spirula_denc::EntityAddr;
    use spirula_maps::snap::NOSNAP;
    use spirula_maps::{Epoch, PoolId};
    use spirula_proto::osd::OpCode;

    use super::*;
    use crate::pg::account::Party;
    use crate::pg::op::OsdOp;

    static ZEROS: [u8; 4 << 20] = [0; 4 << 20];

    fn clients(parties: &[usize]) -> Vec<Arc<Client>> {
        let all: Vec<Arc<Party>> = (0..parties.len()).map(|_| Arc::default()).collect();
        let client = |(conn, party): (u64, &usize)| {
            Arc::new(Client {
                conn,
                addr: EntityAddr::default(),
                party: Arc::clone(&all[*party]),
                ..Client::internal()
            })
        };
        (1..).zip(parties).map(client).collect()
    }

    fn op(client: &Arc<Client>, bytes: usize) -> ClientOp {
        let mut write = OsdOp::default();
        write.code = OpCode::WRITEFULL;
        write.indata = Bytes::from_static(&ZEROS[..bytes]);
        ClientOp {
            client: Arc::clone(client),
            tid: 0,
            reqid: Default::default(),
            pgid: pgid(),
            object: Default::default(),
            epoch: Epoch::NONE,
            flags: Default::default(),
            mtime: Default::default(),
            ops: vec![write],
            snapid: NOSNAP,
            snapc: Default::default(),
            retry_attempt: 0,
            trace: Default::default(),
            stamps: Default::default(),
            taken: Default::default(),
        }
    }

    fn read(client: &Arc<Client>) -> ClientOp {
        let mut op = op(client, 0);
        op.ops[0].code = OpCode::READ;
        op.ops[0].set_length(4 << 20);
        op
    }

    fn pgid() -> PgId {
        PgId::new(PoolId::new(1), 0)
    }

    /// What begins now, and then whenever the first that is under way ends: the bytes begun of each
    /// client, until this many requests have.
    fn run(s: &mut Scheduler, mut under_way: VecDeque<ClientOp>, count: usize) -> BTreeMap<u64, u64> {
        let mut begun = BTreeMap::new();
        for _ in 0..count {
            while let Some((_, op)) = s.pop(Micros::new(1)) {
                *begun.entry(op.client.conn).or_default() += op.traffic();
                under_way.push_back(op);
            }
            under_way.pop_front();
        }
        begun
    }

    fn enter(s: &mut Scheduler, client: &Arc<Client>, bytes: usize, count: usize) -> VecDeque<ClientOp> {
        let mut begun = VecDeque::new();
        for _ in 0..count {
            begun.extend(s.enter(pgid(), op(client, bytes), Micros::new(1)));
        }
        begun
    }

    /// Has each client send a request, which ends: none is alone.
    fn meet(s: &mut Scheduler, all: &[Arc<Client>]) {
        all.iter().for_each(|c| drop(enter(s, c, 1, 1)));
    }

    #[test]
    fn a_client_alone_does_not_wait() {
        let (mut s, c) = (Scheduler::default(), clients(&[0]));
        assert_eq!(enter(&mut s, &c[0], 4 << 20, 64).len(), 64);
        assert!(s.ops().count() == 0);
    }

    #[test]
    fn small_requests_pass_large_ones_that_wait() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 0]));
        let large = enter(&mut s, &c[0], 4 << 20, 64);
        // All that was under way when the other came is; nothing more of its size begins before that
        // has ended.
        assert_eq!(enter(&mut s, &c[1], 4096, 1).len(), 1);
        assert_eq!(enter(&mut s, &c[0], 4 << 20, 8).len(), 0);
        assert_eq!(enter(&mut s, &c[1], 4096, 16).len(), 16);
        assert_eq!(s.ops().count(), 8);
        drop(large);
        let begun = run(&mut s, VecDeque::new(), 1);
        assert_eq!(begun[&1], 4 << 20, "one at a time beside small ones");
        s.look(Micros::from_millis(250));
        s.look(Micros::from_millis(500));
        let begun = run(&mut s, VecDeque::new(), 1);
        assert_eq!(begun[&1], 8 << 20, "two at a time without");
        assert_eq!(
            run(&mut s, VecDeque::new(), 20).values().sum::<u64>(),
            5 * (4 << 20)
        );
        assert!(s.ops().count() == 0);
    }

    /// Whether a large write may begin at this time.
    fn may_begin_large(s: &Scheduler, at: u64) -> bool {
        s.look(Micros::from_millis(at));
        s.under_way.has_room(Load::LargeWrites)
    }

    #[test]
    fn large_writes_rest_beside_small_requests_for_as_long_as_they_took() {
        let ms = Micros::from_millis;
        let (mut s, c) = (Scheduler::default(), clients(&[0, 1]));
        let enter =
            |s: &mut Scheduler, client: usize, bytes, at| s.enter(pgid(), op(&c[client], bytes), ms(at));
        let first = enter(&mut s, 0, 4 << 20, 10);
        assert!(enter(&mut s, 1, 4096, 12).is_some());
        assert!(enter(&mut s, 0, 4 << 20, 14).is_none() && enter(&mut s, 0, 1 << 20, 14).is_none());
        drop(first);
        assert!(enter(&mut s, 1, 4096, 40).is_some(), "small ones have no rest");
        assert!(s.look(ms(40)) == ms(70) && s.pop(ms(40)).is_none());
        assert!(may_begin_large(&s, 70));
        let (_, second) = s.pop(ms(70)).expect("the rest is over");
        s.look(ms(90));
        drop(second);
        assert_eq!((90..).find(|at| may_begin_large(&s, *at)), Some(110));
        let (_, third) = s.pop(ms(110)).expect("the rest is over");
        s.look(ms(150));
        drop(third);
        let rested = (150..).find(|at| may_begin_large(&s, *at));
        assert_eq!(
            rested,
            Some(161),
            "a quarter of 40 ms, and of what a request costs"
        );
    }

    #[test]
    fn large_writes_rest_less_for_fewer_clients_of_small_requests() {
        let ms = Micros::from_millis;
        // A write of 30 ms among these clients, each of which sends requests of one or two sizes.
        let rest = |parties: &[usize], sizes: &[&[usize]]| {
            let (mut s, c) = (Scheduler::default(), clients(parties));
            let mut first = None;
            for (client, sizes) in c.iter().zip(sizes) {
                for bytes in *sizes {
                    let mut op = op(client, *bytes);
                    if *bytes == 0 {
                        op.ops[0].code = OpCode::WATCH;
                    }
                    let begun = s.enter(pgid(), op, ms(10));
                    first = first.or(begun);
                }
            }
            s.look(ms(40));
            drop(first);
            (40..).find(|at| may_begin_large(&s, *at)).map(|at| at - 40)
        };
        let (small, large): (&[usize], &[usize]) = (&[4096], &[4 << 20]);
        assert_eq!(rest(&[0, 1], &[large, small]), Some(30));
        assert_eq!(rest(&[0, 1, 2], &[large, small, small]), Some(30));
        assert_eq!(rest(&[0, 1, 2, 3], &[large, large, large, small]), Some(10));
        assert_eq!(
            rest(&[0, 0, 0, 1], &[large, large, large, small]),
            Some(30),
            "of one party"
        );
        assert_eq!(
            rest(&[0, 1], &[large, &[4 << 20, 4096]]),
            Some(0),
            "both send large ones"
        );
        assert_eq!(rest(&[0, 1], &[large, &[0]]), Some(0), "a ping");
        assert_eq!(rest(&[0], &[large]), Some(0), "alone");
    }

    #[test]
    fn clients_get_the_same_and_parties_too() {
        // Three clients of one party, and one of another; each always has more than may begin.
        let (mut s, c) = (Scheduler::default(), clients(&[0, 0, 0, 1]));
        meet(&mut s, &c);
        let mut under_way = VecDeque::new();
        for (client, bytes) in c.iter().zip([1 << 20, 4 << 20, 2 << 20, 1 << 20]) {
            under_way.extend(enter(&mut s, client, bytes, (512 << 20) / bytes));
        }
        let begun = run(&mut s, under_way, 300);
        let all: u64 = begun.values().sum();
        let share = |conn: u64| begun[&conn] as f64 / all as f64;
        assert!((share(4) - 0.5).abs() < 0.1, "{begun:?}");
        (1..4).for_each(|conn| assert!((share(conn) - 1.0 / 6.0).abs() < 0.05, "{begun:?}"));
    }

    #[test]
    fn a_flood_of_small_requests_starves_no_large_one() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 1]));
        meet(&mut s, &c);
        let mut under_way = enter(&mut s, &c[0], 4096, 5000);
        under_way.extend(enter(&mut s, &c[1], 4 << 20, 10));
        let begun = run(&mut s, under_way, 800);
        assert!(begun.get(&2).copied().unwrap_or(0) >= 8 << 20, "{begun:?}");
    }

    #[test]
    fn what_is_stuck_keeps_nobody_waiting() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 0]));
        let stuck = enter(&mut s, &c[0], 4 << 20, 10);
        enter(&mut s, &c[1], 4096, 1);
        enter(&mut s, &c[1], 4 << 20, 1);
        assert!(s.pop(Micros::new(1)).is_none());
        assert_eq!(s.look(Micros::from_millis(300)), Micros::from_millis(500));
        assert!(s.pop(Micros::new(1)).is_none());
        s.look(Micros::from_millis(500));
        let (_, later) = s.pop(Micros::new(1)).expect("what was under way is forgotten");
        drop(stuck);
        assert_eq!(s.state().under_way, [0, (4 << 20) + PER_OP, 0]);
        drop(later);
        assert_eq!(s.state().under_way, [0; LOADS], "ended, or forgotten");
        s.look(Micros::from_secs(100));
    }

    #[test]
    fn reads_wait_only_for_their_own_client() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 1]));
        meet(&mut s, &c);
        let unread: Vec<_> = (0..100)
            .filter_map(|_| s.enter(pgid(), read(&c[0]), Micros::new(1)))
            .collect();
        assert_eq!(unread.len(), 100);
        assert!(s.enter(pgid(), read(&c[1]), Micros::new(1)).is_some());
        // Nor do reads take the place of writes.
        let writes = enter(&mut s, &c[1], 4 << 20, 3);
        assert_eq!(writes.len(), 1);
        assert!(
            s.enter(pgid(), read(&c[1]), Micros::new(1)).is_none(),
            "after the write"
        );
        drop(writes);
        assert_eq!(run(&mut s, VecDeque::new(), 3).len(), 1);
        assert_eq!(s.ops().count(), 0);
    }

    #[test]
    fn clients_that_left_or_are_idle_do_not_count() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 0, 1]));
        let _under_way = enter(&mut s, &c[0], 4 << 20, 10);
        enter(&mut s, &c[1], 4 << 20, 3);
        assert!(s.is_shared() && s.ops().count() == 3);
        s.forget(2);
        assert!(!s.is_shared() && s.ops().count() == 0);
        enter(&mut s, &c[2], 4096, 1);
        assert!(s.is_shared());
        s.tick(Micros::from_secs(2));
        assert!(!s.is_shared() && s.parties.is_empty());
    }

    /// The requests of each client that begin in ten seconds, if each always has one that waits and
    /// none takes any time.
    fn begun_in_ten_seconds(s: &mut Scheduler, all: &[Arc<Client>]) -> Vec<usize> {
        let mut begun = vec![0; all.len()];
        for ms in (0..10_000).step_by(20) {
            let now = Micros::from_millis(1000 + ms);
            for (client, begun) in all.iter().zip(&mut begun) {
                let waits = s.ops().filter(|op| op.client.conn == client.conn).count();
                let missing = 20_usize.saturating_sub(waits);
                let at_once = (0..missing).filter_map(|_| s.enter(pgid(), op(client, 4096), now));
                *begun += at_once.count();
            }
            while let Some((_, op)) = s.pop(now) {
                begun[(op.client.conn - 1) as usize] += 1;
            }
        }
        begun
    }

    #[test]
    fn a_limit_bounds_each_client_and_ends_with_the_option() {
        let limit = |most| ClientRate { least: 0.0, most };
        for clients in [clients(&[0]), clients(&[0, 1])] {
            let mut s = Scheduler::default();
            s.set_rate(limit(100.0));
            for begun in begun_in_ten_seconds(&mut s, &clients) {
                assert!((995..=1010).contains(&begun), "{begun}");
            }
            let waiting = s.ops().count();
            let now = Micros::from_millis(10_980);
            assert!(waiting > 0 && s.pop(now).is_none());
            s.set_rate(limit(0.0));
            assert_eq!(std::iter::from_fn(|| s.pop(now)).count(), waiting);
        }
    }

    #[test]
    fn a_reservation_goes_before_what_is_due_by_cost() {
        let share = |least| {
            let (mut s, c) = (Scheduler::default(), clients(&[0, 1]));
            s.set_rate(ClientRate { least, most: 0.0 });
            meet(&mut s, &c);
            // One has had much more than the other, whose small requests go first by their cost.
            let mut under_way = enter(&mut s, &c[0], 100 << 10, 400);
            under_way.extend(enter(&mut s, &c[1], 4096, 4000));
            let mut begun = [0, 0];
            for ms in 0..1000 {
                while let Some((_, op)) = s.pop(Micros::from_millis(ms)) {
                    begun[(op.client.conn - 1) as usize] += 1;
                    under_way.push_back(op);
                }
                under_way.pop_front();
            }
            begun
        };
        let ([without, _], [with, others]) = (share(0.0), share(300.0));
        // What began before the second counts.
        let is_right = without < 200 && (240..300).contains(&with) && others > 300;
        assert!(is_right, "{without} {with} {others}");
    }

    #[test]
    fn who_leaves_leaves_nothing_behind() {
        let (mut s, c) = (Scheduler::default(), clients(&[0, 1]));
        s.set_rate(ClientRate {
            least: 1.0,
            most: 10.0,
        });
        let _under_way: Vec<_> = c.iter().map(|c| enter(&mut s, c, 4 << 20, 100)).collect();
        assert!(!s.limited.is_empty());
        s.forget(1);
        s.forget(2);
        assert!(s.limited.is_empty() && s.covered.is_empty() && s.pop(Micros::from_secs(9)).is_none());
    }
}
