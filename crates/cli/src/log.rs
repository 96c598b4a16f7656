//! Writes log lines to standard error. If that is a file, space behind its end is reserved, so that
//! a full file system does not keep a daemon from saying why it ends.

use std::fs::File;
use std::io::{self, Stderr, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, fallocate, fstat};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that are reserved.
const RESERVE: u64 = 64 << 10;
/// With fewer bytes left on a full file system, only errors are still written.
const LAST: u64 = 16 << 10;

/// The default filter of daemons. The Raft library is silent: it warns of an unreachable monitor
/// several times a second, and the monitor's own log says enough.
pub(crate) const DAEMONS: &str = "warn,openraft=off";
/// The default filter of tools, which report failures themselves.
pub(crate) const CLIENTS: &str = "error";

/// Starts logging with the filter in `SPIRULA_LOG` (`info`, `spirula_osd=debug`), else with
/// `usual`.
pub(crate) fn start(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SPIRULA_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    // A second call, as tests make, keeps the first subscriber.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines::new(stderr_file()))
        .with_ansi(false)
        .try_init();
}

/// Standard error, if it is a file.
fn stderr_file() -> Option<File> {
    let stat = fstat(io::stderr().as_fd()).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    let own = is_file.then(|| io::stderr().as_fd().try_clone_to_owned())?;
    own.ok().map(File::from)
}

struct Lines {
    reserve: Option<Mutex<Reserve>>,
}

struct Reserve {
    file: File,
    /// The end of the reserved space.
    end: u64,
    /// Lines that were left out.
    missing: u64,
}

impl Lines {
    /// Reserves space in `file`, if there is one.
    fn new(file: Option<File>) -> Self {
        let reserve = file.map(|file| {
            let mut reserve = Reserve {
                file,
                end: 0,
                missing: 0,
            };
            reserve.has_room(&Level::ERROR);
            Mutex::new(reserve)
        });
        Self { reserve }
    }

    /// Whether a line is written.
    fn admits(&self, level: &Level) -> bool {
        let Some(reserve) = &self.reserve else { return true };
        let mut reserve = reserve.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = reserve.has_room(level);
        if !admitted {
            reserve.missing += 1;
        } else if reserve.missing > 0 {
            let missing = std::mem::take(&mut reserve.missing);
            // The line that comes next fares as this one.
            let _ = writeln!(
                io::stderr(),
                "{missing} lines are missing here: the file system was full"
            );
        }
        admitted
    }
}

impl Reserve {
    /// Whether a line of this level has room, or is written although it may fail.
    fn has_room(&mut self, level: &Level) -> bool {
        // The file may have been made shorter meanwhile.
        let Ok(len) = self.file.metadata().map(|m| m.len()) else {
            return true;
        };
        let left = self.end.saturating_sub(len);
        if (RESERVE / 2..=RESERVE).contains(&left) {
            return true;
        }
        if fallocate(&self.file, FallocateFlags::KEEP_SIZE, len, RESERVE) != Err(rustix::io::Errno::NOSPC) {
            self.end = len + RESERVE;
            return true;
        }
        left > LAST || *level == Level::ERROR
    }
}

/// Standard error, or nothing.
enum Line {
    Written(Stderr),
    LeftOut,
}

impl Write for Line {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Written(out) => out.write(buf),
            Self::LeftOut => Ok(buf.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Written(out) => out.flush(),
            Self::LeftOut => Ok(()),
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line::Written(io::stderr())
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        match self.admits(meta.level()) {
            true => Line::Written(io::stderr()),
            false => Line::LeftOut,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn space_is_taken_before_lines_need_it() {
        let path = std::env::temp_dir().join(format!("spirula-lines-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let lines = Lines::new(Some(file.try_clone().unwrap()));
        let spare = || {
            let meta = path.metadata().unwrap();
            meta.blocks() * 512 - meta.len()
        };
        assert!(spare() >= RESERVE);
        for _ in 0..20 {
            file.write_all(&[b'x'; 10_000]).unwrap();
            assert!(lines.admits(&Level::WARN));
            assert!(spare() >= RESERVE / 2 - 4096, "{}", spare());
        }
        // Emptying the file gives the reserved space back.
        file.set_len(0).unwrap();
        assert!(lines.admits(&Level::WARN));
        assert!(spare() >= RESERVE);
        std::fs::remove_file(&path).unwrap();
    }
}
