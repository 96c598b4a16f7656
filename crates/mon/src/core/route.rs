//! Requests on their way to the leader.
//!
//! A monitor answers from its own state if the answer may be a little old: maps to subscribers,
//! tickets. Everything else goes to the leader, which first makes sure that it still leads. A
//! request that has an answer is kept until the answer comes, and sent again when there is another
//! leader; as in Ceph it may then be carried out twice.

use std::collections::BTreeMap;

use spirula_cephx::AuthName;
use spirula_denc::{Micros, UTime};
use spirula_invariant::{dropped, invariant};
use spirula_proto::internal::quorum::ForwardedClient;
use spirula_proto::mon::MMonGetVersionReply;
use spirula_proto::{MsgType, RawMessage};

use super::message::Received;
use super::ops::{FORWARDED, describe};
use super::quorum::Role;
use super::recent::What;
use super::session::{NewSession, Session};
use super::{Changes, DropReason, Monitor, Output, SessionId};

/// The most bytes of requests without an answer; an entity may have as many as it leaves free for
/// others. A client that sends more is hung up on: its requests go elsewhere.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// The bytes that a request counts for besides its own.
const REQUEST_BYTES: usize = 512;
/// Most requests of one client without an answer.
const MAX_PENDING: usize = 4096;

/// Names an answer: its kind and its number.
pub(super) type Answer = (MsgType, u64);

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) msg: RawMessage,
    /// The request in words.
    pub(super) description: String,
    /// The events of the request with their official names, and their times by the steady
    /// clock.
    pub(super) events: Vec<(&'static str, Micros)>,
}

impl Request {
    fn new(msg: &RawMessage, received: &Received, now: Micros) -> Self {
        Self {
            msg: msg.clone(),
            description: describe(msg.kind(), received),
            events: vec![("initiated", now)],
        }
    }

    fn cost(&self) -> usize {
        self.msg.len() + self.description.len() + REQUEST_BYTES
    }
}

/// The requests of a session.
#[derive(Default)]
struct OfSession {
    entity: AuthName,
    requests: BTreeMap<Answer, Request>,
}

/// Requests of this monitor's clients that have no answer yet.
#[derive(Default)]
pub(super) struct Pending {
    sessions: BTreeMap<SessionId, OfSession>,
    bytes: usize,
    by_entity: BTreeMap<AuthName, usize>,
}

impl Pending {
    /// Keeps a request; returns `false` if there is no room.
    fn add(&mut self, (session, entity): (SessionId, &AuthName), answer: Answer, request: Request) -> bool {
        let has = self.by_entity.get(entity).copied().unwrap_or(0);
        let free = MAX_PENDING_BYTES.saturating_sub(self.bytes);
        let count = self.sessions.get(&session).map_or(0, |s| s.requests.len());
        if count >= MAX_PENDING || has + request.cost() > free {
            return false;
        }
        self.bytes += request.cost();
        *self.by_entity.entry(entity.clone()).or_default() += request.cost();
        let of_session = self.sessions.entry(session).or_insert_with(|| OfSession {
            entity: entity.clone(),
            ..OfSession::default()
        });
        if let Some(old) = of_session.requests.insert(answer, request) {
            self.give_back(entity, old.cost());
        }
        invariant!(self.bytes <= MAX_PENDING_BYTES, "requests within their bound"; entity = entity, bytes = self.bytes);
        true
    }

    fn give_back(&mut self, entity: &AuthName, bytes: usize) {
        let of_entity = self.by_entity.get(entity).copied().unwrap_or(0);
        invariant!(self.bytes >= of_entity && of_entity >= bytes, "counted requests";
            entity = entity, bytes = bytes, counted = of_entity, all = self.bytes);
        self.bytes -= bytes;
        if let Some(has) = self.by_entity.get_mut(entity) {
            *has -= bytes;
            if *has == 0 {
                self.by_entity.remove(entity);
            }
        }
    }

    /// Notes an event of a request, if it is one of these.
    pub(super) fn mark(
        &mut self,
        session: SessionId,
        answer: Option<Answer>,
        event: &'static str,
        now: Micros,
    ) {
        let of_session = self.sessions.get_mut(&session);
        if let Some(request) = of_session.and_then(|s| s.requests.get_mut(&answer?)) {
            request.events.push((event, now));
        }
    }

