//! The handshake, as a state machine from bytes to bytes: the protocol's "fixed newstyle".
//!
//! [`Negotiation::greeting`] is sent first. Then the client's bytes go into [`Negotiation::step`],
//! and after each step the output of [`Negotiation::take_output`] goes to the client, until a step
//! ends the handshake.

mod options;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire::{self, GreetingFlags, TransmissionFlags, allocation, info, option, option_reply};
use crate::{BlockSizes, Geometry, TlsPolicy};

use options::{ContextQuery, ExportQuery};

/// The longest option data that is accepted; no sensible option comes near it.
pub const MAX_OPTION: u32 = 64 << 10;

/// The description of an export for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name.
    pub name: String,
    /// A text for people, or empty.
    pub description: String,
    /// Size and rules.
    pub geometry: Geometry,
}

impl ExportInfo {
    /// The transmission flags of the export. With structured replies the flag `DF` is set.
    fn flags(&self, structured: bool) -> TransmissionFlags {
        use TransmissionFlags as T;
        let mut flags = T::HAS_FLAGS
            .with(T::SEND_FLUSH)
            .with(T::SEND_FUA)
            .with(T::SEND_CACHE)
            .with(T::CAN_MULTI_CONN);
        if self.geometry.read_only {
            flags.insert(T::READ_ONLY);
        } else {
            flags.insert(T::SEND_TRIM.with(T::SEND_WRITE_ZEROES).with(T::SEND_FAST_ZERO));
        }
        if structured {
            flags.insert(T::SEND_DF);
        }
        flags
    }
}

/// The client's choices for the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// The index of the export.
    pub export: usize,
    /// Replies are structured.
    pub structured: bool,
    /// `BLOCK_STATUS` reports `base:allocation`.
    pub allocation: bool,
}

/// The next step of the connection. In any case, the output is sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    Read,
    /// Step again: an option was answered.
    Again,
    /// Begin TLS, then read more.
    StartTls,
    /// Begin the transmission phase with the rest of the input.
    Transmit(Agreed),
    /// Close the connection.
    Close,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Waits for the client's answer to the greeting.
    ClientFlags,
    /// Waits for an option.
    Option,
    /// Waits for the data of an option.
    Data { option: u32, len: usize },
    /// Skips the data of an option that is too long.
    Skip { option: u32, left: u64 },
}

/// A handshake with one client.
#[derive(Debug)]
pub struct Negotiation {
    policy: TlsPolicy,
    /// TLS has begun.
    secure: bool,
    /// The server is ending: no choices are accepted any more.
    closing: bool,
    state: State,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<usize>,
    output: BytesMut,
}

/// The flags that the server offers and the client may repeat.
const GREETING: GreetingFlags = GreetingFlags::FIXED_NEWSTYLE.with(GreetingFlags::NO_ZEROES);

type Flow = ControlFlow<Step>;

impl Negotiation {
    /// A handshake that begins, with the greeting as its output.
    pub fn greeting(policy: TlsPolicy) -> Self {
        let mut output = BytesMut::new();
        output.put_u64(wire::INIT_MAGIC);
        output.put_u64(wire::OPTION_MAGIC);
        output.put_u16(GREETING.0);
        Self {
            policy,
            secure: false,
            closing: false,
            state: State::ClientFlags,
            fixed: false,
            no_zeroes: false,
            structured: false,
            allocation: None,
            output,
        }
    }

    /// Takes the bytes to be sent.
    pub fn take_output(&mut self) -> Bytes {
        self.output.split().freeze()
    }

    /// Refuses every option but ABORT from now on, as the server is ending.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether [`Negotiation::close`] was called.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Notes that TLS has begun: earlier choices are void, as anyone on the path may have made
    /// them.
    pub fn secured(&mut self) {
        self.secure = true;
        self.structured = false;
        self.allocation = None;
    }

    /// Consumes at most one option from `input`. The exports must be the same, in the same order,
    /// each time.
    pub fn step(&mut self, input: &mut BytesMut, exports: &[ExportInfo]) -> Step {
        loop {
            let flow = match self.state {
                State::ClientFlags => self.client_flags(input),
                State::Option => self.option(input),
                State::Data { option, len } => {
                    if input.len() < len {
                        return Step::Read;
                    }
                    let data = input.split_to(len);
                    self.state = State::Option;
                    self.answer(option, &data, input.is_empty(), exports)
                }
                State::Skip { option, left } => self.skip(option, left, input),
            };
            if let ControlFlow::Break(step) = flow {
                return step;
            }
        }
    }

