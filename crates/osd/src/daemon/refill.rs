//! An OSD whose store is ruined: it gives up what it has, and is filled again from the others.
//!
//! What it has may be all that there is of a PG. So the store is made anew only when the monitors
//! say that every PG is active, and misses no object, without this OSD: in an interval that began
//! after the OSD went down. All that was ever acknowledged is on the members of that interval, so no
//! peering to come needs this OSD's past. Until then the OSD waits, touches nothing, and says for
//! which PGs. It is not up meanwhile: it does not boot.
//!
//! A store that was made anew keeps its identity, and has no past: no copy of a PG, and no epoch since
//! which it is kept ([`super::maps`]). To peering the OSD is one with a new disk, whose answer that it
//! has no copy counts for nothing that came before.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::Micros;
use spirula_maps::{Epoch, OsdId};
use spirula_monc::{Event, MonClient};
use spirula_proto::internal::report::{
    DamagedStore, Needed, OsdGoingDown, OsdReport, OsdReportReply, PurgedSnapsWanted, StoreDamaged,
};
use spirula_proto::mon::{LogPriority, MConfig};
use spirula_proto::{MsgType, RawMessage};
use spirula_store::StoreError;

use super::OsdError;
use super::config::OsdConfig;
use super::host::{Host, SystemHost};
use super::mend::Damage;
use super::mons::Mons;
use super::run::{bare_session, probe};
use super::setup::{Addrs, Setup};
use crate::pg::bug::Bug;
use crate::pg::config::PgConfig;

/// The option that permits it.
pub(super) const OPTION: &str = "spirula_osd_refill";
/// How often the monitors are asked.
const ASK: Micros = Micros::from_secs(10);
/// How often the OSD says what it waits for.
const SAY: Micros = Micros::from_secs(60);
/// The most PGs that are named in a line.
const MOST_NAMED: usize = 20;

/// What the monitors' answer allows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// No PG needs what the OSD has.
    Remake,
    /// The map still has an earlier process of the OSD up.
    StillUp,
    /// PGs can't do without the OSD, in words.
    Wait(String),
}

/// The guard: whether the store may be made anew.
fn decide(answer: &Needed, has_bug: bool) -> Verdict {
    if has_bug {
        return Verdict::Remake;
    }
    if answer.is_up {
        return Verdict::StillUp;
    }
    match answer.count == 0 && answer.pgs.is_empty() {
        true => Verdict::Remake,
        false => Verdict::Wait(named(answer)),
    }
}

/// The PGs that can't do without an OSD, in words.
pub(super) fn named(answer: &Needed) -> String {
    let some = answer.pgs.iter().take(MOST_NAMED);
    let mut words: Vec<String> = some.map(|(pg, why)| format!("{pg} ({why})")).collect();
    let more = answer.count.saturating_sub(words.len() as u64);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}

/// How the wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store may be made anew.
    Remake,
    /// An option forbids that.
    Forbidden,
}

/// An OSD with a ruined store, which waits until nobody needs what it has. Like
/// [`Osd`](super::Osd) it knows no socket, timer or task.
pub struct Refill {
    setup: Setup,
    mons: Mons,
    /// The damage, in words.
    damage: String,
    /// The number of the last question.
    number: u64,
    said: Option<Micros>,
    outcome: Option<Outcome>,
}

impl Refill {
    /// An OSD whose store is ruined in this way. The parts need no store.
    pub fn new(cfg: OsdConfig, parts: RefillParts, damage: String) -> Self {
        let RefillParts { pg, mon, addrs, host } = parts;
        Self {
            mons: Mons::new(mon),
            setup: Setup {
                values: spirula_conf::options::Values::from_file(cfg.options.clone()),
                cfg,
                pg,
                addrs,
                host,
                endpoints: Vec::new(),
            },
            damage,
            number: 0,
            said: None,
            outcome: None,
        }
    }

