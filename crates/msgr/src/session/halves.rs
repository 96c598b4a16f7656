//! An established session: its receiving and its sending half.

use spirula_denc::{UTime, encode_to_vec};
use spirula_invariant::invariant;
use spirula_proto::RawMessage;

use super::SessionError;
use crate::control::{Ack, Control, Keepalive, KeepaliveAck};
use crate::frame::{Decoder, Encoder, Frame, FrameError, Progress, Tag};

/// An event of the receiving half.
#[derive(Debug)]
pub enum InboundEvent {
    /// A message.
    Message(RawMessage),
    /// A message that came before, and is dropped.
    Repeated,
    /// The peer asks for a sign of life: send [`Outbound::keepalive_ack`] with the stamp at once.
    Keepalive(UTime),
    /// The peer answers a keepalive that we sent at this time.
    KeepaliveAck(UTime),
    /// Nothing: read more.
    NeedBytes,
    /// A message waits for room in the pool; see [`Progress::NeedRoom`].
    NeedRoom(usize),
}

/// The receiving half: frames to messages, in sequence.
pub struct Inbound {
    dec: Decoder,
    lossy: bool,
    seq: u64,
    acked: u64,
}

impl Inbound {
    pub(super) fn new(dec: Decoder, lossy: bool) -> Self {
        Self {
            dec,
            lossy,
            seq: 0,
            acked: 0,
        }
    }

    /// The decoder that received bytes go to.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.dec
    }

    /// Sequence number of the last message received, for [`Outbound::message`].
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Takes the sequence number to acknowledge with a frame of its own: only lossless peers, which
    /// keep sent messages, want that.
    pub fn take_ack(&mut self) -> Option<u64> {
        if self.lossy || self.acked == self.seq {
            return None;
        }
        invariant!(self.acked < self.seq, "an acknowledgement of more"; acked = self.acked, received = self.seq);
        self.acked = self.seq;
        Some(self.seq)
    }

    /// The next event.
    ///
    /// # Errors
    /// What breaks the frame format or has no place in an established session.
    pub fn poll(&mut self) -> Result<InboundEvent, SessionError> {
        loop {
            match self.dec.poll()? {
                Progress::NeedBytes => return Ok(InboundEvent::NeedBytes),
                Progress::NeedRoom(n) => return Ok(InboundEvent::NeedRoom(n)),
                Progress::Frame(Frame::Message(m)) => {
                    // Numbers may skip: clients withdraw messages.
                    if m.header.seq <= self.seq {
                        return Ok(InboundEvent::Repeated);
                    }
                    self.seq = m.header.seq;
                    return Ok(InboundEvent::Message(m));
                }
                Progress::Frame(Frame::Control(Tag::KEEPALIVE2, p)) => {
                    return Ok(InboundEvent::Keepalive(Keepalive::parse(&p)?.stamp));
                }
                Progress::Frame(Frame::Control(Tag::KEEPALIVE2_ACK, p)) => {
                    return Ok(InboundEvent::KeepaliveAck(KeepaliveAck::parse(&p)?.stamp));
                }
                // Nothing is kept for resending.
                Progress::Frame(Frame::Control(Tag::ACK, p)) => {
                    Ack::parse(&p)?;
                }
                Progress::Frame(Frame::Control(tag, _)) => return Err(FrameError::Unexpected(tag).into()),
                Progress::Frame(Frame::Banner { .. }) => return Err(FrameError::Banner.into()),
            }
        }
    }
}

/// The sending half: messages to frames, in sequence.
pub struct Outbound {
    enc: Encoder,
    seq: u64,
    /// What was acknowledged to the peer.
    acked: u64,
}

impl Outbound {
    pub(super) fn new(enc: Encoder) -> Self {
        Self {
            enc,
            seq: 0,
            acked: 0,
        }
    }

    /// The encoder that bytes to send come from.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.enc
    }

    /// Adds a message, numbered, to the batch. `ack_seq` is the inbound half's [`Inbound::seq`].
    ///
    /// # Errors
    /// As [`Encoder::message`].
    pub fn message(&mut self, mut msg: RawMessage, ack_seq: u64) -> Result<(), SessionError> {
        self.acknowledge(ack_seq);
        self.seq += 1;
        msg.header.seq = self.seq;
        msg.header.ack_seq = ack_seq;
        Ok(self.enc.message(msg)?)
    }

    /// Notes what the peer is told to have been received.
    fn acknowledge(&mut self, seq: u64) {
        invariant!(seq >= self.acked, "acknowledgements that ascend"; acked = self.acked, received = seq);
        self.acked = seq;
    }

    fn control<C: Control>(&mut self, frame: &C) -> Result<(), SessionError> {
        Ok(self.enc.control(C::TAG, &encode_to_vec(frame))?)
    }

    /// Asks the peer for a sign of life.
    ///
    /// # Errors
    /// As [`Encoder::control`], like the methods below.
    pub fn keepalive(&mut self, now: UTime) -> Result<(), SessionError> {
        self.control(&Keepalive { stamp: now })
    }

    /// Answers a keepalive.
    pub fn keepalive_ack(&mut self, stamp: UTime) -> Result<(), SessionError> {
        self.control(&KeepaliveAck { stamp })
    }

    /// Acknowledges the messages up to `seq`.
    pub fn ack(&mut self, seq: u64) -> Result<(), SessionError> {
        self.acknowledge(seq);
        self.control(&Ack { seq })
    }
}
