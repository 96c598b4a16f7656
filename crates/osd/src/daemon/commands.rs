//! `ceph tell osd.N …`: commands over a client's connection.

use std::rc::Rc;

use bytes::Bytes;
use serde_json::{Map, Value};
use spirula_asok::Failure;
use spirula_msgr::Sender;
use spirula_proto::mon::{MCommand, MCommandReply};
use spirula_proto::{BytesList, Payload, RawMessage};

use super::admin::execute;
use super::shell::Shared;
use crate::pg::errno::*;

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
    // As the official daemon, even for what only shows: it shows what all clients do.
    let allowed = shell.with(|o| {
        o.sessions
            .get(&conn)
            .is_some_and(|s| s.client.access.allows_all())
    });
    let prefix = args
        .get("prefix")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !allowed {
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
            let result = super::bench::run(&shell, &args).await;
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
            let text = match &v {
                Value::String(_) => spirula_asok::pretty(&v),
                v if compact => v.to_string().into_bytes(),
                v => spirula_asok::pretty(v),
            };
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