    /// How the wait ends, once it does.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    fn id(&self) -> OsdId {
        self.setup.id()
    }

    /// Notes that a session with a monitor is established.
    pub fn connected(&mut self) {
        self.mons.connected();
        self.mons.client.subscribe("config", 0);
        self.mons.client.subscribe("monmap", 0);
        self.ask();
    }

    /// Asks the monitors; to be called every ten seconds.
    pub fn tick(&mut self) {
        self.ask();
    }

    /// The time between two [`Refill::tick`].
    pub fn pause() -> Duration {
        Duration::from_micros(ASK.count())
    }

    fn ask(&mut self) {
        if !self.mons.knows_damage() {
            // Any answer tells the version of the leader.
            let epoch = Epoch::NONE;
            self.mons
                .report(OsdReport::WantPurgedSnaps(PurgedSnapsWanted { epoch }));
            return; // The answer goes on with it.
        }
        self.number += 1;
        self.mons.report(OsdReport::StoreDamaged(StoreDamaged {
            number: self.number,
            state: DamagedStore::WAITS,
            damage: self.damage.clone(),
        }));
    }

    /// Handles a monitor's message.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn message(&mut self, msg: &RawMessage) -> spirula_proto::Result<()> {
        match msg.kind() {
            MsgType::CONFIG => {
                let m: MConfig = msg.decode()?;
                self.setup.values.set_central(m.config);
                self.mons.configured();
                if !self.setup.values.flag(OPTION) {
                    self.outcome = Some(Outcome::Forbidden);
                }
            }
            MsgType::OSD_REPORT_REPLY => {
                let knew = self.mons.knows_damage();
                match self.mons.answer(msg)? {
                    OsdReportReply::Needed(answer) => self.needed(&answer),
                    _ if !knew && self.mons.knows_damage() => self.ask(),
                    _ if !self.mons.knows_damage() => {
                        self.say("the monitors are of a version that can't tell whether PGs need it");
                    }
                    _ => {}
                }
            }
            // Other messages are for an OSD that serves.
            _ => {}
        }
        Ok(())
    }

    fn needed(&mut self, answer: &Needed) {
        if answer.number != self.number || !self.mons.is_configured() || self.outcome.is_some() {
            return; // It is late, or the option of the configuration database is not known yet.
        }
        match decide(answer, self.setup.pg.has_bug(Bug::EarlyRefill)) {
            Verdict::Remake => {
                let line = format!(
                    "osd.{}: every pg is active without it as of e{}: its store is made anew",
                    self.id(),
                    answer.epoch
                );
                tracing::warn!("{line}");
                self.mons.cluster_log(&self.setup, LogPriority::WARN, line);
                self.mons.report(OsdReport::StoreDamaged(StoreDamaged {
                    number: 0,
                    state: DamagedStore::MENDS,
                    damage: self.damage.clone(),
                }));
                self.outcome = Some(Outcome::Remake);
            }
            Verdict::StillUp => {
                self.mons.report(OsdReport::GoingDown(OsdGoingDown {
                    epoch: answer.epoch,
                    osd: self.id(),
                    reason: "its store is ruined".to_owned(),
                }));
                self.say("the map still has an earlier process of it up");
            }
            Verdict::Wait(pgs) => {
                let count = answer.count;
                self.say(&format!("{count} pgs can't do without what it has: {pgs}"));
            }
        }
    }

    /// Says what it waits for, once a minute.
    fn say(&mut self, why: &str) {
        let now = self.setup.usec();
        if self.said.is_some_and(|at| now < at + SAY) {
            return; // It was said of late.
        }
        self.said = Some(now);
        let id = self.id();
        tracing::error!(
            "{}; it is made anew, and filled from other OSDs, once these have all: waiting, as {why}",
            self.damage
        );
        let line = format!("osd.{id}: {}; it keeps what it has, as {why}", self.damage);
        self.mons.cluster_log(&self.setup, LogPriority::ERROR, line);
    }
}

/// What a [`Refill`] is made of, besides its settings.
pub struct RefillParts {
    /// The settings of PGs.
    pub pg: PgConfig,
    /// The session with the monitors.
    pub mon: MonClient,
    /// The addresses that its log lines name.
    pub addrs: Addrs,
    /// The machine it runs on.
    pub host: Rc<dyn Host>,
}

