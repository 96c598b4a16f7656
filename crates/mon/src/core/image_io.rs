//! Querying OSDs for the clients' I/O on block images.

use std::collections::BTreeSet;

use spirula_invariant::dropped;
use spirula_manager::Request;
use spirula_maps::OsdId;
use spirula_proto::Payload;
use spirula_proto::internal::image_io::{ImageIoQuery, ImageIoReport};

use super::{DropReason, Monitor, Output, SessionId};
use crate::image_io::Action;

impl Monitor {
    /// Sends the queries that are due. To be called several times a second if this monitor leads.
    pub(crate) fn watch_image_io(&mut self) {
        let (map, sessions) = (&self.view.state.osd.map, &self.view.sessions);
        let osds = || -> BTreeSet<OsdId> {
            let osds = sessions.values().filter_map(super::Session::osd);
            osds.filter(|osd| map.is_up(*osd)).collect()
        };
        for action in self.view.image_io.tick(self.view.steady.now(), osds) {
            match action {
                Action::Poll(osds, poll) => {
                    let query = ImageIoQuery::Poll(poll).to_message();
                    for session in osds
                        .into_iter()
                        .filter_map(|osd| self.view.osd_session(osd))
                        .collect::<Vec<_>>()
                    {
                        self.send(session, query.clone());
                    }
                }
                // Without its modules there are no names.
                Action::Name(images) if self.view.state.manager.module.is_running() => {
                    self.out.push(Output::AskModule(Request::NameImages(images)));
                }
                Action::Name(_) => {}
            }
        }
    }

    /// Handles the counts of an OSD.
    pub(super) fn image_io_report(&mut self, id: SessionId, report: ImageIoReport) {
        let ImageIoReport::Counts(counts) = report;
        match self.view.sessions.get(&id).and_then(super::Session::osd) {
            Some(osd) => self.view.image_io.answer(osd, counts),
            None => {
                tracing::warn!("a report from something that is no OSD");
                dropped!(self.dropped, DropReason::ReportForeign; session = id);
            }
        }
    }
}
