//! The manager's modules that need a RADOS client (crate `manager`): when they run, and the
//! questions to them.
//!
//! They run on the monitor that leads. Before they begin, one transaction puts the address of their
//! client into the manager map, and the client of the former manager on the OSDMap's blocklist. So
//! two managers never work at the same time, and however this one ends, the next knows which client
//! to put on the blocklist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_cephx::{AuthName, CryptoKey, Env};
use spirula_denc::{AddrType, EntityAddr, EntityAddrVec, UTime};
use spirula_invariant::{dropped, invariant};
use spirula_manager::{News, Question, Reply as Answer, Request};
use spirula_maps::Epoch;
use spirula_proto::RawMessage;
use spirula_proto::mon::LogPriority;

use super::rights::one_line;
use super::{DropReason, Monitor, Output, SessionId, Turn, View};
use crate::command::{self, Reply};

/// The most questions that wait for an answer.
const MAX_QUESTIONS: usize = 256;
/// Modules that end this many times in a row are reported as failed.
const FAILED: u32 = 3;
/// The pause before they start for the third time; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
/// The least time that counts as silence, in seconds.
const SHORTEST_SILENCE: f64 = 1.0;
/// The longest pause: each start puts the clients of the one before on the blocklist for a day.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// Modules that have worked for this long start at once when they end.
const STEADY: Duration = Duration::from_secs(600);
/// How long the client of a former manager is on the blocklist (`mon_mgr_blocklist_interval`).
const SHUT_OUT_FOR: Duration = Duration::from_secs(86_400);

/// The parameters with which the modules are started.
#[derive(Debug)]
pub struct ModuleStart {
    /// The entity of their own client; the clients for work are made on demand ([`News::Open`]).
    pub name: AuthName,
    /// Its key, which nobody else knows.
    pub key: CryptoKey,
    /// The addresses of all their clients, that one's first.
    pub addresses: Vec<EntityAddr>,
    /// The OSDMap in which the former manager's client is on the blocklist.
    pub osdmap_epoch: Epoch,
}

/// The state of the modules.
#[derive(Debug, Default)]
enum Life {
    #[default]
    Off,
    /// The map that names their clients is being committed, with this global id.
    Claimed {
        gid: u64,
        addresses: Vec<EntityAddr>,
    },
    Running,
}

/// How often the modules have ended unasked.
#[derive(Debug, Default)]
struct Deaths {
    /// How often in a row.
    count: u32,
    /// The reason of the last time.
    why: String,
    /// When the modules were last started, and when they may be again, by the steady clock.
    started: Duration,
    not_before: Duration,
}

impl Deaths {
    /// Notes that the modules have ended.
    fn mourn(&mut self, why: String, now: Duration) {
        if self.are_past(now) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.why = why;
        let doubled = self
            .count
            .checked_sub(2)
            .map(|n| 1_u32.checked_shl(n).unwrap_or(u32::MAX));
        let pause = doubled.map_or(Duration::ZERO, |n| PAUSE.saturating_mul(n));
        self.not_before = now + pause.min(MAX_PAUSE);
    }

    /// Whether the modules have worked for long enough since their last start.
    fn are_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.started) >= STEADY
    }
}

type Compose = Box<dyn FnOnce(&View, Reply) -> RawMessage>;

/// The session that waits for an answer.
struct Asker {
    session: SessionId,
    compose: Compose,
}

/// The modules, as the core sees them.
#[derive(Default)]
pub(crate) struct Module {
    life: Life,
    deaths: Deaths,
    askers: BTreeMap<u64, Asker>,
    asked: u64,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("life", &self.life)
            .field("deaths", &self.deaths)
            .field("askers", &self.askers.len())
            .finish_non_exhaustive()
    }
}

impl Module {
    /// Whether the manager map has to be made anew for the modules.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.life, Life::Off)
    }

    /// Whether the modules may start by now.
    pub(super) fn may_start(&self, now: Duration) -> bool {
        now >= self.deaths.not_before
    }

    /// Whether the modules are running.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.life, Life::Running)
    }

    /// Why the modules have failed, if they end again and again.
    pub(crate) fn failure(&self, now: Duration) -> Option<&str> {
        let works = matches!(self.life, Life::Running) && self.deaths.are_past(now);
        (self.deaths.count >= FAILED && !works).then_some(&self.deaths.why)
    }

    /// Notes that a manager map which names the modules' clients is being committed.
    pub(super) fn claim(&mut self, gid: u64, addresses: Vec<EntityAddr>) {
        invariant!(self.is_off() && self.askers.is_empty(), "modules that are off"; gid = gid);
        self.life = Life::Claimed { gid, addresses };
    }

    /// The session that waits for the answer to a question.
    pub(super) fn asker(&self, question: u64) -> Option<SessionId> {
        self.askers.get(&question).map(|a| a.session)
    }
}

fn reply_of(answer: Answer) -> Reply {
    let mut reply = Reply::text(answer.output).with_status(answer.status);
    reply.code = answer.code;
    reply
}

impl View {
    /// New addresses for the modules' clients, at the manager's.
    pub(super) fn new_client_addresses(&self) -> Option<Vec<EntityAddr>> {
        let mut at = self.me.mgr_addrs.0.first()?.socket?;
        at.set_port(0);
        let mut nonces = BTreeSet::new();
        while nonces.len() < spirula_manager::ADDRESSES {
            let random = Env::system(self.now).random_u64().ok()?;
            nonces.insert(u32::try_from(random >> 32).unwrap_or_default().max(1));
        }
        Some(
            nonces
                .into_iter()
                .map(|nonce| EntityAddr::v2(at, nonce))
                .collect(),
        )
    }
}

