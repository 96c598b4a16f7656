//! Messages on a connection between two monitors, in the newest version that both speak.

use std::cell::Cell;

use spirula_msgr::Sender;
use spirula_proto::RawMessage;
use spirula_proto::internal::{Neighbour, Protocol};

/// This monitor's end of a connection with another one.
pub(super) struct Speech {
    sender: Sender,
    neighbour: Cell<Neighbour>,
}

impl Speech {
    pub(super) fn new(sender: Sender) -> Self {
        Self {
            sender,
            neighbour: Cell::default(),
        }
    }

    /// Sends a message; `tid` is that of the request that it is or answers, 0 for neither.
    pub(super) fn send<P: Protocol>(&self, msg: &P, tid: u64) {
        self.sender.send(self.neighbour.get().write(msg).with_tid(tid));
    }

    /// Reads a message of the other monitor.
    ///
    /// # Errors
    /// Where it does not decode, or is of a version that is not understood.
    pub(super) fn read<P: Protocol>(&self, msg: &RawMessage) -> spirula_proto::Result<P> {
        let mut neighbour = self.neighbour.get();
        let read = neighbour.read(msg);
        self.neighbour.set(neighbour);
        read
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        self.sender.close();
    }

    /// Ends the connection where more than `most` bytes wait to be sent: the other monitor does not
    /// read.
    pub(super) fn close_above(&self, most: usize) {
        if self.sender.queued_bytes() > most {
            self.sender.close();
        }
    }
}