    fn client_flags(&mut self, input: &mut BytesMut) -> Flow {
        let Ok(flags) = input.try_get_u32() else {
            return Flow::Break(Step::Read);
        };
        let known = |f: &GreetingFlags| GREETING.contains(*f);
        let Some(flags) = u16::try_from(flags).ok().map(GreetingFlags).filter(known) else {
            return Flow::Break(Step::Close);
        };
        self.fixed = flags.contains(GreetingFlags::FIXED_NEWSTYLE);
        self.no_zeroes = flags.contains(GreetingFlags::NO_ZEROES);
        self.state = State::Option;
        Flow::Continue(())
    }

    fn option(&mut self, input: &mut BytesMut) -> Flow {
        if input.len() < 16 {
            return Flow::Break(Step::Read);
        }
        let (magic, option, len) = (input.get_u64(), input.get_u32(), input.get_u32());
        // Without "fixed" the client does not know replies to options.
        if magic != wire::OPTION_MAGIC || (!self.fixed && option != option::EXPORT_NAME) {
            return Flow::Break(Step::Close);
        }
        self.state = if len > MAX_OPTION {
            let left = u64::from(len);
            State::Skip { option, left }
        } else {
            let len = len as usize;
            State::Data { option, len }
        };
        Flow::Continue(())
    }

    fn skip(&mut self, option: u32, left: u64, input: &mut BytesMut) -> Flow {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        input.advance(here);
        let left = left - here as u64;
        if left > 0 {
            self.state = State::Skip { option, left };
            return Flow::Break(Step::Read);
        }
        self.state = State::Option;
        if option == option::EXPORT_NAME {
            return Flow::Break(Step::Close);
        }
        self.refuse(option, option_reply::ERR_TOO_BIG, "too long")
    }

