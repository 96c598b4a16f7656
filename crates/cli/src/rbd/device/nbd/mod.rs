//! The kernel's NBD client: images as `/dev/nbdN`, each served by a process of its own in the
//! background.
//!
//! The process is called `rbd-nbd` and has the arguments of Ceph's tool of that name, so that both
//! tools find out from `/proc` which image a device is.

mod client;
mod genl;
mod process;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
pub(crate) use process::run;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use spirula_client::errno;
use tokio::io::AsyncReadExt;

use super::{Mapped, Wanted};
use crate::ceph::common::conn::Connection;
use crate::rbd::Exit;
use crate::rbd::args::refusal;
use crate::rbd::{bad, complain};

/// The name of the process.
pub(crate) const PROCESS: &str = "rbd-nbd";
/// How long the process may take to end after its device is disconnected.
const PATIENCE: Duration = Duration::from_secs(30);

/// The arguments of the process, and what `-o` says to a mapping.
#[derive(Debug, Clone, Parser, Default, PartialEq, Eq)]
#[command(name = PROCESS, disable_help_flag = true, disable_version_flag = true)]
pub(super) struct Args {
    /// `map`
    #[arg(value_name = "COMMAND")]
    command: String,
    /// The image or snapshot
    #[arg(value_name = "SPEC")]
    spec: String,
    /// The device
    #[arg(long)]
    device: Option<String>,
    /// Nothing can be written
    #[arg(long)]
    read_only: bool,
    /// The lock is not passed on to others
    #[arg(long)]
    exclusive: bool,
    /// Space is not given back
    #[arg(long)]
    notrim: bool,
    /// Seconds after which the kernel gives a request up
    #[arg(long, alias = "timeout", value_name = "SECONDS")]
    io_timeout: Option<u64>,
    /// How many devices the module has, where it is loaded
    #[arg(long = "nbds_max", value_name = "COUNT")]
    nbds_max: Option<u32>,
    /// How many partitions a device has, where the module is loaded
    #[arg(long = "max_part", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..256))]
    max_part: Option<u32>,
    /// A name that others must know to change the device
    #[arg(long)]
    cookie: Option<String>,
    /// Say it
    #[arg(long)]
    show_cookie: bool,
    /// As it is in any case
    #[arg(long)]
    try_netlink: bool,
}

impl Args {
    /// Parses the words behind the process's name.
    fn read(words: &[String]) -> Result<Self, String> {
        let words = std::iter::once(PROCESS.to_owned()).chain(words.iter().cloned());
        Self::try_parse_from(words).map_err(|e| match refusal(&e) {
            Some(text) => text,
            None => e.to_string(),
        })
    }

    /// The arguments for mapping an image with options of `-o`.
    pub(super) fn new(image: &Wanted, options: &[String]) -> Result<Self, Exit> {
        let options = options.iter().flat_map(|o| o.split(','));
        let mut words = vec!["map".to_owned(), image.to_string()];
        words.extend(options.filter(|o| !o.is_empty()).map(|o| format!("--{o}")));
        Self::read(&words).map_err(refuse)
    }

    pub(super) fn set_read_only(&mut self) {
        self.read_only = true;
    }

    pub(super) fn set_exclusive(&mut self) {
        self.exclusive = true;
    }

    pub(super) fn set_cookie(&mut self, cookie: Option<String>, show: bool) {
        self.cookie = cookie.or(self.cookie.take());
        self.show_cookie |= show;
    }

    /// The arguments as words, for the process.
    fn words(&self) -> Vec<String> {
        let mut words = vec![self.command.clone(), self.spec.clone()];
        let flags = [
            ("--read-only", self.read_only),
            ("--exclusive", self.exclusive),
            ("--notrim", self.notrim),
            ("--show-cookie", self.show_cookie),
        ];
        words.extend(flags.iter().filter(|(_, on)| *on).map(|(w, _)| (*w).to_owned()));
        let values = [
            ("--device", self.device.clone()),
            ("--io-timeout", self.io_timeout.map(|n| n.to_string())),
            ("--nbds_max", self.nbds_max.map(|n| n.to_string())),
            ("--max_part", self.max_part.map(|n| n.to_string())),
            ("--cookie", self.cookie.clone()),
        ];
        for (word, value) in values {
            words.extend(value.into_iter().flat_map(|v| [word.to_owned(), v]));
        }
        words
    }
}

/// Maps an image, which a new process serves from now on, and returns the process's output about
/// its device.
///
/// # Errors
/// `EINVAL`, after the process has said why.
pub(super) async fn map(args: &Args, connection: &Connection) -> Result<String, Exit> {
    let failed = |why: String| bad(format!("rbd-nbd failed with error: {why}"));
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(PROCESS)
        .args(connection.words())
        .args(args.words())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let mut said = String::new();
    if let Some(mut output) = child.stdout.take() {
        // It closes this when the device is there.
        let read = output.read_to_string(&mut said).await;
        read.map_err(|e| failed(e.to_string()))?;
    }
    if said.is_empty() {
        let status = child.wait().await.map_err(|e| failed(e.to_string()))?;
        return Err(failed(status.to_string()));
    }
    Ok(said)
}

/// The mapped images, in the order of the devices.
pub(super) fn mapped() -> Vec<Mapped> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let mut numbers: Vec<u32> = names
        .filter_map(|n| n.strip_prefix("nbd")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(device).collect()
}

