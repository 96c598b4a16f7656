//! `rbd serve`: images as network block devices, for everything that speaks NBD: QEMU, libnbd,
//! `nbd-client`.

mod device;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;

pub(super) use device::ImageDevice;
use spirula_client::errno::{self, Errno};
use spirula_nbd::{BlockDevice, Export, Limits, Listener, Server, Tls, WriteBehind};
use spirula_rbd::Options;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::spec::Spec;
use super::{Done, Tool, bad, complain, failed, size};
use crate::rbd::Exit;

/// The protocol's port.
const PORT: u16 = 10809;
/// The default number of bytes that are answered before they are written: the size of librbd's
/// cache.
pub(super) const CACHE: u64 = 32 << 20;

// The options of `serve`. A doc comment would become the text above all options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen, as ADDR or ADDR:PORT; may be given several times [127.0.0.1 without
    /// --socket]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// A Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Nothing can be written
    #[arg(long)]
    pub(super) read_only: bool,
    /// The images' locks are not passed on to clients that ask for them
    #[arg(long)]
    pub(super) exclusive: bool,
    /// Bytes of each image that are answered before they are written, until a flush; 0 for none,
    /// else 32M
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// The server's certificate and those above it, in PEM; clients must use TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Clients need a certificate that one of these has signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Clients may go without TLS
    #[arg(long, requires = "tls_cert")]
    tls_optional: bool,
}

impl Args {
    fn tls(&self) -> Result<Option<Tls>, Exit> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let ca = self.tls_client_ca.as_deref();
        let tls = Tls::from_files(certificate, key, ca, !self.tls_optional);
        Ok(Some(tls.map_err(bad)?))
    }

    fn cache(&self) -> Result<usize, Exit> {
        let bytes = self.cache.as_deref().map(|text| size("cache", text, 1));
        Ok(usize::try_from(bytes.transpose()?.unwrap_or(CACHE)).unwrap_or(usize::MAX))
    }
}

type Device = WriteBehind<ImageDevice>;

/// A served image, and the name of its export.
struct Served {
    name: String,
    device: Rc<Device>,
}

impl Tool {
    pub(super) async fn serve(&self) -> Done {
        if self.words.is_empty() {
            return Err(bad("image name was not specified"));
        }
        let tls = self.args.serve.tls()?;
        let mut signals = Signals::new()?;
        let mut images = Vec::new();
        let done = match self.open_served(&mut images).await {
            Ok(()) => self.serve_until_told(&images, tls, &mut signals).await,
            Err(code) => Err(code),
        };
        let closing = close(images);
        let closed = tokio::select! {
            closed = closing => closed,
            () = signals.next() => Err(complain(errno::EIO, "ended with requests under way")),
        };
        done.and(closed)
    }

    async fn open_served(&self, images: &mut Vec<Served>) -> Done {
        let args = &self.args;
        let cache = args.serve.cache()?;
        for word in &self.words {
            let spec = Spec::parse(word).ok_or_else(|| bad(format!("invalid spec '{word}'")))?;
            let target = self
                .open_spec(spec, [&args.pool, &args.namespace, &args.snap])
                .await?;
            let options = Options {
                read_only: args.serve.read_only,
                snapshot: target.spec.snap.clone(),
                exclusive: args.serve.exclusive,
                ..Options::default()
            };
            let image = target.open(options).await?;
            images.push(Served {
                name: word.clone(),
                device: Rc::new(WriteBehind::new(Rc::new(ImageDevice(image)), cache)),
            });
        }
        Ok(())
    }

    /// Serves until a signal comes, and then until the requests under way have ended, or another
    /// signal comes.
    async fn serve_until_told(&self, images: &[Served], tls: Option<Tls>, signals: &mut Signals) -> Done {
        let exports = images.iter().map(|image| Export {
            name: image.name.clone(),
            description: format!("RBD image {}", image.name),
            device: image.device.clone(),
        });
        let open = tls.is_none();
        let server = Server::new(exports.collect(), tls, Limits::default()).map_err(bad)?;
        let (listeners, _socket) = self.listeners(open).await?;
        let (end, ends) = watch::channel(false);
        let serving: Vec<JoinHandle<()>> = listeners
            .into_iter()
            .map(|listener| {
                let (server, ends) = (server.clone(), ends.clone());
                tokio::task::spawn_local(async move { server.serve(listener, ends).await })
            })
            .collect();
        signals.next().await;
        end.send_replace(true);
        let all = async {
            for task in serving {
                if let Err(e) = task.await {
                    tracing::error!("{e}");
                }
            }
        };
        tokio::select! {
            () = all => Ok(()),
            () = signals.next() => Err(complain(errno::EIO, "ended with requests under way")),
        }
    }

    /// Listens, and prints the addresses. `open` is whether clients need no certificate.
    async fn listeners(&self, open: bool) -> Result<(Vec<Listener>, Option<SocketFile>), Exit> {
        let args = &self.args.serve;
        let mut listeners = Vec::new();
        let mut file = None;
        if let Some(path) = &args.socket {
            let listener = spirula_asok::bind(path).map_err(|e| cannot_listen(path.display(), &e))?;
            println!("serving on nbd+unix:///?socket={}", path.display());
            listeners.push(Listener::Unix(listener));
            file = Some(SocketFile(path.clone()));
        }
        let local = ["127.0.0.1".to_owned()];
        let addresses = match args.listen.is_empty() && file.is_none() {
            true => &local[..],
            false => &args.listen[..],
        };
        for text in addresses {
            let listener = listen(text).await.map_err(|e| cannot_listen(text, &e))?;
            let address = listener.local_addr().map_err(|e| cannot_listen(text, &e))?;
            if open && !address.ip().is_loopback() {
                eprintln!("rbd: without TLS, everybody who reaches {address} can use the images");
            }
            println!("serving on nbd://{address}");
            listeners.push(Listener::Tcp(listener));
        }
        Ok((listeners, file))
    }
}

fn cannot_listen(place: impl Display, e: &std::io::Error) -> Exit {
    complain(Errno::from(e), format!("can't listen on {place}: {e}"))
}

/// Listens on an address; the protocol's port is the default.
async fn listen(text: &str) -> std::io::Result<TcpListener> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
        Ok(ip) => vec![(ip, PORT).into()],
        Err(_) if text.contains(':') => text.to_socket_addrs()?.collect(),
        Err(_) => (text, PORT).to_socket_addrs()?.collect(),
    };
    TcpListener::bind(&addresses[..]).await
}

/// The file of a Unix socket, until it is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A leftover file is replaced the next time.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes all answered data, gives the locks up and closes the images.
async fn close(images: Vec<Served>) -> Done {
    let mut done = Ok(());
    for Served { name, device } in images {
        if let Err(e) = device.flush().await {
            done = Err(complain(errno::EIO, format!("{name}: {e}")));
        }
        let image = Rc::into_inner(device).and_then(|d| Rc::into_inner(d.into_inner()));
        let Some(ImageDevice(image)) = image else {
            // Broken-off requests have it; its lock ends with this process's watch.
            done = Err(complain(errno::EIO, format!("{name}: in use to the end")));
            continue;
        };
        if let Err(e) = image.close().await {
            done = Err(failed(format!("error closing image {name}"), &e));
        }
    }
    done
}

/// The signals that end a server.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Exit> {
        let of =
            |kind| signal(kind).map_err(|e| complain(Exit::USAGE, format!("can't watch for signals: {e}")));
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
