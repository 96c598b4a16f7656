//! The process that serves an image to the kernel's NBD client until its device is disconnected.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdout};
use spirula_client::errno;
use spirula_nbd::{BlockDevice, Limits, WriteBehind, transmit};
use spirula_rbd::{Image, Options};
use tokio::sync::watch;

use super::super::{Wanted, kernel};
use super::{Args, PROCESS, client, is_in_use, number, refuse};
use crate::ceph::common;
use crate::ceph::common::conn::Connection;
use crate::rbd::Exit;
use crate::rbd::serve::{CACHE, ImageDevice, Signals};

/// The default number of a device's partitions.
const MAX_PART: u32 = 255;

/// Runs the process with the arguments behind its name and returns the exit code, which is 1 for
/// any failure.
pub(crate) async fn run(args: Vec<OsString>) -> i32 {
    match serve(args).await {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

async fn serve(args: Vec<OsString>) -> Result<(), Exit> {
    // As /proc shows it, where it would be called "exe".
    let named = rustix::thread::set_name(c"rbd-nbd");
    named.map_err(|e| refuse(format!("can't set the name of the process: {e}")))?;
    let mut connection = Connection::default();
    let words = connection.take(common::args::words(args)).map_err(refuse)?;
    let args = Args::read(&words).map_err(refuse)?;
    if args.command != "map" {
        return Err(refuse(format!("unknown command: {}", args.command)));
    }
    let mut signals = Signals::new()?;
    let image = open(&args, &connection).await?;
    let show_cookie = args.show_cookie;
    let mapping = Mapping::start(args, image).await?;
    let begun = match mapping.set_read_only().await {
        Ok(()) => mapping.detach(show_cookie),
        Err(code) => Err(code),
    };
    match begun {
        Ok(()) => mapping.run(&mut signals).await,
        Err(code) => mapping.finish().await.and(Err(code)),
    }
}

async fn open(args: &Args, connection: &Connection) -> Result<Image, Exit> {
    let spec = &args.spec;
    let wanted = Wanted::parse(spec).ok_or_else(|| refuse(format!("invalid spec '{spec}'")))?;
    let source = connection.source().map_err(refuse)?;
    let unreachable = |e| refuse(format!("couldn't connect to the cluster: {e}"));
    let options = source.read().map_err(unreachable)?;
    let rados = spirula_client::Rados::connect(&options)
        .await
        .map_err(unreachable)?;
    let pool = rados
        .pool(&wanted.pool)
        .await
        .map_err(|e| refuse(format!("error opening pool '{}': {}", wanted.pool, e.errno())))?;
    let options = Options {
        read_only: args.read_only,
        snapshot: wanted.snap.clone(),
        exclusive: args.exclusive,
        ..Options::default()
    };
    let io = pool.with_namespace(&wanted.namespace);
    let opened = Image::open(&io, &wanted.image, options).await;
    opened.map_err(|e| refuse(format!("error opening image {wanted}: {}", e.errno())))
}

/// An image that is served as a device.
struct Mapping {
    image: Rc<WriteBehind<ImageDevice>>,
    sizes: watch::Receiver<u64>,
    device: u32,
    read_only: bool,
    cookie: Option<String>,
    /// Ends when the kernel disconnects.
    serving: tokio::task::JoinHandle<()>,
}

impl Mapping {
    /// Serves an image and makes it a device. On failure the image is closed.
    async fn start(args: Args, image: Image) -> Result<Self, Exit> {
        let failed = |e: io::Error| refuse(format!("can't make a socket: {e}"));
        let number = args.device.as_deref().map(number).transpose().map_err(refuse);
        let prepared = number.and_then(|number| {
            load(&args)?;
            let (kernel, server) = UnixStream::pair().map_err(failed)?;
            server.set_nonblocking(true).map_err(failed)?;
            Ok((
                number,
                kernel,
                tokio::net::UnixStream::from_std(server).map_err(failed)?,
            ))
        });
        let (number, kernel, server) = match prepared {
            Ok(prepared) => prepared,
            Err(code) => return closed(image.close().await).and(Err(code)),
        };
        let (sizes, read_only) = (image.sizes(), image.is_read_only());
        let wanted = client::Device {
            number,
            size: image.size(),
            read_only,
            trim: !args.notrim,
            timeout: args.io_timeout,
            cookie: args.cookie.as_deref(),
        };
        // The kernel asks for nothing before this thread goes on.
        let device = client::connect(&wanted, kernel.as_fd()).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound if number.is_none() => refuse("the kernel has no NBD client"),
            io::ErrorKind::ResourceBusy => match &args.device {
                Some(path) => refuse(format!("the device {path} is busy")),
                None => refuse("failed to find unused device"),
            },
            _ => refuse(format!("netlink connect failed: {e}")),
        });
        let device = match device {
            Ok(device) => device,
            Err(code) => return closed(image.close().await).and(Err(code)),
        };
        let image = Rc::new(WriteBehind::new(
            Rc::new(ImageDevice(image)),
            usize::try_from(CACHE).unwrap_or(usize::MAX),
        ));
        let serving = {
            let device = image.clone();
            tokio::task::spawn_local(async move { transmit(server, device, &Limits::default()).await })
        };
        Ok(Self {
            image,
            sizes,
            device,
            read_only,
            cookie: args.cookie,
            serving,
        })
    }

    fn path(&self) -> String {
        format!("/dev/nbd{}", self.device)
    }

    /// Sets whether the device is read-only, as it would keep the state of its last use.
    async fn set_read_only(&self) -> Result<(), Exit> {
        let (path, read_only) = (self.path(), self.read_only);
        // On a thread of its own: the kernel looks for partitions when a device is opened.
        let set = tokio::task::spawn_blocking(move || kernel::set_read_only(&File::open(path)?, read_only));
        let set = set.await.unwrap_or_else(|e| Err(io::Error::other(e)));
        set.map_err(|e| self.give_up(&format!("failed to open device: {}: {e}", self.path())))
    }

    /// Disconnects a device that the caller has not been told of, and prints why.
    fn give_up(&self, why: &str) -> Exit {
        if let Err(e) = client::disconnect(self.device) {
            refuse(format!("netlink disconnect failed: {e}"));
        }
        refuse(why)
    }

    /// Tells the caller of the device, and leaves its session and its terminal. Later failures are
    /// written to the kernel's log, beside its own lines about the device.
    fn detach(&self, show_cookie: bool) -> Result<(), Exit> {
        let failed = |e: io::Error| self.give_up(&format!("can't go on in the background: {e}"));
        let log = File::options().write(true).open("/dev/kmsg");
        let null = File::options().write(true).open("/dev/null").map_err(failed)?;
        // Signals from the caller's terminal must not reach the device. The leader of a process
        // group, which the process may be, can't begin a session and stays in this one.
        let _ = setsid();
        // Memory that writes need must not wait for writes of this process.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        std::env::set_current_dir("/").map_err(failed)?;
        let mut line = self.path();
        if let Some(cookie) = self.cookie.as_deref().filter(|_| show_cookie) {
            line = format!("{line} {cookie}");
        }
        writeln!(io::stdout(), "{line}").map_err(failed)?;
        dup2_stderr(log.as_ref().unwrap_or(&null)).map_err(|e| failed(e.into()))?;
        dup2_stdout(null).map_err(|e| failed(e.into()))
    }

    /// Serves until the device is gone, then closes the image.
    async fn run(mut self, signals: &mut Signals) -> Result<(), Exit> {
        loop {
            tokio::select! {
                _ = &mut self.serving => break,
                changed = self.sizes.changed() => match changed {
                    Ok(()) => self.resize().await,
                    Err(_) => break,
                },
                () = signals.next() => self.end().await,
            }
        }
        self.finish().await
    }

    /// Waits until the kernel has disconnected, and closes the image.
    async fn finish(mut self) -> Result<(), Exit> {
        let path = self.path();
        if !self.serving.is_finished()
            && let Err(e) = (&mut self.serving).await
        {
            tracing::error!("{path}: {e}");
        }
        let flushed = self.image.flush().await;
        let image = Rc::into_inner(self.image).and_then(|d| Rc::into_inner(d.into_inner()));
        let Some(ImageDevice(image)) = image else {
            return Err(refuse(format!("{path}: in use to the end")));
        };
        let done = closed(image.close().await);
        flushed.map_err(|e| refuse(format!("{path}: {e}")))?;
        done
    }

    /// Disconnects the device, unless it is in use.
    async fn end(&self) {
        let (path, device) = (self.path(), self.device);
        let ended = tokio::task::spawn_blocking(move || match is_in_use(&path) {
            true => Err(errno::EBUSY.into()),
            false => client::disconnect(device),
        });
        if let Err(e) = ended.await.unwrap_or_else(|e| Err(io::Error::other(e))) {
            refuse(format!("/dev/nbd{device} stays: {e}"));
        }
    }

    /// Gives the device the image's new size.
    async fn resize(&mut self) {
        let size = *self.sizes.borrow_and_update();
        let (path, device, cookie) = (self.path(), self.device, self.cookie.clone());
        // On a thread of its own: the kernel reads and writes the device meanwhile.
        let resized = tokio::task::spawn_blocking(move || {
            let file = File::open(path)?;
            kernel::flush_buffers(&file)?;
            client::resize(device, size, cookie.as_deref())?;
            // One that is in use keeps its partitions.
            let _ = kernel::read_partitions(&file);
            Ok(())
        });
        if let Err(e) = resized.await.unwrap_or_else(|e| Err(io::Error::other(e))) {
            refuse(format!("/dev/nbd{device}: resize failed: {e}"));
        }
    }
}

/// The result of closing an image, after its error is printed.
fn closed(closed: spirula_rbd::Result<()>) -> Result<(), Exit> {
    closed.map_err(|e| refuse(format!("error closing image: {}", e.errno())))
}

/// Loads the kernel's NBD client.
fn load(args: &Args) -> Result<(), Exit> {
    let module = Path::new("/sys/module/nbd");
    if module.exists() {
        if args.nbds_max.or(args.max_part).is_some() {
            eprintln!("{PROCESS}: ignoring kernel module parameter options: nbd module already loaded");
        }
        return Ok(());
    }
    let mut parameters = vec![format!("max_part={}", args.max_part.unwrap_or(MAX_PART))];
    parameters.extend(args.nbds_max.map(|n| format!("nbds_max={n}")));
    kernel::load_module("nbd", &parameters, module)
        .map_err(|why| refuse(format!("failed to load nbd kernel module: {why}")))
}
