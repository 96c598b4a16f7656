//! Asks other monitors for the time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use spirula_denc::UTime;
use spirula_proto::internal::quorum::{MonPeer, MonPeerReply, TimeAsk};
use tokio::sync::oneshot;

use super::hub::Hub;
use super::shell::Shell;
use crate::core::TimeAnswer;

/// An answer that takes longer than this says nothing about the time.
const PATIENCE: Duration = Duration::from_secs(10);

impl Hub {
    /// Asks these monitors, by name, in this round.
    pub(super) fn ask_times(&self, round: u64, names: Vec<String>) {
        let Some(shell) = self.shell() else { return };
        for name in names {
            let addr = shell.peek(|c| c.view.state.monmap.map.mons.get(&name)?.public_addrs.v2()?.socket);
            let Some(link) = addr.and_then(|a| self.link(a)) else {
                continue;
            };
            let (answer, told) = oneshot::channel();
            let (sent, start) = (UTime::now(), Instant::now());
            link.ask(&MonPeer::Time(TimeAsk { round }), answer);
            let shell: Rc<Shell> = shell.clone();
            tokio::task::spawn_local(async move {
                let reply = tokio::time::timeout(PATIENCE, told).await;
                let (round_trip, now) = (start.elapsed(), UTime::now());
                if let Ok(Ok(MonPeerReply::Time(t))) = reply {
                    let answer = TimeAnswer {
                        round,
                        sent,
                        theirs: t.stamp,
                        round_trip,
                    };
                    shell.with_core(|c| c.time_answer(&name, &answer, now));
                }
            });
        }
    }
}