impl Turn<'_> {
    /// Puts the clients of the manager in the map on the blocklist. Returns the epoch in which they
    /// are there.
    pub(super) fn shut_manager_out(&mut self) -> Epoch {
        let clients: Vec<EntityAddrVec> = self.view.state.manager.map.client_addrs.clone();
        let until = self.view.now.plus(SHUT_OUT_FOR);
        let addrs = clients.iter().flat_map(|c| &c.0);
        let addrs: Vec<EntityAddr> = addrs.map(|a| a.with_kind(AddrType::ANY)).collect();
        if addrs.is_empty() {
            return self.view.state.osd.map.epoch;
        }
        let inc = self.pending_osd();
        inc.new_blocklist.extend(addrs.into_iter().map(|a| (a, until)));
        inc.epoch
    }
}

impl Monitor {
    /// Starts the modules, once the map that names their client is committed.
    pub(super) fn start_module(&mut self) {
        let Life::Claimed { gid, addresses } = &self.view.state.manager.module.life else {
            return; // They run.
        };
        let map = &self.view.state.manager.map;
        if map.active_gid != *gid || self.view.state.osd.map.epoch < map.last_failure_osd_epoch {
            self.view.state.manager.module.life = Life::Off;
            return; // Somebody has made another map meanwhile.
        }
        let (addresses, osdmap_epoch) = (addresses.clone(), map.last_failure_osd_epoch);
        match self.view.admit_manager() {
            Ok((name, key)) => {
                self.view.state.manager.module.life = Life::Running;
                self.view.state.manager.module.deaths.started = self.view.steady.now();
                self.out.push(Output::StartModule(Box::new(ModuleStart {
                    name,
                    key,
                    addresses,
                    osdmap_epoch,
                })));
            }
            Err(e) => tracing::error!("the manager's key: {e}"),
        }
    }

    /// Ends the modules. Sessions that wait for an answer ask the next manager.
    pub(crate) fn stop_module(&mut self) {
        self.view.state.auth.dismiss_all();
        self.view.state.manager.origins.clear();
        let module = std::mem::take(&mut self.view.state.manager.module);
        if module.is_running() {
            self.out.push(Output::StopModule);
        }
        // Numbers of questions go on: an answer that is on its way is nobody else's.
        self.view.state.manager.module.asked = module.asked;
        self.view.state.manager.module.deaths = module.deaths;
    }

    /// How long the modules may say nothing.
    pub(crate) fn module_silence(&self) -> Duration {
        let secs = self.view.values.float("spirula_manager_silence");
        Duration::from_secs_f64(if secs >= SHORTEST_SILENCE {
            secs.min(1e6)
        } else {
            SHORTEST_SILENCE
        })
    }

    /// Asks the modules; `compose` makes the answer from theirs.
    pub(crate) fn ask_module(&mut self, session: SessionId, question: Question, compose: Compose) {
        let module = &mut self.view.state.manager.module;
        if !module.is_running() || module.askers.len() >= MAX_QUESTIONS {
            let msg = compose(&self.view, reply_of(spirula_manager::not_ready()));
            return self.send(session, msg);
        }
        module.asked += 1;
        let id = module.asked;
        let before = module.askers.insert(id, Asker { session, compose });
        invariant!(before.is_none(), "a question with a number of its own"; question = id, session = session);
        self.out
            .push(Output::AskModule(Request::Ask(id, Box::new(question))));
    }

    /// Handles news of the modules.
    pub fn module_news(&mut self, news: News, now: UTime) {
        self.view.see_time(now);
        if !self.view.state.manager.module.is_running() {
            return dropped!(self.dropped, DropReason::AnswerLate);
        }
        match news {
            News::Alive => {}
            News::Reply(id, answer) => match self.view.state.manager.module.askers.remove(&id) {
                Some(asker) => self.answer_asker(asker, answer),
                None => dropped!(self.dropped, DropReason::AnswerLate; question = id),
            },
            News::Named(wanted, names) => self.view.image_io.named(&wanted, &names),
            News::Task(news) => self.view.task_progress(news),
            News::Open { client, place, basis } => {
                let login = self.view.client_for(client, &place, &basis);
                self.out.push(Output::AskModule(Request::Login { client, login }));
            }
            News::Closed(client) => self.view.close_client(client),
            News::Note { question, origin } => self.note_origin(question, origin),
            News::Forget(key) => self.turn(|turn| turn.forget_origin(&key)),
            News::Tasks(keys) => self.turn(|turn| turn.keep_tasks(&keys)),
            News::Suspect(what) => self.view.suspect(&what),
            News::Ended(why) => {
                // The reason that a process gives for its end may be any text.
                let why = one_line(&why);
                self.view.log_event(
                    LogPriority::WARN,
                    format!("the manager's modules ended and start again: {why}"),
                );
                for (_, asker) in std::mem::take(&mut self.view.state.manager.module.askers) {
                    self.answer_asker(asker, spirula_manager::not_ready());
                }
                self.view
                    .state
                    .manager
                    .module
                    .deaths
                    .mourn(why, self.view.steady.now());
                self.stop_module();
            }
        }
        self.pump();
    }

    fn answer_asker(&mut self, asker: Asker, answer: Answer) {
        let mut reply = reply_of(answer);
        if reply.code == -command::errno::EACCES {
            reply = self.turn(|turn| command::denied_by_module(turn, asker.session, reply));
        }
        let msg = (asker.compose)(&self.view, reply);
        self.send(asker.session, msg);
    }
}
