//! `spirula store`: makes, checks, shows and mends the object store of an OSD that is not running.

mod named;
mod objects;
mod offline;
mod omap;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use spirula_conf::parse_size;
use spirula_denc::Fsid;
use spirula_maps::OsdId;
use spirula_osd::pg::key::parse_object_key;
use spirula_store::{BLOCK, Depth, Dump, EncryptionKey, FsckProgress, MkfsOptions, ObjectKey, fsck, mkfs};

use self::offline::Offline;
use crate::daemon::read_key;
use crate::device::{Identity, Plan, Request};
use crate::error::Error;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make an empty store
    Mkfs {
        /// File or block device
        path: PathBuf,
        /// Size of a file to make, or how much of a block device to use [default: all of what is
        /// there]
        #[arg(long, value_parser = size)]
        size: Option<u64>,
        /// A separate file or device for the log
        #[arg(long)]
        log: Option<PathBuf>,
        /// Id of the cluster
        #[arg(long, value_parser = fsid)]
        fsid: Fsid,
        /// Id of the OSD
        #[arg(long, value_parser = fsid)]
        osd_uuid: Fsid,
        /// Overwrite what the file or device holds
        #[arg(long)]
        force: bool,
        /// Encrypt the store with the key in this file
        #[arg(long)]
        encryption_key_file: Option<PathBuf>,
    },
    /// Check a store without changing it; exits with 1 if it is damaged
    Fsck {
        /// File or block device, or the OSD's directory
        path: PathBuf,
        /// The separate log, if there is one [default: the file "log" beside the store]
        #[arg(long)]
        log: Option<PathBuf>,
        /// The file with the key of an encrypted store, such as /dev/stdin
        #[arg(long)]
        encryption_key_file: Option<PathBuf>,
        /// Also read all data and compare its checksums
        #[arg(long)]
        deep: bool,
    },
    /// Show what a store holds: its summary and every object
    Dump {
        /// File or block device, or the OSD's directory
        path: PathBuf,
        /// The separate log, if there is one [default: the file "log" beside the store]
        #[arg(long)]
        log: Option<PathBuf>,
        /// The file with the key of an encrypted store, such as /dev/stdin
        #[arg(long)]
        encryption_key_file: Option<PathBuf>,
        /// Show only this object, by its name in the listing, with its attributes and extents
        #[arg(long)]
        object: Option<String>,
        /// Show the transactions that are in the log and not in the index yet
        #[arg(long)]
        transactions: bool,
    },
    /// Show and change single objects of a store: for repairs by hand, and to test repairs
    Object {
        /// File or block device, or the OSD's directory
        path: PathBuf,
        /// The separate log, if there is one [default: the file "log" beside the store]
        #[arg(long)]
        log: Option<PathBuf>,
        /// The file with the key of an encrypted store, such as /dev/stdin
        #[arg(long)]
        encryption_key_file: Option<PathBuf>,
        #[command(subcommand)]
        command: objects::Command,
    },
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is not a size such as 10G"))
}

fn fsid(text: &str) -> Result<Fsid, String> {
    Fsid::parse(text).ok_or_else(|| format!("{text:?} is not a UUID"))
}

