//! Requests with extreme data: each is answered, and none leads to a transaction or message that a
//! store or a peer refuses.

use spirula_errno::*;
use spirula_proto::osd::{ChecksumArgs, ChecksumType, OpFlags, WriteSameArgs, XattrArgs};

use super::*;
use crate::pg::account::Held;
use crate::pg::txn::{MetaOp, Txn, log_bytes};

/// The store's limit, an eighth of its log without a block.
const MAX_RECORD: usize = (8 << 20) - 4096;

/// Asserts that the store accepts a transaction. It logs the omap pairs copied by a clone besides.
pub(super) fn assert_fits(txn: &Txn) {
    let meta = txn.meta.iter().map(|op| match op {
        MetaOp::Put(k, v) => k.len() + v.len() + 64,
        MetaOp::Delete(k) => k.len() + 64,
        MetaOp::DeleteRange(from, to) => from.len() + to.len() + 64,
    });
    let bytes = log_bytes(&txn.objects) + meta.sum::<usize>() + 2 * PgConfig::default().max_clone_logged;
    assert!(bytes <= MAX_RECORD, "a transaction of {bytes} bytes");
    let longest = txn.objects.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
    assert!(
        longest <= spirula_store::ObjectKey::MAX_LEN,
        "a key of {longest} bytes"
    );
}

/// Asserts that the messenger accepts a message.
pub(super) fn assert_passes(msg: &RawMessage) {
    assert!(msg.front.len() <= 16 << 20 && msg.data.len() <= 128 << 20);
}

fn set_attr(name: Vec<u8>, value: usize) -> OsdOpIn {
    let args = XattrArgs {
        name_len: name.len() as u32,
        value_len: value as u32,
        ..XattrArgs::default()
    };
    let data = [name, vec![5; value]].concat();
    OsdOpIn::new(OpCode::SETXATTR, OpArgs::Xattr(args), data)
}

fn write_same(length: u64, pattern: usize) -> OsdOpIn {
    let args = WriteSameArgs {
        offset: 0,
        length,
        data_length: pattern as u64,
    };
    OsdOpIn::new(OpCode::WRITESAME, OpArgs::WriteSame(args), vec![7; pattern])
}

fn checksum(length: u64, chunk_size: u32) -> OsdOpIn {
    let args = ChecksumArgs {
        offset: 0,
        length,
        chunk_size,
        kind: ChecksumType::CRC32C,
    };
    OsdOpIn::new(OpCode::CHECKSUM, OpArgs::Checksum(args), vec![0; 4])
}

fn pairs(n: usize, key: usize, value: usize) -> OsdOpIn {
    let pair = |i: usize| {
        let mut k = i.to_be_bytes().to_vec();
        k.resize(key.max(8), 1);
        (Bytes::from(k), Bytes::from(vec![2; value]))
    };
    let pairs: Vec<(Bytes, Bytes)> = (0..n).map(pair).collect();
    OsdOpIn::new(
        OpCode::OMAPSETVALS,
        OpArgs::None,
        spirula_denc::encode_to_vec(&pairs),
    )
}

impl Sim {
    /// A size, mostly small, at times near `most`.
    fn size(&mut self, most: usize) -> usize {
        let bits = self.random(most.ilog2() as usize + 1);
        self.random(1 << bits) + 1
    }

    fn hostile_op(&mut self) -> Vec<OsdOpIn> {
        let many = self.size(2000);
        match self.random(10) {
            0 => (0..many)
                .map(|n| set_attr(n.to_string().into_bytes(), n % 7))
                .collect(),
            1 => vec![set_attr(vec![b'a'; self.size(200)], self.size(4 << 20))],
            2 => vec![pairs(self.size(50_000), self.size(1000), self.size(2000))],
            3 => vec![pairs(1, self.size(4 << 20), self.size(4 << 20))],
            4 => (0..self.size(4)).map(|_| write_same(64 << 20, 512)).collect(),
            5 => vec![extent(OpCode::READ, 0, 0, ""); many],
            6 => {
                let mut create = plain(OpCode::CREATE);
                create.op.flags = OpFlags::EXCL;
                vec![extent(OpCode::READ, 0, 0, ""), plain(OpCode::GETXATTRS), create]
            }
            7 => vec![
                checksum(0, 0),
                checksum(1 << 20, 1),
                extent(OpCode::TRUNCATE, self.size(1 << 20) as u64, 0, ""),
            ],
            8 => (0..many)
                .map(|n| extent(OpCode::ZERO, n as u64 * 8192, 4096, ""))
                .collect(),
            _ => (0..many).map(|n| write_at(n as u64 * 5000, "x")).collect(),
        }
    }
}

