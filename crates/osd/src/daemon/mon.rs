//! The session with the monitors: booting, maps, secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::Fsid;
use spirula_maps::OsdState;
use spirula_monc::Event;
use spirula_proto::internal::report::{OsdBeacon, OsdBoot, OsdGoingDown, OsdReport, OsdReportReply};
use spirula_proto::mon::MConfig;
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::mpsc::UnboundedReceiver;

use super::auth::Secrets;
use super::shell::Shared;
use super::state::Osd;

/// Handles what the monitors send, until the session's task ends.
pub(super) async fn serve(shell: Shared, mut events: UnboundedReceiver<Event>, secrets: Secrets) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Connected(_) => shell.with(Osd::mon_connected),
            Event::Lost => tracing::info!("the monitor session is lost"),
            Event::Rotating(new) => {
                secrets.set(new);
                shell.with(Osd::boot_if_down);
            }
            Event::Message(msg) => {
                if let Err(e) = shell.with(|o| o.mon_message(&msg)) {
                    tracing::warn!("monitor: {e}");
                }
            }
        }
    }
}

impl Osd {
    /// A session with a monitor stands.
    pub fn mon_connected(&mut self) {
        let next = u64::from(self.maps.epoch()) + 1;
        self.mon.subscribe("osdmap", if next == 1 { 0 } else { next });
        self.mon.subscribe("config", 0);
        // For the session itself, which has to find the monitors that come and go.
        self.mon.subscribe("monmap", 0);
        self.reports.forget();
        self.heartbeats.tell_again();
        self.report_config();
        // Before it boots, so that the answer is there before the map that has it up.
        self.ask_for_purged_snaps();
        self.boot_if_down();
    }

    /// A monitor's message.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn mon_message(&mut self, msg: &RawMessage) -> spirula_proto::Result<()> {
        match msg.kind() {
            MsgType::OSD_MAP => {
                self.handle_maps(msg)?;
                self.boot_if_down();
            }
            MsgType::CONFIG => {
                let m: MConfig = msg.decode()?;
                self.values.set_central(m.config);
                self.apply_options();
            }
            MsgType::OSD_REPORT_REPLY => match msg.decode()? {
                OsdReportReply::BootDenied(d) => {
                    tracing::error!("booting is refused: {}", d.reason);
                }
                OsdReportReply::PgStatsAck(ack) => {
                    let usec = self.usec();
                    self.reports.clock.acknowledged(ack.seq, ack.stamp, usec);
                    self.reports.acknowledged(ack.seq);
                }
                OsdReportReply::Force(f) => {
                    for pgid in f.pgs {
                        self.drive(|core, cx| core.force_copy(pgid, f.backfill, f.on, cx));
                    }
                    self.report_now();
                }
                OsdReportReply::PurgedSnaps(p) => {
                    let epoch = self.maps.epoch();
                    self.maps.purged.learn(p, epoch);
                }
                OsdReportReply::GoDown(g) => tracing::info!("the monitors have this OSD down: {}", g.reason),
            },
            MsgType::IMAGE_IO_QUERY => self.image_io_query(msg)?,
            kind => tracing::debug!("a monitor sent {kind}"),
        }
        Ok(())
    }

    /// Asks to be marked up, unless the newest map has this process up already.
    pub(super) fn boot_if_down(&mut self) {
        if self.stopping || self.maps.epoch() == 0 || self.is_up() || !self.has_secrets() {
            return;
        }
        if self.maps.map().is_flagged(self.cfg.id, OsdState::NOUP) {
            tracing::info!("osdmap NOUP flag is set, waiting for it to clear");
            return;
        }
        if let Err(few) = self.heartbeats.may_boot(self.usec()) {
            tracing::debug!(
                "not healthy; waiting to boot: only {}/{} up peers",
                few.up,
                few.peers
            );
            return;
        }
        let sb = self.io.store.superblock();
        let (uuid, size) = (Fsid(sb.osd_uuid), self.io.store.total());
        let boot = OsdBoot {
            osd: self.cfg.id,
            fsid: self.cfg.fsid,
            uuid,
            public_addrs: self.addrs.public.into(),
            cluster_addrs: self.addrs.cluster.into(),
            heartbeat_front: self.addrs.heartbeat_front.into(),
            heartbeat_back: self.addrs.heartbeat_back.into(),
            features: spirula_msgr::config::FEATURES_SUPPORTED,
            protocols: BTreeMap::new(),
            metadata: self.metadata(size),
            size,
            crush_location: self.cfg.crush_location.clone(),
            device_class: self.device_class(),
            boot_epoch: self.boot_epoch,
            newest_map: self.maps.epoch(),
        };
        self.mon.send(OsdReport::Boot(boot).to_message());
    }

    /// The class that the monitors shall give this OSD where it has none.
    fn device_class(&self) -> String {
        if !self.values.flag("osd_class_update_on_start") {
            return String::new();
        }
        match self.cfg.device_class.as_str() {
            "" => self.class_of_device().to_owned(),
            set => set.to_owned(),
        }
    }

    fn has_secrets(&self) -> bool {
        // Without a service ticket of its own it could not reach its peers, nor open a client's.
        self.mon.global_id() != 0
    }

    /// Asks the monitors which snapshots are purged, where not all are known.
    pub(super) fn ask_for_purged_snaps(&self) {
        if let Some(question) = self.maps.purged.question(self.maps.epoch()) {
            self.mon.send(question);
        }
    }

    /// Asks the monitors for maps that are newer than what is here.
    pub(super) fn want_newest_map(&self) {
        self.mon.subscribe("osdmap", u64::from(self.maps.epoch()) + 1);
    }

    /// The time between beacons. More often than official ones, as the monitors count their own silence as one of the
    /// complaints it takes to mark an OSD down.
    pub fn beacon_pause(&self) -> Duration {
        let heartbeat = self.values.uint("osd_heartbeat_interval").clamp(1, 5);
        Duration::from_secs(heartbeat.min(self.values.uint("osd_beacon_report_interval").max(1)))
    }

    /// Says that this process runs.
    pub fn send_beacon(&mut self) {
        // A monitor that was behind did not answer.
        self.ask_for_purged_snaps();
        if self.is_up() {
            let beacon = OsdBeacon {
                epoch: self.maps.epoch(),
                min_last_epoch_clean: self.maps.epoch(),
                pgs: Vec::new(),
                interval_ms: u32::try_from(self.beacon_pause().as_millis()).unwrap_or(u32::MAX),
            };
            self.mon.send(OsdReport::Beacon(beacon).to_message());
        }
    }

    /// Says that the daemon goes down on purpose.
    pub(super) fn say_goodbye(&mut self) {
        // The map will have it down: it must not ask to be up again meanwhile.
        self.stopping = true;
        if self.is_up() {
            let bye = OsdGoingDown {
                epoch: self.maps.epoch(),
                osd: self.cfg.id,
                reason: "shutdown".to_owned(),
            };
            self.mon.send(OsdReport::GoingDown(bye).to_message());
        }
    }
}
