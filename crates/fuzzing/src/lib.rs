//! Entry functions that pass arbitrary bytes to everything that decodes bytes from outside.
//!
//! Each function of [`TARGETS`] takes the input of a fuzzer. It must return for any input: a panic
//! is a defect of the decoder, and so is memory beyond [`Target::memory`]. If a format has
//! checksums or encryption, which a fuzzer can't guess, the function adds them, as a hostile peer
//! would.
//!
//! `fuzz/` has one program for each function, for use with cargo-fuzz; `tests/corpus.rs` replays
//! the committed corpus with a stable compiler.

mod cephx;
mod conf;
mod counting;
mod crush;
mod images;
mod input;
#[cfg(test)]
mod lock_file;
mod maps;
mod messages;
mod mon;
mod msgr;
mod nbd;
mod op_data;
mod osd;
mod store;
mod text;

pub use counting::Counting;

/// A function to fuzz and its share of memory.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of the program in `fuzz/fuzz_targets` and of the directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Bytes that may be allocated at one time beyond those that grow with the input.
    pub base: usize,
}

/// Bytes that may be allocated at one time for each byte of input.
///
/// The smallest elements of the formats are small compared with their structures in memory (a node
/// of a `BTreeMap` for one pair, a `Vec` for an empty list), and vectors grow by doubling.
const PER_INPUT_BYTE: usize = 64;

impl Target {
    /// The most bytes that a run over `len` bytes of input may have allocated at one time.
    pub fn memory(&self, len: usize) -> usize {
        self.base + len * PER_INPUT_BYTE
    }

    /// Runs an input and returns the most bytes that it had allocated at one time, 0 if
    /// [`Counting`] is not the program's allocator.
    ///
    /// # Panics
    /// Where the decoder has a defect: it panics, or allocates more than [`Target::memory`].
    pub fn check(&self, data: &[u8]) -> usize {
        let allowed = self.memory(data.len());
        let mut peak = counting::peak_of(|| (self.run)(data));
        if peak > allowed {
            // Memory that a process allocates once, such as the table of options, does not count
            // for this input.
            peak = counting::peak_of(|| (self.run)(data));
        }
        assert!(
            peak <= allowed,
            "{}: {peak} bytes allocated for {} of input, {allowed} allowed",
            self.name,
            data.len()
        );
        peak
    }

    /// The target of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|t| t.name == name)
    }
}

/// The first byte of an input of `target` that chooses a `structure`, by its official name. For the
/// targets with many structures: `small_maps` and `cephx_wire`.
pub fn kind(target: &str, structure: &str) -> Option<u8> {
    let kinds = match target {
        "small_maps" => maps::SMALL,
        "cephx_wire" => cephx::STRUCTURES,
        _ => return None,
    };
    let at = kinds.iter().position(|(name, _)| *name == structure)?;
    u8::try_from(at).ok()
}

/// The codes of operations that an input of `osd_ops` names by a byte.
pub fn op_codes() -> &'static [spirula_proto::osd::OpCode] {
    &osd::CODES
}

/// Checks an input with the target of this name: what the fuzz programs do.
///
/// # Panics
/// As [`Target::check`], and where there is no such target.
pub fn check(target: &str, data: &[u8]) {
    let target = Target::by_name(target);
    assert!(target.is_some(), "no such target");
    target.map(|t| t.check(data));
}

macro_rules! targets {
    ($($(#[$doc:meta])* $name:ident = $run:path, base $base:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(data: &[u8]) {
            $run(data);
        })*

        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name, base: $base },)*];
    };
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

targets! {
    /// Raw bytes at both sides of a connection that was just made.
    msgr_raw = msgr::raw, base 256 * KIB;
    /// Frames with valid checksums or encryption, in any order and with any content, at any state
    /// of a session.
    msgr_frames = msgr::frames, base 2 * MIB;
    /// A message of any type and version.
    message = messages::run, base 64 * KIB;
    /// Input and output of an OSD operation.
    osd_op_data = op_data::run, base 64 * KIB;
    /// A full OSDMap, and where it puts PGs.
    osdmap = maps::osdmap, base 256 * KIB;
    /// An OSDMap incremental, applied to a map.
    osdmap_incremental = maps::incremental, base MIB;
    /// The smaller maps and what messages carry of them: monmap, mgrmap, pools, statistics.
    small_maps = maps::small, base 64 * KIB;
    /// A CRUSH map and its rules.
    crush = crush::run, base 256 * KIB;
    /// The monitor's side of a login, and of what follows it on the session.
    cephx_server = cephx::server, base 128 * KIB;
    /// A service that verifies an authorizer.
    cephx_authorizer = cephx::authorizer, base 128 * KIB;
    /// The client's side of logins, renewals and authorizers.
    cephx_client = cephx::client, base 128 * KIB;
    /// The structures of cephx without their encryption.
    cephx_wire = cephx::wire, base 64 * KIB;
    /// Capability texts of all four services. One regular expression at a time is compiled, to 64
    /// KiB at most.
    caps = text::caps, base 512 * KIB;
    /// A keyring file.
    keyring = text::keyring, base 64 * KIB;
    /// A configuration file, addresses of monitors, sizes.
    conf = conf::run, base 128 * KIB;
    /// The handshake and the requests of a client of the NBD server. A read finds 64 KiB at most.
    nbd = nbd::run, base 512 * KIB;
    /// A store on a disk that is not as it was written.
    store = store::run, base 48 * MIB;
    /// A request of any operations on an object of any contents.
    osd_ops = osd::ops, base MIB;
    /// Methods of classes on an object of any contents.
    class_methods = osd::methods, base MIB;
    /// Commands to a monitor.
    commands = mon::commands, base 32 * MIB;
    /// Requests to an admin socket.
    asok = mon::asok, base 8 * MIB;
    /// What the manager and its monitor tell each other, and tasks and schedules in pools.
    manager = images::manager, base MIB;
    /// What images say of themselves in pools.
    rbd = images::rbd, base 256 * KIB;
}
