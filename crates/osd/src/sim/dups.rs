//! Requests that are sent again: answered as the first time, and not executed again.

use spirula_proto::osd_op_data::CallInput;

use super::*;

const RETURNS: OsdFlags = OsdFlags::RETURNVEC;

fn cluster(cfg: PgConfig) -> Sim {
    let mut sim = Sim::with_config(4, 3, 1, 1, cfg);
    sim.change_map(|m| m.out.push(OsdId::new(3)));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim
}

fn short_log() -> PgConfig {
    PgConfig {
        log_entries_per_pg: 1..=1,
        ..PgConfig::default()
    }
}

fn call(method: &str, input: &str) -> OsdOpIn {
    CallInput::op("hello", method, input.as_bytes()).unwrap()
}

/// A request that can be sent any number of times.
#[derive(Clone)]
struct Request {
    name: &'static str,
    ops: Vec<OsdOpIn>,
    reqid: ReqId,
    flags: OsdFlags,
}

/// A reply's result, versions and outputs, as a client sees them.
type Answer = (i32, spirula_maps::EVersion, u64, Vec<(i32, Bytes)>);

impl Sim {
    fn request(&mut self, name: &'static str, ops: Vec<OsdOpIn>) -> Request {
        let op = self.build(name, vec![]);
        Request {
            name,
            ops,
            reqid: op.reqid,
            flags: OsdFlags::ONDISK.with(RETURNS),
        }
    }

    fn send(&mut self, r: &Request) -> Answer {
        let op = ClientOp {
            reqid: r.reqid,
            flags: r.flags,
            ..self.build(r.name, r.ops.clone())
        };
        let m = self.call_op(op);
        let ops = m.ops.iter().map(|o| (o.result, o.data.to_bytes())).collect();
        // As with the official OSD, the log does not have the version reported to the client of a
        // failed request.
        let user_version = if m.result < 0 { 0 } else { m.user_version };
        (m.result, m.replay_version, user_version, ops)
    }

    /// Sends one request of every kind of outcome; returns each with its first answer.
    fn requests(&mut self) -> Vec<(Request, Answer)> {
        let cmp = extent(OpCode::CMPEXT, 0, 1, "z");
        let kinds = [
            ("a", vec![extent(OpCode::APPEND, 0, 1, "x")]),
            ("a", vec![cmp, extent(OpCode::APPEND, 0, 1, "y")]),
            ("b", vec![plain(OpCode::CREATE)]),
            ("b", vec![plain(OpCode::DELETE)]),
            ("b", vec![plain(OpCode::DELETE)]),
            ("c", vec![extent(OpCode::TRUNCATE, 3, 0, "")]),
            ("d", vec![call("record_hello", "you")]),
            ("d", vec![call("record_hello", "you")]),
            ("d", vec![call("write_return_data", "")]),
        ];
        let mut all = Vec::new();
        for (name, ops) in kinds {
            let r = self.request(name, ops);
            let answer = self.send(&r);
            all.push((r, answer));
        }
        let results: Vec<i32> = all.iter().map(|(_, a)| a.0).collect();
        assert_eq!(results, [0, -4095, 0, 0, -2, 0, 0, -17, 42]);
        all
    }

    fn fill(&mut self, n: usize) {
        for _ in 0..n {
            assert_eq!(self.write_full("other", "x").result, 0);
        }
    }

    fn check_all(&mut self, all: &[(Request, Answer)]) {
        for (i, (r, first)) in all.iter().enumerate() {
            assert_eq!(&self.send(r), first, "request {i}");
        }
        assert_eq!(self.read("a").unwrap(), "x");
        assert_eq!(self.read("b"), Err(-2));
        assert_eq!(self.read("d").unwrap(), "Hello, you!");
    }
}

#[test]
pub(super) fn requests_are_recognised_beyond_the_log_and_after_a_restart_of_all() {
    let mut sim = cluster(short_log());
    let all = sim.requests();
    sim.check_all(&all);
    sim.fill(100);
    let pgid = PgId::new(POOL, 0);
    let pg = sim.nodes[&OsdId::new(0)].core.as_ref().unwrap().pg(pgid).unwrap();
    assert!(pg.seen().log().find(&all[5].0.reqid).is_none() && pg.seen().dups().count() > 60);
    sim.check_all(&all);
    for id in OsdId::below(3) {
        sim.crash(id);
    }
    sim.change_map(|m| OsdId::below(3).for_each(|o| m.mark_down(o)));
    for id in OsdId::below(3) {
        sim.start(id);
    }
    sim.change_map(|m| OsdId::below(3).for_each(|o| m.mark_up(o)));
    sim.settle();
    sim.check_all(&all);
}