/// The device of this number, if an image is mapped there.
fn device(number: u32) -> Option<Mapped> {
    let block = Path::new("/sys/block").join(format!("nbd{number}"));
    let pid: u32 = fs::read_to_string(block.join("pid")).ok()?.trim().parse().ok()?;
    let process = Path::new("/proc").join(pid.to_string());
    let name = fs::read_to_string(process.join("comm")).ok()?;
    let words = fs::read(process.join("cmdline")).ok()?;
    let path = format!("/dev/nbd{number}");
    let image = (name.trim() == PROCESS).then(|| served(&words, &path))??;
    let cookie = fs::read_to_string(block.join("backend")).ok();
    Some(Mapped {
        id: pid.to_string(),
        path,
        image,
        cookie: Some(cookie.unwrap_or_default().trim().to_owned()),
    })
}

/// The image that a process serves at a device, by its command line.
fn served(command_line: &[u8], path: &str) -> Option<Wanted> {
    let words = command_line.split(|b| *b == 0).filter(|w| !w.is_empty());
    let words: Vec<String> = words.map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    let (name, words) = words.split_first()?;
    let rest = Connection::default().take(words.to_vec()).ok()?;
    let args = Args::read(&rest).ok()?;
    let is_it = Path::new(name).file_name()? == PROCESS
        && args.command == "map"
        && args.device.is_none_or(|device| device == path);
    is_it.then(|| Wanted::parse(&args.spec)).flatten()
}

/// Prints the reason in the form of the process's messages.
fn refuse(why: impl std::fmt::Display) -> Exit {
    // In one piece, as the kernel's log takes each write for a line. Where it can't be said there
    // is nobody to read it.
    let _ = io::stderr().write_all(format!("{PROCESS}: {why}\n").as_bytes());
    errno::EINVAL.into()
}

/// Unmaps the device of an image.
///
/// # Errors
/// `EINVAL` where it has none, otherwise as [`unmap_path`].
pub(super) fn unmap_image(image: &Wanted, force: bool) -> Result<(), Exit> {
    let device = mapped().into_iter().find(|m| m.image == *image);
    let device = device.ok_or_else(|| refuse(format!("{image} is not mapped")))?;
    unmap(&device.path, Some(device.id), force)
}

/// Unmaps the device at a path.
///
/// # Errors
/// The errno, after the reason was printed.
pub(super) fn unmap_path(path: &str, force: bool) -> Result<(), Exit> {
    let found = mapped().into_iter().find(|m| m.path == path);
    unmap(path, found.map(|m| m.id), force)
}

fn unmap(path: &str, process: Option<String>, force: bool) -> Result<(), Exit> {
    let number = number(path).map_err(refuse)?;
    if !Path::new(path).exists() {
        return Err(refuse(format!("failed to open device: {path}")));
    }
    if !force && is_in_use(path) {
        refuse(format!("{path} is in use"));
        return Err(complain(
            errno::EBUSY,
            "unmap failed: (16) Device or resource busy",
        ));
    }
    // It is still there when its device is not.
    let process = process.and_then(|p| Pid::from_raw(p.parse().ok()?));
    let process = process.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    client::disconnect(number).map_err(|e| refuse(format!("netlink disconnect failed: {e}")))?;
    let Some(process) = process else { return Ok(()) };
    let mut ends = [PollFd::new(&process, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    match poll(&mut ends, Some(&patience)) {
        Ok(0) => {
            // The device is gone, but its process is still writing.
            refuse("waiting for process exit timed out");
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(e) => Err(refuse(format!("failed to poll rbd-nbd process: {e}"))),
    }
}

/// Whether a file system or another device uses a device: the kernel would disconnect it all the
/// same.
fn is_in_use(path: &str) -> bool {
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(exclusive)
        .open(path);
    opened.is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
}

/// The number of the device at a path.
fn number(path: &str) -> Result<u32, String> {
    let number = path.strip_prefix("/dev/nbd").and_then(|n| n.parse().ok());
    number.ok_or_else(|| format!("invalid device path: {path} (expected /dev/nbd{{num}})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(text: &str) -> Vec<u8> {
        text.split(' ')
            .flat_map(|w| [w.as_bytes(), &[0]].concat())
            .collect()
    }

    #[test]
    fn a_process_says_what_it_serves() {
        for (text, image) in [
            ("rbd-nbd map p/i", Some("p/i")),
            (
                "/usr/bin/rbd-nbd -c x --id y map p/n/i@s --read-only",
                Some("p/n/i@s"),
            ),
            ("rbd-nbd --read-only --device /dev/nbd3 map i", Some("rbd/i")),
            ("rbd-nbd map p/i --device /dev/nbd4", None),
            ("rbd-nbd unmap p/i", None),
            ("rbd-nbd list-mapped", None),
            ("nbd-client map p/i", None),
            ("rbd-nbd map p/i --unheard-of", None),
        ] {
            let found = served(&command_line(text), "/dev/nbd3").map(|w| w.to_string());
            assert_eq!(found.as_deref(), image, "{text}");
        }
    }

    #[test]
    fn the_process_gets_what_the_options_say() {
        let image = Wanted::parse("p/i").unwrap();
        let options = ["device=/dev/nbd3,notrim".to_owned(), "timeout=7".to_owned()];
        let mut args = Args::new(&image, &options).unwrap();
        args.set_read_only();
        let words = args.words();
        let want = "map p/i --read-only --notrim --device /dev/nbd3 --io-timeout 7";
        assert_eq!(words.join(" "), want);
        assert_eq!(Args::read(&words), Ok(args));
        for wrong in ["bogus", "device", "io-timeout=x", "max_part=256", "x y"] {
            assert_eq!(
                Args::new(&image, &[wrong.to_owned()]),
                Err(errno::EINVAL.into()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn only_its_own_devices_are_taken_away() {
        assert_eq!(number("/dev/nbd12"), Ok(12));
        for wrong in ["/dev/nbd", "/dev/sda", "/dev/nbd1p1", "nbd1"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            unmap_image(&Wanted::parse("p/not mapped").unwrap(), false),
            Err(errno::EINVAL.into())
        );
    }
}