/// Runs the command.
pub(crate) fn run(command: Command) -> ExitCode {
    match try_run(command) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("Error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(command: Command) -> Result<ExitCode, Error> {
    match command {
        Command::Mkfs {
            path,
            size,
            log,
            fsid,
            osd_uuid,
            force,
            encryption_key_file,
        } => {
            let identity = Identity {
                whoami: OsdId::default(),
                fsid,
                uuid: osd_uuid,
            };
            let options = MkfsOptions {
                whoami: identity.whoami.into(),
                key: key(encryption_key_file.as_deref())?,
                fsid: fsid.0,
                osd_uuid: osd_uuid.0,
                ..MkfsOptions::default()
            };
            let request = Request {
                device: &path,
                log: log.as_deref(),
                file_size: size,
                device_size: size,
                identity,
                force,
            };
            match request.plan()? {
                Plan::Make { size } => {
                    mkfs(&path, size, log.as_deref(), &options)?;
                }
                Plan::Exists => println!("{} holds this store already; it was kept", path.display()),
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Fsck {
            path,
            log,
            encryption_key_file,
            deep,
        } => {
            let key = key(encryption_key_file.as_deref())?;
            let depth = if deep { Depth::Deep } else { Depth::Shallow };
            let (path, log) = place(path, log)?;
            let mut shown = Shown::new();
            let report = fsck(&path, log.as_deref(), key.as_ref(), depth, &mut |at| {
                shown.show(at)
            });
            shown.end();
            let report = report?;
            println!("{report}");
            Ok(if report.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Dump {
            path,
            log,
            encryption_key_file,
            object,
            transactions,
        } => {
            let key = key(encryption_key_file.as_deref())?;
            let (path, log) = place(path, log)?;
            let dump = Dump::open(&path, log.as_deref(), key.as_ref())?;
            let mut out = std::io::stdout().lock();
            // A closed pipe ends the listing without an error.
            let shown = match object {
                Some(name) => out.write_all(object_detail(&dump, &name)?.as_bytes()),
                None if transactions => out.write_all(dump.log()?.as_bytes()),
                None => out.write_all(dump.summary()?.as_bytes()).and_then(|()| {
                    dump.objects(&ObjectKey::new(&[]), |key, onode| {
                        writeln!(out, "{} {}", onode.size(), object_name(key)).is_ok()
                    })
                    .map_err(std::io::Error::other)
                }),
            };
            match shown {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => return Err(Error::Output(e)),
                _ => {}
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Object {
            path,
            log,
            encryption_key_file,
            command,
        } => {
            let key = key(encryption_key_file.as_deref())?;
            let (path, log) = place(path, log)?;
            let mut store = Offline::open(&path, log.as_deref(), key.as_ref())?;
            command.run(&mut store)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The paths of a store and its log. By default the log is looked for beside the store.
fn place(path: PathBuf, log: Option<PathBuf>) -> Result<(PathBuf, Option<PathBuf>), Error> {
    let path = if path.is_dir() { path.join("block") } else { path };
    let beside = path.with_file_name("log");
    let log = match log {
        None if spirula_store::superblock(&path)?.separate_log && beside.exists() => Some(beside),
        log => log,
    };
    Ok((path, log))
}

/// Shows the progress of a check on standard error: in one line on a terminal, else a line now and
/// then.
struct Shown {
    terminal: bool,
    last: Instant,
    any: bool,
}

impl Shown {
    fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last: Instant::now(),
            any: false,
        }
    }

    fn show(&mut self, at: FsckProgress) {
        let pause = if self.terminal { 200 } else { 10_000 };
        if self.last.elapsed() < Duration::from_millis(pause) {
            return;
        }
        self.last = Instant::now();
        let mib = |blocks: u64| (blocks * BLOCK as u64) >> 20;
        let FsckProgress { objects, blocks } = at;
        let text = format!(
            "{} of {} objects, {} of {} MiB",
            objects.count,
            objects.of,
            mib(blocks.count),
            mib(blocks.of)
        );
        let end = if self.terminal { "\r" } else { "\n" };
        // A closed standard error keeps no check from its end.
        let _ = write!(std::io::stderr(), "{text:<60}{end}");
        self.any = true;
    }

    /// Clears the line.
    fn end(&self) {
        if self.any && self.terminal {
            let _ = write!(std::io::stderr(), "{:60}\r", "");
        }
    }
}

fn key(path: Option<&Path>) -> Result<Option<EncryptionKey>, Error> {
    path.map(read_key).transpose()
}

/// An object's name as the OSD writes it, or the raw key of another object.
fn object_name(key: &ObjectKey) -> String {
    parse_object_key(key.as_slice()).map_or_else(|| key.to_string(), |o| o.to_string())
}

fn object_detail(dump: &Dump, name: &str) -> Result<String, Error> {
    let mut found = None;
    dump.objects(&ObjectKey::new(&[]), |key, _| {
        if object_name(key) == name {
            found = Some(key.clone());
        }
        found.is_none()
    })?;
    let key = found.ok_or_else(|| Error::Usage(format!("no object {name}")))?;
    Ok(dump.object(&key)?)
}