    /// Answers an option; `alone` tells that no bytes of the client follow it.
    fn answer(&mut self, option: u32, data: &[u8], alone: bool, exports: &[ExportInfo]) -> Flow {
        if option == option::ABORT {
            self.acknowledge(option);
            return Flow::Break(Step::Close);
        }
        if option == option::EXPORT_NAME {
            return self.export_name(data, exports);
        }
        if self.closing {
            return self.refuse(option, option_reply::ERR_SHUTDOWN, "the server ends");
        }
        if option == option::STARTTLS {
            return self.start_tls(data, alone);
        }
        if self.policy == TlsPolicy::Required && !self.secure {
            return self.refuse(option, option_reply::ERR_TLS_REQD, "TLS first");
        }
        match option {
            option::LIST => self.list(data, exports),
            option::INFO | option::GO => self.info(option, data, exports),
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, data, exports),
            _ => self.refuse(option, option_reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        self.output.put_u64(wire::OPTION_REPLY_MAGIC);
        self.output.put_u32(option);
        self.output.put_u32(kind);
        // Replies hold names and descriptions, whose length is limited.
        self.output.put_u32(len as u32);
        for part in parts {
            self.output.put_slice(part);
        }
    }

    fn acknowledge(&mut self, option: u32) {
        self.reply(option, option_reply::ACK, &[]);
    }

    fn refuse(&mut self, option: u32, kind: u32, message: &str) -> Flow {
        self.reply(option, kind, &[message.as_bytes()]);
        Flow::Break(Step::Again)
    }

    fn agreed(&self, export: usize) -> Agreed {
        Agreed {
            export,
            structured: self.structured,
            allocation: self.allocation == Some(export),
        }
    }

    fn export_name(&mut self, data: &[u8], exports: &[ExportInfo]) -> Flow {
        let refused = self.closing || (self.policy == TlsPolicy::Required && !self.secure);
        let found = str::from_utf8(data).ok().and_then(|name| find(exports, name));
        let (false, Some(index)) = (refused, found) else {
            // This option has no reply that could say why.
            return Flow::Break(Step::Close);
        };
        let export = &exports[index];
        self.output.put_u64(export.geometry.size);
        self.output.put_u16(export.flags(self.structured).0);
        if !self.no_zeroes {
            self.output.put_bytes(0, 124);
        }
        Flow::Break(Step::Transmit(self.agreed(index)))
    }

    fn start_tls(&mut self, data: &[u8], alone: bool) -> Flow {
        let option = option::STARTTLS;
        if self.policy == TlsPolicy::Off {
            return self.refuse(option, option_reply::ERR_POLICY, "no TLS here");
        }
        if self.secure || !data.is_empty() {
            return self.refuse(
                option,
                option_reply::ERR_INVALID,
                "malformed, or TLS runs already",
            );
        }
        if !alone {
            // Bytes sent before TLS would count as if they had come through it.
            return Flow::Break(Step::Close);
        }
        self.acknowledge(option);
        Flow::Break(Step::StartTls)
    }

    fn list(&mut self, data: &[u8], exports: &[ExportInfo]) -> Flow {
        let option = option::LIST;
        if !data.is_empty() {
            return self.refuse(option, option_reply::ERR_INVALID, "malformed");
        }
        for export in exports {
            let name = export.name.as_bytes();
            let len = (name.len() as u32).to_be_bytes();
            self.reply(
                option,
                option_reply::SERVER,
                &[&len, name, export.description.as_bytes()],
            );
        }
        self.acknowledge(option);
        Flow::Break(Step::Again)
    }

    fn structured_reply(&mut self, data: &[u8]) -> Flow {
        let option = option::STRUCTURED_REPLY;
        if !data.is_empty() {
            return self.refuse(option, option_reply::ERR_INVALID, "malformed");
        }
        self.structured = true;
        self.acknowledge(option);
        Flow::Break(Step::Again)
    }

    fn info(&mut self, option: u32, data: &[u8], exports: &[ExportInfo]) -> Flow {
        let Some(query) = ExportQuery::parse(data) else {
            return self.refuse(option, option_reply::ERR_INVALID, "malformed");
        };
        let Some(index) = find(exports, query.name) else {
            return self.refuse(option, option_reply::ERR_UNKNOWN, "no such export");
        };
        let export = &exports[index];
        let size = export.geometry.size.to_be_bytes();
        let flags = export.flags(self.structured).0.to_be_bytes();
        self.fact(option, info::EXPORT, &[&size, &flags]);
        for wanted in query.wanted() {
            match wanted {
                info::NAME => self.fact(option, info::NAME, &[export.name.as_bytes()]),
                info::DESCRIPTION if !export.description.is_empty() => {
                    self.fact(option, info::DESCRIPTION, &[export.description.as_bytes()]);
                }
                info::BLOCK_SIZE => {
                    let BlockSizes { minimum, preferred } = export.geometry.blocks;
                    let sizes = [minimum, preferred, wire::MAX_PAYLOAD].map(u32::to_be_bytes);
                    self.fact(option, info::BLOCK_SIZE, &[sizes.as_flattened()]);
                }
                _ => {}
            }
        }
        self.acknowledge(option);
        Flow::Break(if option == option::GO {
            Step::Transmit(self.agreed(index))
        } else {
            Step::Again
        })
    }

    fn fact(&mut self, option: u32, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        let parts: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
        self.reply(option, option_reply::INFO, &parts);
    }

    fn contexts(&mut self, option: u32, data: &[u8], exports: &[ExportInfo]) -> Flow {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // Whatever the answer, this option replaces the earlier choice.
            self.allocation = None;
        }
        if !self.structured {
            return self.refuse(option, option_reply::ERR_INVALID, "structured replies first");
        }
        let Some(query) = ContextQuery::parse(data) else {
            return self.refuse(option, option_reply::ERR_INVALID, "malformed");
        };
        let Some(index) = find(exports, query.name) else {
            return self.refuse(option, option_reply::ERR_UNKNOWN, "no such export");
        };
        let listed = !set && (query.count == 0 || query.namespace);
        if query.allocation || listed {
            // In a list the number means nothing.
            let id = if set { allocation::ID } else { 0 };
            self.reply(
                option,
                option_reply::META_CONTEXT,
                &[&id.to_be_bytes(), allocation::NAME.as_bytes()],
            );
        }
        if set && query.allocation {
            self.allocation = Some(index);
        }
        self.acknowledge(option);
        Flow::Break(Step::Again)
    }
}

/// The export of a name. The empty name means the default export, which is the only one, if there
/// is one only.
fn find(exports: &[ExportInfo], name: &str) -> Option<usize> {
    let named = exports.iter().position(|e| e.name == name);
    named.or_else(|| (name.is_empty() && exports.len() == 1).then_some(0))
}
