//! Statistics of block images for the leading monitor.

use spirula_denc::Micros;
use spirula_proto::internal::image_io::{ImageIoCounts, ImageIoQuery, ImageIoReport};
use spirula_proto::{Payload, RawMessage};

use super::state::Osd;

impl Osd {
    /// Answers with what was counted since the last query, and goes on counting.
    pub(super) fn image_io_query(&mut self, msg: &RawMessage) -> spirula_proto::Result<()> {
        let ImageIoQuery::Poll(poll) = msg.decode()?;
        let until = self.usec() + Micros::from_millis(poll.hold_ms.into());
        let images = self.perf.images.ask(poll.pools, until);
        let counts = ImageIoCounts {
            round: poll.round,
            images,
        };
        self.mons.client.send(ImageIoReport::Counts(counts).to_message());
        Ok(())
    }
}
