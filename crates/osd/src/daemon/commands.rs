//! `ceph tell osd.N …`: commands over a client's connection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use spirula_asok::Failure;
use spirula_msgr::Sender;
use spirula_proto::mon::{MCommand, MCommandReply};
use spirula_proto::{BytesList, Payload, RawMessage};

use super::admin::execute;
use super::state::Shared;
use crate::core::DAEMON_SLOT;
use crate::pg::Token;
use crate::pg::cluster::PoolView;
use crate::pg::errno::*;
use crate::pg::txn::{ObjectOp, Txn};

/// Most that a benchmark writes, and its largest object: it must not fill the disk, or memory.
const BENCH_MAX: u64 = 4 << 30;
const BENCH_OBJECT_MAX: u64 = 32 << 20;

/// A command of a client, which must have all capabilities.
///
/// # Errors
/// Where the message can't be decoded.
pub(super) fn tell(shell: &Shared, conn: u64, sender: Sender, msg: &RawMessage) -> spirula_proto::Result<()> {
    let m: MCommand = msg.decode()?;
    let tid = msg.header.tid;
    let args: Map<String, Value> = match m.cmd.first().map(|c| serde_json::from_str(c)) {
        Some(Ok(Value::Object(args))) => args,
        _ => {
            answer(
                &sender,
                tid,
                Err(Failure {
                    code: -EINVAL,
                    message: "no command".to_owned(),
                }),
                false,
            );
            return Ok(());
        }
    };
    // The official daemon wants full rights, or reading for what only shows; the former covers both.
    let allowed = shell.with(|o| {
        let any = PoolView::default();
        o.sessions
            .get(&conn)
            .is_some_and(|s| s.client.access.allows(&any, b"", b"", true, true, &[]))
    });
    let prefix = args
        .get("prefix")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !allowed && prefix != "get_command_descriptions" {
        answer(
            &sender,
            tid,
            Err(Failure {
                code: -EACCES,
                message: "access denied".to_owned(),
            }),
            false,
        );
        return Ok(());
    }
    let compact =
        prefix == "get_command_descriptions" || args.get("format").and_then(Value::as_str) == Some("json");
    if prefix == "bench" {
        let shell = Rc::clone(shell);
        tokio::task::spawn_local(async move {
            let result = bench(&shell, &args).await;
            answer(&sender, tid, result, compact);
        });
        return Ok(());
    }
    let result = shell.with(|o| execute(o, &prefix, &args));
    answer(&sender, tid, result, compact);
    Ok(())
}

fn answer(sender: &Sender, tid: u64, result: Result<Value, Failure>, compact: bool) {
    let reply = match result {
        Ok(v) => {
            let text = if compact { v.to_string() } else { pretty(&v) };
            MCommandReply {
                output: BytesList::from(Bytes::from(text)),
                ..MCommandReply::default()
            }
        }
        Err(e) => MCommandReply {
            result: e.code,
            status: e.message,
            ..MCommandReply::default()
        },
    };
    sender.send(reply.to_message().with_tid(tid));
}

fn pretty(v: &Value) -> String {
    let mut out = Vec::new();
    let style = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut ser = serde_json::Serializer::with_formatter(&mut out, style);
    // Writing into memory does not fail.
    let _ = serde::Serialize::serialize(v, &mut ser);
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
}

fn number(args: &Map<String, Value>, name: &str, default: u64) -> u64 {
    let v = args.get(name);
    v.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok()))
        .unwrap_or(default)
}

/// Writes objects into the store and removes them.
///
/// # Errors
/// Sizes that the store should not be burdened with.
pub(super) async fn bench(shell: &Shared, args: &Map<String, Value>) -> Result<Value, Failure> {
    let count = number(args, "count", 1 << 30);
    let size = number(args, "size", 4 << 20).max(1);
    if count > BENCH_MAX || size > BENCH_OBJECT_MAX {
        return Err(Failure {
            code: -EINVAL,
            message: "count or size is too large".to_owned(),
        });
    }
    let data = Bytes::from(vec![0x5a; usize::try_from(size).unwrap_or(0)]);
    let started = Instant::now();
    let objects = count.div_ceil(size);
    for i in 0..objects {
        let write = vec![ObjectOp::Write {
            offset: 0,
            data: data.clone(),
        }];
        submit(shell, i, write).await;
    }
    drain(shell).await;
    let elapsed = started.elapsed().as_secs_f64();
    for i in 0..objects {
        submit(shell, i, vec![ObjectOp::Remove]).await;
    }
    let rate = count as f64 / elapsed.max(1e-9);
    Ok(json!({
        "bytes_written": count,
        "blocksize": size,
        "elapsed_sec": elapsed,
        "bytes_per_sec": rate,
        "iops": rate / size as f64,
    }))
}

async fn submit(shell: &Shared, i: u64, ops: Vec<ObjectOp>) {
    while !shell.with(|o| o.io.store.writable() && !o.full.contains(&o.cfg.id)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    shell.with(|o| {
        // Pool 0 never exists: its keys are free.
        let key = Bytes::from([&0u64.to_be_bytes()[..], b"bench", &i.to_be_bytes()].concat());
        let txn = Txn {
            objects: vec![(key, ops)],
            meta: Vec::new(),
        };
        if let Err(e) = o.io.submit(Token::new(DAEMON_SLOT, 0), txn) {
            o.fail(e.into());
        }
    });
    tokio::task::yield_now().await;
}

/// Waits until what was written is in the log.
async fn drain(shell: &Shared) {
    while !shell.with(|o| o.io.is_flushed()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
