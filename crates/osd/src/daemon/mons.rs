//! This OSD's messages to the monitors, as long as there is a session with one. Lost ones are sent
//! again.

use spirula_denc::{EntityAddrVec, EntityName, EntityType, Micros};
use spirula_maps::Epoch;
use spirula_monc::MonClient;
use spirula_proto::internal::report::{OsdAlive, OsdReport, OsdReportReply, PgTempWanted};
use spirula_proto::internal::{Edition, Neighbour};
use spirula_proto::mon::{LogEntry, LogPriority, MLog, NamedEntity, PaxosVersion};
use spirula_proto::{Payload, RawMessage};

use super::maps::Maps;
use super::setup::Setup;

/// The time after which the monitors are asked again to record this OSD as up.
const ALIVE_AGAIN: Micros = Micros::from_secs(1);

/// The time after which the monitors are asked again for a map that a client mentioned.
const MAP_AGAIN: Micros = Micros::from_secs(1);

/// A request to the monitors about an epoch.
#[derive(Default)]
struct Asked {
    /// The newest epoch.
    epoch: Epoch,
    /// When the monitors were asked.
    at: Micros,
}

impl Asked {
    /// Whether the monitors are to be asked about `epoch` now: it is newer than before, or `again`
    /// has passed. If so, the request counts as sent.
    fn ask(&mut self, epoch: Epoch, now: Micros, again: Micros) -> bool {
        let asks = epoch > self.epoch || now >= self.at + again;
        if asks {
            self.epoch = epoch.max(self.epoch);
            self.at = now;
        }
        asks
    }
}

/// The monitors.
pub(super) struct Mons {
    /// The session.
    pub(super) client: MonClient,
    /// The edition that the leader speaks.
    leader: Neighbour,
    /// The request to record this OSD as up.
    alive: Asked,
    /// The request for a map that a client mentioned and that is not here.
    wanted_map: Asked,
    /// The number of entries sent to the cluster log.
    logged: u64,
    /// Lines for the cluster log that wait for a session.
    lines: Vec<(LogPriority, String)>,
    /// Whether the monitors have sent the configuration of this OSD, be it empty.
    is_configured: bool,
}

impl Mons {
    pub(super) fn new(client: MonClient) -> Self {
        Self {
            client,
            leader: Neighbour::default(),
            alive: Asked::default(),
            wanted_map: Asked::default(),
            logged: 0,
            lines: Vec::new(),
            is_configured: false,
        }
    }

    /// Whether the leader knows reports of scrubs, as one of the version before does not.
    pub(super) fn know_scrubs(&self) -> bool {
        self.leader.edition() == Edition::Current
    }

    /// Sends a report; returns whether there is a session for it.
    pub(super) fn report(&self, report: OsdReport) -> bool {
        self.client.send(self.leader.write(&report))
    }

    /// Notes that a session with a monitor has begun. The leader behind it may be of another
    /// version than the one before.
    pub(super) fn connected(&mut self) {
        self.leader = Neighbour::default();
    }

    /// Whether the leader is known to understand reports of damaged stores.
    pub(super) fn knows_damage(&self) -> bool {
        self.leader.edition() == Edition::Current
    }

    /// Sends a line to the cluster log as soon as there is a session.
    pub(super) fn log_later(&mut self, priority: LogPriority, line: String) {
        self.lines.push((priority, line));
    }

    /// Sends the lines that wait for a session.
    pub(super) fn log_waiting(&mut self, setup: &Setup) {
        for (priority, line) in std::mem::take(&mut self.lines) {
            self.cluster_log(setup, priority, line);
        }
    }

    /// Reads the leader's answer to a report.
    ///
    /// # Errors
    /// Where it does not decode.
    pub(super) fn answer(&mut self, msg: &RawMessage) -> spirula_proto::Result<OsdReportReply> {
        self.leader.read(msg)
    }

    /// Notes that the monitors have sent the configuration of this OSD.
    pub(super) fn configured(&mut self) {
        self.is_configured = true;
    }

    /// Whether the options of this OSD are those of the configuration database. Some count when it
    /// boots: whether it is to have a place in the CRUSH map, and a device class.
    pub(super) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Whether this OSD can talk to others: without a service ticket of its own it could not reach
    /// its peers, nor open a client's ticket.
    pub(super) fn has_secrets(&self) -> bool {
        self.client.global_id() != 0
    }

    /// Asks which snapshots are purged, if not all are known.
    pub(super) fn ask_for_purged_snaps(&self, maps: &Maps) {
        if let Some(question) = maps.purged.question(maps.epoch()) {
            self.report(question);
        }
    }

    /// Asks for maps that are newer than `epoch`.
    pub(super) fn want_newer_map(&self, epoch: Epoch) {
        self.client.subscribe("osdmap", u64::from(epoch) + 1);
    }

    /// Asks for the map of epoch `wanted`, which a client has mentioned: it may have come to the
    /// client first. It is asked for once, however many clients mention it.
    pub(super) fn want_map(&mut self, wanted: Epoch, epoch: Epoch, now: Micros) {
        if self.wanted_map.ask(wanted, now, MAP_AGAIN) {
            self.want_newer_map(epoch);
        }
    }

    /// Asks to record that this OSD is up in epoch `want`: once for all PGs, and again if that had
    /// no effect.
    pub(super) fn ask_alive(&mut self, want: Epoch, epoch: Epoch, now: Micros) {
        if self.alive.ask(want, now, ALIVE_AGAIN) {
            let want = self.alive.epoch;
            self.report(OsdReport::Alive(OsdAlive { epoch, want }));
        }
    }

    /// Asks for another acting set.
    pub(super) fn want_acting(&self, wanted: PgTempWanted) {
        self.report(OsdReport::PgTemp(wanted));
    }

    /// Sends a line to the cluster log. It is lost if there is no session.
    pub(super) fn cluster_log(&mut self, setup: &Setup, priority: LogPriority, message: String) {
        self.logged += 1;
        let rank = EntityName::new(EntityType::OSD, i64::from(setup.id()));
        let entry = LogEntry {
            name: NamedEntity {
                kind: u32::from(EntityType::OSD.0),
                id: setup.id().to_string(),
            },
            rank,
            addrs: EntityAddrVec::from(setup.addrs.public),
            stamp: setup.now(),
            seq: self.logged,
            priority,
            message,
            channel: "cluster".to_owned(),
        };
        let log = MLog {
            paxos: PaxosVersion::default(),
            fsid: setup.cfg.fsid,
            entries: vec![entry],
        };
        self.client.send(log.to_message());
    }
}
