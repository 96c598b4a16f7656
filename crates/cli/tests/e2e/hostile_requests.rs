//! Requests that no honest client sends, of clients with a key: they fail for that client only.

use std::time::Duration;

use spirula_denc::{EntityName, EntityType, encode_to_vec};
use spirula_maps::{Epoch, HObject, ObjectLocator, ObjectName, PoolId, ReqId, SnapContext};
use spirula_proto::osd::{
    ChecksumArgs, ChecksumType, CopyFromArgs, ListArgs, OpArgs, OpCode, OpFlags, OsdFlags, OsdOpIn,
    WriteSameArgs, XattrArgs,
};
use spirula_proto::osd_op_data::CopySource;

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, bystander, run};
use crate::common::raw_ops::{RawPool, extent, read, write_full};

const EPERM: i32 = -1;
const E2BIG: i32 = -7;
const EEXIST: i32 = -17;
const ENAMETOOLONG: i32 = -36;
const EMSGSIZE: i32 = -90;

const MIB: usize = 1 << 20;

fn plain(code: OpCode, data: Vec<u8>) -> OsdOpIn {
    OsdOpIn::new(code, OpArgs::None, data)
}

fn set_attr(name: &str, value: &[u8]) -> OsdOpIn {
    let args = XattrArgs {
        name_len: u32::try_from(name.len()).unwrap(),
        value_len: u32::try_from(value.len()).unwrap(),
        ..XattrArgs::default()
    };
    OsdOpIn::new(
        OpCode::SETXATTR,
        OpArgs::Xattr(args),
        [name.as_bytes(), value].concat(),
    )
}

fn write_same(offset: u64, length: usize, pattern: Vec<u8>) -> OsdOpIn {
    let args = WriteSameArgs {
        offset,
        length: length as u64,
        data_length: pattern.len() as u64,
    };
    OsdOpIn::new(OpCode::WRITESAME, OpArgs::WriteSame(args), pattern)
}

fn checksum(chunk_size: u32) -> OsdOpIn {
    let args = ChecksumArgs {
        offset: 0,
        length: 0,
        chunk_size,
        kind: ChecksumType::CRC32C,
    };
    let args = match chunk_size {
        0 => args,
        _ => ChecksumArgs {
            length: 64 * MIB as u64,
            ..args
        },
    };
    OsdOpIn::new(OpCode::CHECKSUM, OpArgs::Checksum(args), vec![0; 4])
}

fn copy_from(pool: PoolId, name: &str) -> OsdOpIn {
    let source = CopySource {
        oid: ObjectName::from(name),
        locator: ObjectLocator::pool(pool),
        truncate: None,
    };
    let args = CopyFromArgs {
        snapid: spirula_maps::snap::NOSNAP,
        ..CopyFromArgs::default()
    };
    OsdOpIn::new(OpCode::COPY_FROM, OpArgs::CopyFrom(args), encode_to_vec(&source))
}

/// A cluster with a pool of one PG, in which client.raw may do anything, and pool `r` for everybody
/// else.
fn cluster(name: &str) -> Cluster {
    let c = Cluster::up(name, 3, &[]);
    c.sh(
        "for p in h s; do ceph osd pool create $p 1 1 replicated; ceph osd pool application enable $p test; done; \
         ceph osd pool create r 8 8 replicated; ceph osd pool application enable r test; \
         ceph auth get-or-create client.raw mon 'allow r' osd 'allow rw pool=h' >/dev/null; \
         ceph auth get-or-create client.rbd mon 'allow r' osd 'profile rbd pool=h' >/dev/null; \
         echo secret | rados -p s put treasure -",
    );
    c
}

fn pids(c: &Cluster) -> Vec<u32> {
    (0..3).map(|o| c.pid(&format!("osd.{o}"))).collect()
}

/// No OSD has ended, or taken more than its memory.
fn assert_alive(c: &Cluster, before: &[u32]) {
    assert_eq!(pids(c), before, "an OSD ended");
    for osd in 0..3 {
        let peak = c.peak_rss(&format!("osd.{osd}"));
        assert!(peak < 128 * MIB as u64, "osd.{osd} took {} MiB", peak >> 20);
    }
}

