//! `ceph tell osd.N …`: commands over a client's connection.

use std::rc::Rc;

use bytes::Bytes;
use spirula_asok::{Answer, Failure, Request};
use spirula_errno::*;
use spirula_msgr::Sender;
use spirula_proto::mon::{MCommand, MCommandReply};
use spirula_proto::{BytesList, Payload, RawMessage};

use super::admin::{execute, run_long, takes_long, version};
use super::shell::Shared;
use super::table::COMMANDS;

/// Runs a command of a client, which must have all capabilities.
///
/// # Errors
/// Where the message can't be decoded.
pub(super) fn tell(shell: &Shared, conn: u64, sender: Sender, msg: &RawMessage) -> spirula_proto::Result<()> {
    let m: MCommand = msg.decode()?;
    let tid = msg.header.tid;
    // As in the official daemon, even a command that only shows needs all capabilities: it shows
    // what all clients do.
    let allowed = shell.with(|o| {
        let session = o.clients.sessions.get(&conn);
        session.is_some_and(|s| s.client.access.allows_all())
    });
    let request = match allowed {
        true => Request::parse(m.cmd.concat().as_bytes()),
        false => Err(Failure {
            errno: EACCES,
            message: "access denied".to_owned(),
        }),
    };
    let request = match request {
        Ok(request) => request,
        Err(e) => {
            answer(&sender, tid, Err(e));
            return Ok(());
        }
    };
    if let Some(result) = request.builtin(COMMANDS, &version()) {
        reply(&sender, tid, &request, result);
        return Ok(());
    }
    if takes_long(&request.prefix) {
        let shell = Rc::clone(shell);
        tokio::task::spawn_local(async move {
            let result = run_long(&shell, &request.prefix, &request.args).await;
            reply(&sender, tid, &request, result);
        });
        return Ok(());
    }
    let result = shell.with(|o| execute(o, &request.prefix, &request.args));
    reply(&sender, tid, &request, result);
    Ok(())
}

fn reply(sender: &Sender, tid: u64, request: &Request, result: Result<Answer, Failure>) {
    answer(sender, tid, result.map(|a| (request.render(&a.value), a.status)));
}

/// Sends output and status, or a failure.
fn answer(sender: &Sender, tid: u64, result: Result<(Vec<u8>, String), Failure>) {
    let reply = match result {
        Ok((output, status)) => MCommandReply {
            output: BytesList::from(Bytes::from(output)),
            status,
            ..MCommandReply::default()
        },
        Err(e) => MCommandReply {
            result: -e.errno,
            status: e.message,
            ..MCommandReply::default()
        },
    };
    sender.send(reply.to_message().with_tid(tid));
}