#[test]
pub(super) fn extreme_requests_are_answered_and_harm_nothing() {
    for seed in 0..3 {
        let mut sim = Sim::new(3, 3, 1, 900 + seed);
        sim.settle();
        sim.write_full("honest", "kept");
        let mut seq = 0;
        for _ in 0..20 {
            let name = match sim.random(4) {
                0 => "n".repeat(2048),
                1 => "\0".repeat(2000),
                _ => "o".to_owned(),
            };
            let ops = sim.hostile_op();
            let mut op = sim.build(&name, ops);
            if sim.random(3) == 0 {
                let count = sim.size(20_000) as u64;
                seq += count;
                op.snapc = SnapContext {
                    seq,
                    snaps: (seq - count..=seq).rev().filter(|s| *s > 0).collect(),
                };
            }
            if sim.random(2) == 0 {
                op.flags.insert(OsdFlags::RETURNVEC);
            }
            // `call_op` fails where there is no answer.
            sim.call_op(op);
        }
        assert_eq!(sim.read("honest").unwrap(), "kept");
        assert!(sim.all_clean());
    }
}

#[test]
pub(super) fn what_is_too_much_is_refused_with_its_errno() {
    let mut sim = Sim::new(3, 3, 1, 1);
    sim.settle();
    sim.call("o", vec![write_same(8 << 20, 4096)]);
    let result = |sim: &mut Sim, ops| sim.call("o", ops).result;
    assert_eq!(result(&mut sim, vec![plain(OpCode::STAT); 20_000]), -E2BIG);
    assert_eq!(result(&mut sim, vec![checksum(8 << 20, 1)]), -E2BIG);
    assert_eq!(result(&mut sim, vec![checksum(8 << 20, 512)]), 0);
    assert_eq!(result(&mut sim, vec![write_same(64 << 20, 512); 2]), -EMSGSIZE);
    assert_eq!(
        result(&mut sim, vec![extent(OpCode::READ, 0, 0, ""); 100]),
        -ENOMEM
    );
    let empty = (0..4097).map(|n| set_attr(n.to_string().into_bytes(), 0));
    assert_eq!(result(&mut sim, empty.collect()), -EFBIG);
    let mut op = sim.build("o", vec![write_full("x")]);
    op.snapc = SnapContext {
        seq: 9000,
        snaps: (1..=9000).rev().collect(),
    };
    assert_eq!(sim.call_op(op).result, -E2BIG);
    let mut op = sim.build("o", vec![plain(OpCode::CREATE); 1025]);
    op.flags.insert(OsdFlags::RETURNVEC);
    assert_eq!(sim.call_op(op).result, -E2BIG);
    assert_eq!(result(&mut sim, vec![write_full("end")]), 0);
}

#[test]
pub(super) fn repeated_patterns_are_written_whole() {
    let mut sim = Sim::new(3, 3, 1, 1);
    sim.settle();
    let (length, pattern) = (3_000_003, 3);
    let mut op = write_same(length, pattern);
    op.data = "abc".into();
    assert_eq!(sim.call("o", vec![op]).result, 0);
    let data = sim.read("o").unwrap();
    assert_eq!(data.len() as u64, length);
    assert!(data.chunks(3).all(|c| c == b"abc"));
}

#[test]
pub(super) fn requests_for_a_map_that_does_not_come_wait_only_so_long_and_for_their_sender() {
    let mut sim = Sim::new(3, 3, 1, 1);
    sim.settle();
    let held = Arc::new(Held::default());
    let ahead = |sim: &mut Sim, conn: u64| {
        let mut op = sim.build("o", vec![write_full("x")]);
        op.epoch = op.epoch.after(1000);
        op.client = Arc::new(Client::new(
            conn,
            op.client.name,
            op.client.addr,
            Arc::new(AllowAll),
        ));
        op.stamps.received = sim.usec;
        op.taken.hold = Some(held.take(100, 10));
        sim.submit(op)
    };
    ahead(&mut sim, 7);
    ahead(&mut sim, 8);
    sim.run_some(1000);
    assert_eq!((held.requests(), held.bytes(), held.payload()), (2, 200, 20));
    OsdId::below(3).for_each(|id| sim.with(id, |core, cx| core.handle_client_closed(7, cx)));
    assert_eq!(held.requests(), 1);
    sim.pass(20);
    assert_eq!((held.requests(), sim.hung_up.clone()), (0, vec![8]));
}
