//! Notifications to all clients that watch an image.

use spirula_denc::{Encode, encode_to_vec};

use crate::Result;
use crate::message::{Announcement, read_response};
use crate::site::Site;

/// Seconds that watchers have for an answer.
const NOTIFY_TIMEOUT: u32 = 5;

/// The owner's answer to a notification.
pub(crate) enum Answer {
    /// No watcher is the owner, or the owner did not answer.
    None,
    /// 0 or a negative errno.
    Said(i32),
}

impl Site {
    /// Notifies all watchers, and waits for their answers.
    pub(crate) async fn announce(&self, said: impl Encode) -> Result<Answer> {
        let payload = encode_to_vec(&said).into();
        let outcome = self.io.notify(self.header_oid(), payload, NOTIFY_TIMEOUT).await?;
        let mut answers = outcome.replies.replies.values().filter(|r| !r.is_empty());
        match answers.next() {
            Some(answer) => Ok(Answer::Said(read_response(answer)?)),
            None => Ok(Answer::None),
        }
    }

    /// Notifies all watchers that the header has changed. A watcher that does not answer does not
    /// make the change fail.
    pub(crate) async fn announce_header(&self) {
        if let Err(e) = self.announce(Announcement::HeaderUpdate).await {
            tracing::warn!(
                "other clients of image {} were not told of a change: {e}",
                self.fixed.id
            );
        }
    }
}