/// How [`run`] ends.
pub(super) enum Refilled {
    /// The store is worth opening now.
    GoesOn,
    /// The daemon was told to end.
    ShutDown,
}

/// Waits until nobody needs what a ruined store has, and makes it anew.
///
/// # Errors
/// [`OsdError::Kept`] where an option forbids that, or an error of making it anew.
pub(super) async fn run(
    cfg: &OsdConfig,
    error: StoreError,
    damage: &mut Damage,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<Refilled, OsdError> {
    let sb = spirula_store::superblock(&cfg.device)?;
    if sb.fsid != cfg.fsid.0 || sb.whoami != u32::from(cfg.id) {
        return Err(OsdError::Config("the store belongs to another OSD or cluster"));
    }
    let (mon, mut events, addrs) = bare_session(cfg)?;
    let parts = RefillParts {
        pg: PgConfig::default(),
        mon,
        addrs,
        host: Rc::new(SystemHost::new()),
    };
    let mut refill = Refill::new(cfg.clone(), parts, error.to_string());
    let mut ticks = tokio::time::interval(Refill::pause());
    let outcome = loop {
        if let Some(outcome) = refill.outcome() {
            break outcome;
        }
        tokio::select! {
            () = shutdown.as_mut() => return Ok(Refilled::ShutDown),
            _ = ticks.tick() => refill.tick(),
            event = events.recv() => match event {
                Some(Event::Connected(_)) => refill.connected(),
                Some(Event::Message(msg)) => {
                    if let Err(e) = refill.message(&msg) {
                        tracing::warn!("monitor: {e}");
                    }
                }
                Some(Event::Lost | Event::Rotating(_)) => {}
                None => return Err(OsdError::Config("the session with the monitors has ended")),
            },
        }
    };
    if outcome == Outcome::Forbidden {
        return Err(OsdError::Kept {
            option: OPTION,
            source: error,
        });
    }
    // The device may only have failed for a while.
    match probe(cfg, damage) {
        Ok(()) => return Ok(Refilled::GoesOn),
        Err(StoreError::Ruined { .. }) => {}
        Err(e) => return Err(e.into()),
    }
    spirula_store::remake(
        &cfg.device,
        cfg.log_device.as_deref(),
        cfg.encryption_key.as_ref(),
    )?;
    damage.remade(format!(
        "its store was ruined and is made anew, empty: pgs are copied to it ({error})"
    ));
    Ok(Refilled::GoesOn)
}

#[cfg(test)]
mod tests {
    use spirula_maps::{PgId, PoolId};
    use spirula_proto::internal::report::Need;

    use super::*;

    fn pg(seed: u32) -> PgId {
        PgId::new(PoolId::new(1), seed)
    }

    #[test]
    fn a_store_is_made_anew_only_when_nobody_needs_it() {
        let none = Needed::default();
        assert_eq!(decide(&none, false), Verdict::Remake);
        let up = Needed {
            is_up: true,
            ..Needed::default()
        };
        assert_eq!(decide(&up, false), Verdict::StillUp);
        let one = Needed {
            pgs: [(pg(3), Need::INACTIVE)].into(),
            count: 1,
            ..Needed::default()
        };
        assert_eq!(decide(&one, false), Verdict::Wait("1.3 (not active)".to_owned()));
        assert_eq!(
            decide(&one, true),
            Verdict::Remake,
            "the bug that the simulation finds"
        );
        // Whatever the list says.
        for (count, pgs) in [(0, one.pgs.clone()), (5, none.pgs.clone())] {
            let answer = Needed {
                count,
                pgs,
                ..none.clone()
            };
            assert!(matches!(decide(&answer, false), Verdict::Wait(_)));
        }
    }

    #[test]
    fn of_many_pgs_some_are_named() {
        let answer = Needed {
            pgs: (0..50).map(|seed| (pg(seed), Need::UNFOUND)).collect(),
            count: 70,
            ..Needed::default()
        };
        let words = named(&answer);
        assert!(
            words.starts_with("1.0 (objects unfound), 1.1 (objects unfound), "),
            "{words}"
        );
        assert!(words.ends_with(", 50 more"), "{words}");
    }
}