#[test]
fn what_does_not_fit_into_a_transaction_is_an_error_to_its_client() {
    let c = cluster("toolarge");
    let before = pids(&c);
    let other = bystander(&c, "r", 20, Duration::from_secs(1));
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        let mut pool = RawPool::open(&c, &raw, "h").await;
        assert_eq!(pool.result(b"o", vec![write_full(&vec![1; 8 * MIB])]).await, 0);
        // More snapshots than a write may name, and as many as it may, whose records do not fit
        // with a long name.
        let snaps = |pool: &mut RawPool, name: &[u8], count: u64| {
            let mut request = pool.request(name, vec![write_full(b"x")]);
            request.snapc = SnapContext {
                seq: count,
                snaps: (1..=count).rev().collect(),
            };
            request
        };
        let request = snaps(&mut pool, b"o", 200_000);
        assert_eq!(pool.ask(&request).await.result, E2BIG);
        let long = vec![b'n'; 2000];
        assert_eq!(pool.result(&long, vec![write_full(b"y")]).await, 0);
        let request = snaps(&mut pool, &long, 8000);
        assert_eq!(pool.ask(&request).await.result, EMSGSIZE);
        let request = snaps(&mut pool, b"o", 4000);
        assert_eq!(pool.ask(&request).await.result, 0);
        // The key of the object is logged with each attribute.
        let attrs = (0..4000).map(|n| set_attr(&n.to_string(), b"v")).collect();
        assert_eq!(pool.result(&long, attrs).await, EMSGSIZE);
        // Data that a failed write has read is not logged.
        assert_eq!(pool.result(b"big", vec![write_full(&vec![2; 20 * MIB])]).await, 0);
        let mut create = plain(OpCode::CREATE, Vec::new());
        create.op.flags = OpFlags::EXCL;
        let mut request = pool.request(b"big", vec![read(), create]);
        request.flags.insert(OsdFlags::RETURNVEC);
        assert_eq!(pool.ask(&request).await.result, EEXIST);
        // Zero bytes take twice their room in the store's keys.
        let mut request = pool.request(&[0; 2048], vec![write_full(b"z")]);
        request.locator.key = ObjectName::from(&[&[0u8; 2047][..], b"k"].concat()[..]);
        assert_eq!(pool.ask(&request).await.result, ENAMETOOLONG);
        // The object is as it was, and takes more.
        assert_eq!(pool.result(b"o", vec![write_full(b"end")]).await, 0);
        let request = pool.request(b"o", vec![read()]);
        assert_eq!(pool.ask(&request).await.ops[0].data.to_bytes(), "end");
    });
    other.join().unwrap();
    assert_alive(&c, &before);
    c.wait_healthy();
}

#[test]
fn a_request_does_only_so_much_work() {
    let c = cluster("toomuch");
    let before = pids(&c);
    let other = bystander(&c, "r", 30, Duration::from_secs(1));
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        let mut pool = RawPool::open(&c, &raw, "h").await;
        // 1.5 GiB of a pattern of 512 bytes; then 16 MiB of it.
        let many = vec![write_same(0, 64 * MIB, vec![7; 512]); 24];
        assert_eq!(pool.result(b"o", many).await, EMSGSIZE);
        assert_eq!(
            pool.result(b"o", vec![write_same(0, 16 * MIB, vec![7; 512])])
                .await,
            0
        );
        assert_eq!(pool.result(b"o", vec![checksum(1)]).await, E2BIG);
        assert_eq!(pool.result(b"o", vec![checksum(4096)]).await, 0);
        assert_eq!(pool.result(b"o", vec![checksum(0); 1000]).await, E2BIG);
        let stats = vec![plain(OpCode::STAT, Vec::new()); 65_535];
        assert_eq!(pool.result(b"o", stats).await, E2BIG);
        let request = pool.request(b"o", vec![extent(OpCode::READ, 5, 3, Vec::new())]);
        assert_eq!(pool.ask(&request).await.ops[0].data.to_bytes(), vec![7u8; 3]);
    });
    other.join().unwrap();
    assert_alive(&c, &before);
    c.wait_healthy();
}

#[test]
fn nobody_acts_or_reads_for_others() {
    let c = cluster("forothers");
    run(async {
        // A request that names another's id does not take its place.
        let (raw, victim) = (
            RawClient::login(&c, "client.raw").await,
            RawClient::login(&c, "client.raw").await,
        );
        let (mut evil, mut pool) = (
            RawPool::open(&c, &raw, "h").await,
            RawPool::open(&c, &victim, "h").await,
        );
        let honest = pool.request(b"honest", vec![write_full(b"kept")]);
        let mut forged = evil.request(b"forged", vec![write_full(b"x")]);
        let gid = victim.monitors.global_id().cast_signed();
        forged.explicit_reqid = ReqId {
            name: EntityName::new(EntityType::CLIENT, gid),
            tid: honest.tid,
            inc: 0,
        };
        assert_eq!(evil.ask(&forged).await.result, 0);
        assert_eq!(pool.ask(&honest).await.result, 0);
        let request = pool.request(b"honest", vec![read()]);
        assert_eq!(pool.ask(&request).await.ops[0].data.to_bytes(), "kept");

        // The source of a copy must be readable for the client that asks for the copy.
        let secret = c.sh("ceph osd map s x -f json");
        let secret: serde_json::Value = serde_json::from_str(&secret).unwrap();
        let secret = PoolId::try_from(secret["pool_id"].as_i64().unwrap()).unwrap();
        assert_eq!(
            evil.result(b"loot", vec![copy_from(secret, "treasure")]).await,
            EPERM
        );
        c.sh("echo mine | rados -p h put source -");
        let own = evil.request(b"", Vec::new()).spg.pgid.pool;
        assert_eq!(evil.result(b"copy", vec![copy_from(own, "source")]).await, 0);

        // A listing is about all names, whatever locator key it names.
        let tenant = RawClient::login(&c, "client.rbd").await;
        let mut spy = RawPool::open(&c, &tenant, "s").await;
        let list = ListArgs {
            count: 100,
            start_epoch: Epoch::NONE,
        };
        let input = encode_to_vec(&HObject::min());
        for code in [OpCode::PGNLS, OpCode::PGLS] {
            let mut request = spy.request(
                b"",
                vec![OsdOpIn::new(code, OpArgs::List(list.clone()), input.clone())],
            );
            request.locator.key = ObjectName::from("rbd_info");
            assert_eq!(spy.ask(&request).await.result, EPERM);
        }
        let mut own = RawPool::open(&c, &tenant, "h").await;
        let request = own.request(b"", vec![OsdOpIn::new(OpCode::PGNLS, OpArgs::List(list), input)]);
        assert_eq!(own.ask(&request).await.result, 1);
    });
    c.wait_healthy();
}
