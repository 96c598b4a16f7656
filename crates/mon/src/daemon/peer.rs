//! The accepting side of a connection between monitors: answers another monitor's questions.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_cephx::{AuthName, ServerHandshake};
use spirula_denc::UTime;
use spirula_maps::MonMap;
use spirula_msgr::Connection;
use spirula_proto::internal::quorum::{Forwarded, MonPeer, MonPeerReply, MonWelcome, Refusal, TimeTold};
use spirula_proto::{Blob, RawMessage};

use super::hub::{Event, Hub};
use super::shell::Shell;
use super::speech::Speech;
use crate::core::{NewSession, SessionId};
use crate::raft::{Error, Raft};

/// Monitors speak several times a second: one that is silent for this long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// One connection.
struct Peer {
    hub: Rc<Hub>,
    /// The other monitor's name. A holder of the key of `mon.` may claim any name.
    name: String,
    speech: Rc<Speech>,
    number: u64,
    /// The sessions of clients that the other monitor forwards, by its numbers.
    clients: HashMap<u64, SessionId>,
}

/// Serves the connection of the monitor `name`, which has proved itself, until it ends.
pub(super) async fn serve(hub: Rc<Hub>, mut connection: Connection, name: String) {
    if name == hub.name() {
        return tracing::warn!("a monitor greets as mon.{name}, which is this one");
    }
    let mut peer = Peer {
        number: hub.connection(),
        speech: Rc::new(Speech::new(connection.sender().clone())),
        clients: HashMap::new(),
        hub,
        name,
    };
    loop {
        let received = match tokio::time::timeout(SILENCE, connection.recv()).await {
            Ok(received) => received,
            Err(_) => Err(spirula_msgr::Error::Idle),
        };
        match received {
            Ok(msg) => {
                if let Err(e) = peer.handle(msg) {
                    tracing::warn!("from a monitor: {e}");
                    break;
                }
            }
            Err(e) => {
                tracing::debug!("connection from a monitor: {e}");
                break;
            }
        }
    }
    if let Some(shell) = peer.hub.shell() {
        for id in peer.clients.values() {
            shell.forget(*id);
        }
    }
    peer.hub.hung_up(peer.number);
}

impl Peer {
    fn handle(&mut self, msg: RawMessage) -> spirula_proto::Result<()> {
        let tid = msg.header.tid;
        let hub = &self.hub;
        match self.speech.read::<MonPeer>(&msg)? {
            MonPeer::Hello(_) => {
                let Some(nodes) = hub.settled_voters() else {
                    return Ok(());
                };
                let monmap = hub
                    .shell()
                    .map(|s| s.peek(|c| Blob::of::<MonMap>(&c.view.state.monmap.map)))
                    .unwrap_or_default();
                let welcome = MonPeerReply::Welcome(MonWelcome {
                    name: hub.name().to_owned(),
                    node: hub.me().node,
                    monmap,
                    nodes: nodes.into_iter().collect(),
                });
                self.speech.send(&welcome, tid);
            }
            MonPeer::State(state) => hub.hear(self.number, state),
            MonPeer::Join(hello) => hub.wants_to_join(hello),
            MonPeer::Forward(f) => self.forwarded(f),
            MonPeer::Gone(g) => {
                if let (Some(id), Some(shell)) = (self.clients.remove(&g.session), hub.shell()) {
                    shell.close(id);
                }
            }
            MonPeer::NeedIds(w) => {
                if let Some(shell) = hub.shell() {
                    shell.with_core(|c| c.ids_wanted(&w.name, w.nonce));
                }
            }
            MonPeer::Time(_) => {
                let told = MonPeerReply::Time(TimeTold { stamp: UTime::now() });
                self.speech.send(&told, tid);
            }
            request => {
                // A request of the log waits for the disk; the messages behind it do not.
                let (hub, speech) = (hub.clone(), self.speech.clone());
                tokio::task::spawn_local(async move {
                    let reply = log_request(&hub, request).await;
                    speech.send(&reply, tid);
                });
            }
        }
        Ok(())
    }

    fn forwarded(&mut self, f: Forwarded) {
        let Some(shell) = self.hub.shell() else { return };
        if !shell.peek(|c| c.view.quorum.leads()) {
            // The sender will hear that this monitor leads no more, and send it to the new leader.
            return;
        }
        if !shell.peek(|c| c.view.state.monmap.map.mons.contains_key(&self.name)) {
            tracing::warn!(
                "mon.{}, which is not in the monitor map, forwards for clients",
                self.name
            );
            return;
        }
        let id = match self.clients.get(&f.session) {
            Some(id) if shell.knows(*id) => *id,
            _ => {
                let Some(id) = open(shell, &self.speech, &f) else {
                    return;
                };
                self.clients.insert(f.session, id);
                id
            }
        };
        shell.with_core(|c| c.message(id, f.message, UTime::now()));
    }
}

fn open(shell: &Shell, speech: &Rc<Speech>, f: &Forwarded) -> Option<SessionId> {
    let Ok(name) = f.client.name.parse::<AuthName>() else {
        tracing::warn!("forwarded for {}, which is no entity", f.client.name);
        return None;
    };
    let new = NewSession {
        name,
        global_id: f.client.global_id,
        caps: f.client.caps.clone(),
        addr: f.client.addr,
        ip: f.client.ip.parse().ok(),
        features: f.client.features,
        handshake: ServerHandshake::new(),
    };
    Some(shell.open_forwarded(speech.clone(), f.session, new, &f.client.host))
}

/// Carries out a request of the log, if it is for this node.
async fn log_request(hub: &Hub, request: MonPeer) -> MonPeerReply {
    let raft: &Raft = hub.raft();
    let me = raft.id();
    let answer = match request {
        MonPeer::Vote(a) if a.target == me => raft.handle_vote(&a).await.map(MonPeerReply::Vote),
        MonPeer::Append(a) if a.target == me => raft.handle_append(&a).await.map(MonPeerReply::Append),
        MonPeer::Snapshot(p) if p.target == me => raft.handle_snapshot(p).await.map(MonPeerReply::Snapshot),
        _ => Err(Error::Peer(format!("meant for another node than {me}"))),
    };
    answer.unwrap_or_else(|e| {
        let why = e.to_string();
        if !matches!(e, Error::Peer(_)) {
            hub.report(Event::Failed(e.into()));
        }
        MonPeerReply::Refused(Refusal { why })
    })
}