    /// Removes the request that a message answers, if there is one, and returns it.
    pub(super) fn answered(&mut self, session: SessionId, msg: &RawMessage) -> Option<Request> {
        let of_session = self.sessions.get_mut(&session)?;
        let request = of_session.requests.remove(&answer_of(msg)?)?;
        let entity = of_session.entity.clone();
        if of_session.requests.is_empty() {
            self.sessions.remove(&session);
        }
        self.give_back(&entity, request.cost());
        Some(request)
    }

    /// All pending requests.
    pub(super) fn requests(&self) -> impl Iterator<Item = (SessionId, &Request)> {
        let all = self.sessions.iter();
        all.flat_map(|(id, s)| s.requests.values().map(move |r| (*id, r)))
    }

    /// Forgets the requests of a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        let gone = self.sessions.remove(&session).unwrap_or_default();
        let bytes = gone.requests.values().map(Request::cost).sum();
        self.give_back(&gone.entity, bytes);
    }

    fn all(&self) -> Vec<(SessionId, RawMessage)> {
        self.requests().map(|(id, r)| (id, r.msg.clone())).collect()
    }
}

/// The request that a message answers, by the name of the answer.
fn answer_of(msg: &RawMessage) -> Option<Answer> {
    match msg.kind() {
        MsgType::MON_COMMAND_ACK
        | MsgType::POOL_OP_REPLY
        | MsgType::STATFS_REPLY
        | MsgType::GET_POOL_STATS_REPLY => Some((msg.kind(), msg.header.tid)),
        MsgType::MON_GET_VERSION_REPLY => {
            let handle = msg.decode::<MMonGetVersionReply>().ok()?.handle;
            Some((msg.kind(), handle))
        }
        _ => None,
    }
}

/// Requests that wait until it is certain that this monitor still leads.
#[derive(Default)]
pub(super) struct Unconfirmed {
    /// Requests that came before the confirmation under way was asked for.
    asked: Vec<(SessionId, Received)>,
    /// Requests that have to wait for the next confirmation.
    next: Vec<(SessionId, Received)>,
    under_way: bool,
}

impl Monitor {
    /// Routes a message.
    pub(super) fn route(&mut self, id: SessionId, msg: RawMessage) -> spirula_proto::Result<()> {
        let Some(session) = self.view.sessions.get_mut(&id) else {
            dropped!(self.dropped, DropReason::SessionGone; session = id);
            return Ok(());
        };
        let received = Received::read(&msg, &mut session.osd_speaks)?;
        if !received.is_for_leader() {
            self.dispatch(id, received);
            return Ok(());
        }
        let own = self.view.sessions.get(&id).filter(|s| !s.forwarded);
        if let Some(session) = own
            && let Some(answer) = received.answer()
            && let request = Request::new(&msg, &received, self.view.steady_time())
            && !self.pending.add((id, &session.name), answer, request)
        {
            tracing::warn!("session {id} has more requests without an answer than are kept");
            self.out.push(Output::Close(id));
            return Ok(());
        }
        self.hand_to_leader(id, msg, received);
        Ok(())
    }

    fn hand_to_leader(&mut self, id: SessionId, msg: RawMessage, received: Received) {
        match self.view.quorum.role {
            Role::Leader if self.view.quorum.alone || !received.is_for_confirmed_leader() => {
                self.dispatch(id, received)
            }
            Role::Leader => {
                self.unconfirmed.next.push((id, received));
                self.ask_to_confirm();
            }
            // Its own monitor sends it where it has to go.
            _ if self.view.sessions.get(&id).is_some_and(|s| s.forwarded) => {
                dropped!(self.dropped, DropReason::NotLeader; session = id)
            }
            Role::Peon => {
                let now = self.view.steady_time();
                self.pending.mark(id, received.answer(), FORWARDED, now);
                self.out.push(Output::Forward(id, msg));
            }
            // Requests that have an answer are kept; reports come again.
            Role::Adrift if received.answer().is_some() => {}
            Role::Adrift => dropped!(self.dropped, DropReason::NotLeader; session = id),
        }
    }

    fn ask_to_confirm(&mut self) {
        if !self.unconfirmed.under_way && !self.unconfirmed.next.is_empty() {
            let lost = self.unconfirmed.asked.len();
            invariant!(lost == 0, "one question at a time whether this monitor leads"; requests = lost);
            self.unconfirmed.under_way = true;
            self.unconfirmed.asked = std::mem::take(&mut self.unconfirmed.next);
            self.out.push(Output::Confirm);
        }
    }