#[test]
fn a_new_member_that_becomes_primary_recognises_them() {
    let mut sim = cluster(short_log());
    let all = sim.requests();
    sim.fill(100);
    // Another OSD takes the place of one, gets everything, and in the end leads.
    for gone in [2, 1, 0].map(OsdId::new) {
        sim.change_map(|m| m.out = vec![gone]);
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        sim.check_all(&all);
        sim.fill(40);
    }
    sim.change_map(|m| {
        m.out = vec![OsdId::new(0)];
        m.pools.get_mut(&POOL).unwrap().pg_num = 2;
    });
    sim.settle();
    sim.check_all(&all);
    sim.change_map(|m| {
        m.out = vec![];
        m.gone = [0, 1].map(OsdId::new).into();
        m.pools.get_mut(&POOL).unwrap().size = 2;
    });
    sim.settle();
    sim.check_all(&all);
}

#[test]
pub(super) fn they_are_forgotten_in_the_end() {
    let cfg = PgConfig {
        dups_tracked: 80,
        ..short_log()
    };
    let mut sim = cluster(cfg);
    let all = sim.requests();
    sim.fill(200);
    let (records, pgid) = (sim.nodes[&OsdId::new(0)].store.meta_len(), PgId::new(POOL, 0));
    sim.fill(2000);
    let pg = sim.nodes[&OsdId::new(0)].core.as_ref().unwrap().pg(pgid).unwrap();
    assert!(pg.seen().dups().count() + pg.seen().log().len() <= 80 + 32);
    assert!(sim.nodes[&OsdId::new(0)].store.meta_len() <= records + 40);
    sim.send(&all[0].0);
    assert_eq!(sim.read("a").unwrap(), "xx");
}

/// A request that is sent again while it is under way is answered, though nothing remembers it any
/// more when it is durable.
#[test]
pub(super) fn what_is_forgotten_before_it_is_durable_is_answered_all_the_same() {
    let mut sim = cluster(PgConfig {
        dups_tracked: 0,
        ..short_log()
    });
    sim.write_full("first", "x");
    // With the lease that this gets the primary answers a read at once.
    sim.read("first").unwrap();
    // When the first write is durable, the read and the write behind it go on, and the log is
    // trimmed.
    for op in [write_full("y"), plain(OpCode::STAT), write_full("z")] {
        let op = sim.build("first", vec![op]);
        sim.submit(op);
    }
    let (mut requests, mut again) = (Vec::new(), Vec::new());
    for i in 0..60 {
        let name = format!("o{i}");
        let op = sim.build(&name, vec![write_full("x")]);
        let reqid = op.reqid;
        requests.push(reqid);
        sim.submit(op);
        while sim.steps().contains(&Step::Answer(OsdId::new(0))) {
            sim.step(Step::Answer(OsdId::new(0)));
        }
        let op = sim.build(&name, vec![write_full("x")]);
        again.extend(sim.submit(ClientOp { reqid, ..op }));
    }
    sim.step(Step::Flush(OsdId::new(0)));
    for member in [1, 2].map(OsdId::new) {
        while sim.steps().contains(&Step::Deliver(OsdId::new(0), member)) {
            sim.step(Step::Deliver(OsdId::new(0), member));
        }
        sim.step(Step::Flush(member));
        // Its answers are lost. When it gets the writes again, it tells of the last one at once.
        sim.cut_link(OsdId::new(0), member);
    }
    assert!(again.iter().all(|tid| sim.reply_to(*tid).is_none()));
    sim.settle();
    let pg = sim.nodes[&OsdId::new(0)]
        .core
        .as_ref()
        .unwrap()
        .pg(PgId::new(POOL, 0))
        .unwrap();
    assert!(pg.seen().log().find(&requests[0]).is_none() && pg.seen().dups().count() == 0);
    for tid in again {
        assert_eq!(sim.reply_to(tid).map(|r| r.result), Some(0), "request {tid}");
    }
}
