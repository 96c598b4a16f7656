//! Whether the cluster has this OSD up, and what the daemon does about it: boot messages, beacons,
//! goodbyes.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::Fsid;
use spirula_maps::{Epoch, OsdState};
use spirula_proto::internal::report::{OsdBeacon, OsdBoot, OsdGoingDown, OsdReport};
use spirula_proto::mon::LogPriority;
use spirula_store::Store;

use super::life::Life;
use super::maps::Maps;
use super::metadata;
use super::mons::Mons;
use super::setup::Setup;
use crate::heartbeat::{Heartbeats, MarkedDown};

/// Tells the monitors that this OSD runs, or ends.
pub(super) struct Standing<'a> {
    pub(super) setup: &'a Setup,
    pub(super) maps: &'a Maps,
    pub(super) store: &'a Store,
    pub(super) heartbeats: &'a mut Heartbeats,
    pub(super) mons: &'a mut Mons,
    pub(super) life: &'a mut Life,
}

impl Standing<'_> {
    fn is_up(&self) -> bool {
        self.maps.have_up(self.setup)
    }

    /// Asks to be marked up, unless the newest map has this process up already.
    pub(super) fn boot_if_down(&mut self) {
        if self.life.is_stopping()
            || self.maps.epoch() == Epoch::NONE
            || self.is_up()
            || !self.mons.has_secrets()
            || !self.mons.is_configured()
        {
            return; // It can't be up yet, or need not ask.
        }
        if self.maps.map().is_flagged(self.setup.cfg.id, OsdState::NOUP) {
            tracing::info!("osdmap NOUP flag is set, waiting for it to clear");
            return; // The next map may clear it.
        }
        if let Err(few) = self.heartbeats.may_boot(self.setup.usec()) {
            tracing::debug!(
                "not healthy; waiting to boot: only {}/{} up peers",
                few.up,
                few.peers
            );
            return; // Heartbeats call again when more answer.
        }
        let sb = self.store.superblock();
        let (uuid, size) = (Fsid(sb.osd_uuid), self.store.total());
        let boot = OsdBoot {
            osd: self.setup.cfg.id,
            fsid: self.setup.cfg.fsid,
            uuid,
            public_addrs: self.setup.addrs.public.into(),
            cluster_addrs: self.setup.addrs.cluster.into(),
            heartbeat_front: self.setup.addrs.heartbeat_front.into(),
            heartbeat_back: self.setup.addrs.heartbeat_back.into(),
            features: spirula_maps::features::PACIFIC_ALL,
            protocols: BTreeMap::new(),
            metadata: metadata::all(self.setup, size),
            size,
            crush_location: self.crush_location(),
            device_class: self.device_class(),
            boot_epoch: self.life.boot_epoch,
            newest_map: self.maps.epoch(),
        };
        self.mons.report(OsdReport::Boot(boot));
    }

    /// The place that the monitors are to give this OSD in the CRUSH map; empty if it is to stay
    /// where it is.
    fn crush_location(&self) -> BTreeMap<String, String> {
        match self.setup.values.flag("osd_crush_update_on_start") {
            true => self.setup.cfg.crush_location.clone(),
            false => BTreeMap::new(),
        }
    }

    /// The device class that the monitors are to give this OSD if it has none.
    fn device_class(&self) -> String {
        if !self.setup.values.flag("osd_class_update_on_start") {
            return String::new();
        }
        match self.setup.cfg.device_class.as_str() {
            "" => metadata::class_of_device(self.setup).to_owned(),
            set => set.to_owned(),
        }
    }

    /// The time between beacons. They are more frequent than official ones, as the monitors count
    /// their own silence as one of the complaints that it takes to mark an OSD down.
    pub(super) fn beacon_pause(&self) -> Duration {
        let heartbeat = self.setup.values.uint("osd_heartbeat_interval").clamp(1, 5);
        Duration::from_secs(heartbeat.min(self.setup.values.uint("osd_beacon_report_interval").max(1)))
    }

    /// Sends a beacon: this process runs.
    pub(super) fn send_beacon(&mut self) {
        // A monitor that was behind did not answer.
        self.mons.ask_for_purged_snaps(self.maps);
        if self.is_up() {
            let beacon = OsdBeacon {
                epoch: self.maps.epoch(),
                min_last_epoch_clean: self.maps.epoch(),
                pgs: Vec::new(),
                interval_ms: u32::try_from(self.beacon_pause().as_millis()).unwrap_or(u32::MAX),
            };
            self.mons.report(OsdReport::Beacon(beacon));
        }
    }

    /// Tells the monitors that the daemon goes down on purpose.
    pub(super) fn say_goodbye(&mut self) {
        self.life.stop();
        if self.is_up() {
            let bye = OsdGoingDown {
                epoch: self.maps.epoch(),
                osd: self.setup.cfg.id,
                reason: "shutdown".to_owned(),
            };
            self.mons.report(OsdReport::GoingDown(bye));
        }
    }

    /// Acts on what the new map says of this OSD itself. `was_up`: the map before had this process
    /// up.
    pub(super) fn look_at_own_state(&mut self, was_up: bool) {
        let (map, me) = (self.maps.map(), self.setup.id());
        if self.is_up() {
            if self.life.boot_epoch == Epoch::NONE {
                self.life.boot_epoch = self.setup.info(map).up_from;
            }
            return; // As it should be.
        }
        if self.life.is_stopping() {
            return; // It is down on purpose.
        }
        // An operator who starts the OSD after that wants it to run again.
        if map.state(me).contains(OsdState::STOP) && self.life.boot_epoch != Epoch::NONE {
            tracing::error!("map says i am stopped by admin. shutting down.");
            return self.life.leave();
        }
        if !was_up {
            return; // Not a change: it boots.
        }
        if !map.exists(me) {
            tracing::error!("map says i do not exist. shutting down.");
            return self.life.leave();
        }
        self.wrongly_marked_down();
    }

    /// Handles being marked down by the monitors although this OSD runs.
    fn wrongly_marked_down(&mut self) {
        let (epoch, me) = (self.maps.epoch(), self.setup.id());
        let down_at = self.setup.info(self.maps.map()).down_at;
        let line = format!("Monitor daemon marked osd.{me} down, but it is still running");
        self.mons.cluster_log(self.setup, LogPriority::WARN, line);
        let line = format!("map e{epoch} wrongly marked me down at e{down_at}");
        self.mons.cluster_log(self.setup, LogPriority::DEBUG, line);
        let dead = OsdGoingDown {
            epoch,
            osd: me,
            reason: String::new(),
        };
        self.mons.report(OsdReport::Dead(dead));
        let now = self.setup.usec();
        if let MarkedDown::Stop(times) = self.heartbeats.marked_down(now) {
            tracing::error!(
                "marked down {times} > osd_max_markdown_count {} in last {} seconds, shutting down",
                self.setup.values.uint("osd_max_markdown_count"),
                self.setup.values.uint("osd_max_markdown_period")
            );
            self.life.leave();
        }
    }
}