    /// Notes that this monitor led when [`Output::Confirm`] was carried out, in this term, and has
    /// applied everything since.
    pub fn confirmed(&mut self, term: u64, now: UTime) {
        self.view.see_time(now);
        if term != self.view.term || !self.view.quorum.leads() {
            return dropped!(self.dropped, DropReason::AnswerLate; term = term);
        }
        self.unconfirmed.under_way = false;
        self.recent.note(What::Confirmed(1), &self.view);
        for (id, received) in std::mem::take(&mut self.unconfirmed.asked) {
            if self.view.sessions.contains_key(&id) {
                self.dispatch(id, received);
            } else {
                dropped!(self.dropped, DropReason::SessionGone; session = id);
            }
        }
        self.ask_to_confirm();
        self.pump();
    }

    /// Drops the changes and questions under way: another monitor may lead. Nobody waits in vain:
    /// requests are still pending, and go to the next leader; the sessions of OSDs, with the
    /// manager and of other monitors' clients end, and these ask again.
    pub(super) fn drop_writes(&mut self) {
        self.changes = Changes::default();
        self.writes = super::write::Writes::default();
        self.queue.clear();
        self.unconfirmed = Unconfirmed::default();
        self.view.state.clog.drop_pending();
    }

    /// Sends every request without an answer to the leader, again.
    pub(super) fn resend(&mut self) {
        for (id, msg) in self.pending.all() {
            let Some(session) = self.view.sessions.get_mut(&id) else {
                dropped!(self.dropped, DropReason::SessionGone; session = id);
                continue;
            };
            match Received::read(&msg, &mut session.osd_speaks) {
                Ok(received) => self.hand_to_leader(id, msg, received),
                // It was read when it came.
                Err(e) => {
                    tracing::error!("session {id}: {e}");
                    self.out.push(Output::Close(id));
                }
            }
        }
    }

    /// Delivers the leader's message to one of our clients.
    pub fn routed(&mut self, id: SessionId, msg: RawMessage, now: UTime) {
        self.view.see_time(now);
        if self.view.sessions.get(&id).is_some_and(|s| !s.forwarded) {
            self.send(id, msg);
        } else {
            dropped!(self.dropped, DropReason::SessionGone; session = id);
        }
    }

    /// Opens a session for a client of another monitor.
    pub fn open_forwarded(&mut self, id: SessionId, new: NewSession, host: &str, now: UTime) {
        self.open(id, new, now);
        if let Some(s) = self.view.sessions.get_mut(&id) {
            s.forwarded = true;
            host.clone_into(&mut s.host);
        }
    }

    /// Forgets a client whose monitor is gone; the client itself may not be.
    pub fn forget(&mut self, id: SessionId) {
        self.view.sessions.remove(&id);
    }

    /// The information that the leader needs on a client whose message is forwarded.
    pub fn client(&self, id: SessionId) -> Option<ForwardedClient> {
        let s: &Session = self.view.sessions.get(&id)?;
        Some(ForwardedClient {
            name: s.name.to_string(),
            global_id: s.global_id,
            caps: s.caps_text.clone(),
            addr: s.addr,
            ip: s.ip.map(|ip| ip.to_string()).unwrap_or_default(),
            features: s.features,
            host: s.host.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spirula_proto::mon::MMonCommand;
    use spirula_proto::{BytesList, Payload};

    use super::*;

    fn command(tid: u64) -> (Answer, RawMessage) {
        let mut input = BytesList::default();
        input.push(Bytes::from_static(&[0; 1 << 20]));
        let mut msg = MMonCommand {
            input,
            ..MMonCommand::default()
        }
        .to_message();
        msg.header.tid = tid;
        ((MsgType::MON_COMMAND_ACK, tid), msg)
    }

    #[test]
    fn an_entity_with_many_requests_leaves_room_for_others() {
        let mut pending = Pending::default();
        let [greedy, other]: [AuthName; 2] = ["client.greedy", "client.other"].map(|n| n.parse().unwrap());
        let mut add = |session: u64, entity: &AuthName| {
            (0..100)
                .take_while(|tid| {
                    let (answer, msg) = command(*tid);
                    let request = Request {
                        msg,
                        description: String::new(),
                        events: Vec::new(),
                    };
                    pending.add((session, entity), answer, request)
                })
                .count()
        };
        // However many sessions it opens.
        assert_eq!((add(1, &greedy), add(2, &greedy)), (32, 0));
        assert_eq!(add(3, &other), 16);
        pending.forget(1);
        pending.forget(3);
        assert_eq!((pending.bytes, pending.by_entity.len()), (0, 0));
    }
}
