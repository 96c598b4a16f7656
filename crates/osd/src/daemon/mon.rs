//! The session with the monitors: booting, maps, secrets.

use std::time::Duration;

use spirula_invariant::dropped;
use spirula_monc::Event;
use spirula_proto::internal::report::OsdReportReply;
use spirula_proto::mon::MConfig;
use spirula_proto::{MsgType, RawMessage};
use tokio::sync::mpsc::UnboundedReceiver;

use super::auth::Secrets;
use super::dropped::Dropped;
use super::shell::Shared;
use super::state::Osd;

/// Handles the monitors' messages, until the session's task ends.
pub(super) async fn serve(shell: Shared, mut events: UnboundedReceiver<Event>, secrets: Secrets) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Connected(_) => shell.with(Osd::mon_connected),
            Event::Lost => tracing::info!("the monitor session is lost"),
            Event::Rotating(new) => {
                secrets.set(new);
                shell.with(|o| o.standing().boot_if_down());
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
    /// Notes that a session with a monitor is established.
    pub fn mon_connected(&mut self) {
        self.mons.connected();
        let next = u64::from(self.maps.epoch()) + 1;
        self.mons
            .client
            .subscribe("osdmap", if next == 1 { 0 } else { next });
        self.mons.client.subscribe("config", 0);
        // For the session itself, which has to find the monitors that come and go.
        self.mons.client.subscribe("monmap", 0);
        self.mons.log_waiting(&self.setup);
        self.reports.forget();
        self.beats.core.tell_again();
        self.reporting().report_config();
        // Before it boots, so that the answer is there before the map that has it up.
        self.mons.ask_for_purged_snaps(&self.maps);
        self.standing().boot_if_down();
    }

    /// Handles a monitor's message.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn mon_message(&mut self, msg: &RawMessage) -> spirula_proto::Result<()> {
        match msg.kind() {
            MsgType::OSD_MAP => {
                self.handle_maps(msg)?;
                self.standing().boot_if_down();
            }
            MsgType::CONFIG => {
                let m: MConfig = msg.decode()?;
                self.setup.values.set_central(m.config);
                self.apply_options();
                self.mons.configured();
                self.standing().boot_if_down();
            }
            MsgType::OSD_REPORT_REPLY => match self.mons.answer(msg)? {
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
                OsdReportReply::Needed(answer) => self.checking().needed(&answer),
                OsdReportReply::GoDown(g) => tracing::info!("the monitors have this OSD down: {}", g.reason),
            },
            MsgType::IMAGE_IO_QUERY => self.image_io_query(msg)?,
            MsgType::OSD_SCRUB2 => {
                self.scrub_ordered(msg.decode()?);
            }
            kind => dropped!(self.perf.dropped, Dropped::Misdirected; from = "a monitor", kind = kind),
        }
        Ok(())
    }

    /// The time between beacons.
    pub fn beacon_pause(&mut self) -> Duration {
        self.standing().beacon_pause()
    }

    /// Sends a beacon: this process runs.
    pub fn send_beacon(&mut self) {
        self.standing().send_beacon();
    }
}
