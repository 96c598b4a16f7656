//! The manager's process, seen from both ends.
//!
//! Tenants write the data in pools, and the modules read it. The modules run in a process that
//! holds little, in case that data makes them do harm: no keys but those that the monitor lends it,
//! no files, bounded memory. The monitor starts it as a child of its own ([`Process`]), talks to it
//! through a pair of sockets (`wire.rs`), and starts another one when it ends or is silent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use spirula_denc::Encode;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::service::{self, News, Request, Start};
use crate::wire::{self, FrameError};

/// The command with which the program becomes the manager.
pub const COMMAND: &str = "manager";

/// The running program's file, even if it was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// Environment variables that the manager inherits from the monitor: the log filter, whether
/// developers may look into the process, the local time.
const VARIABLES: [&str; 3] = ["SPIRULA_LOG", "SPIRULA_DUMPABLE", "TZ"];
/// Makes the allocator take memory as it is used, rather than a gigabyte at once, and return large
/// pieces when they are freed: all that it takes counts against [`MEMORY`].
const ALLOCATOR: [(&str, &str); 2] = [
    ("MIMALLOC_ARENA_EAGER_COMMIT", "0"),
    ("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "1M"),
];
/// The limit of the manager's memory in bytes: three copies of the largest object, as read,
/// assembled and on the way out, for each of which the allocator maps 40 MiB, and the rest of the
/// process.
const MEMORY: u64 = 192 << 20;
/// Requests that wait, at either end.
const QUEUE: usize = 256;
/// How long the monitor may take to send [`Start`].
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of missed signs of life after which the manager counts as silent.
const HEARTBEATS: u32 = 6;

/// The running manager. Dropping this kills it; its requests on the way to the cluster may still be
/// executed.
#[derive(Debug)]
pub struct Process {
    requests: mpsc::Sender<Request>,
    talking: JoinHandle<()>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // With it go the child, which is killed, and the sockets.
        self.talking.abort();
    }
}

impl Process {
    /// Starts the manager as a child of the calling thread, with which it ends. `tell` is called in
    /// a task of the calling `LocalSet`. After a silence of `silence` the manager is killed.
    /// [`News::Ended`] comes exactly once, whatever the cause.
    ///
    /// # Errors
    /// Where the system starts no process.
    pub fn start(mut start: Start, silence: Duration, tell: impl Fn(News) + 'static) -> io::Result<Self> {
        start.heartbeat = silence / HEARTBEATS;
        let (here, there) = StdStream::pair()?;
        here.set_nonblocking(true)?;
        let here = UnixStream::from_std(here)?;
        let child = spawn(Path::new(PROGRAM), there)?;
        let (requests, queue) = mpsc::channel(QUEUE);
        let talk = async move {
            let why = talk(child, here, (start, queue), silence, &tell).await;
            tell(News::Ended(why));
        };
        let talking = tokio::task::spawn_local(talk);
        Ok(Self { requests, talking })
    }

    /// Sends a request; returns it if too many wait, or the process has ended.
    ///
    /// # Errors
    /// The request.
    pub fn send(&self, request: Request) -> Result<(), Request> {
        if matches!(&request, Request::Ask(_, question) if !question.fits()) {
            return Err(request);
        }
        self.requests.try_send(request).map_err(|e| match e {
            mpsc::error::TrySendError::Full(r) | mpsc::error::TrySendError::Closed(r) => r,
        })
    }
}

fn spawn(program: &Path, socket: StdStream) -> io::Result<Child> {
    let mut command = Command::new(program);
    let variables = VARIABLES.into_iter();
    let variables = variables.filter_map(|name| Some((name, std::env::var_os(name)?)));
    command
        .arg(COMMAND)
        .env_clear()
        .envs(variables)
        .envs(ALLOCATOR)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::null())
        // A Ctrl-C at the terminal is for the monitor.
        .process_group(0)
        .kill_on_drop(true);
    command.spawn()
}

/// Talks to the child until it ends or must be ended. Returns the reason.
async fn talk(
    mut child: Child,
    socket: UnixStream,
    (start, queue): (Start, mpsc::Receiver<Request>),
    silence: Duration,
    tell: &impl Fn(News),
) -> String {
    let (from, to) = socket.into_split();
    let why = tokio::select! {
        why = hear(from, silence, tell) => why,
        why = ask(to, start, queue) => why,
    };
    // A child that closes the socket, or sends nonsense, may not end by itself.
    let ended = match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        _ => end(&mut child, matches!(why, Heard::Gone)).await,
    };
    match (why, ended) {
        (Heard::Ended(why) | Heard::Fault(why), _) => why,
        (Heard::Gone, Ok(status)) => format!("its process ended: {status}"),
        (Heard::Gone, Err(e)) => format!("its process can't be waited for: {e}"),
    }
}

/// Ends a child; one that has closed its socket is given time to end by itself.
async fn end(child: &mut Child, is_ending: bool) -> io::Result<ExitStatus> {
    const MOMENT: Duration = Duration::from_secs(1);
    if is_ending && let Ok(status) = tokio::time::timeout(MOMENT, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

/// Why the child sends nothing more.
enum Heard {
    /// It reported that it can't go on.
    Ended(String),
    /// It broke the protocol.
    Fault(String),
    /// It closed the socket.
    Gone,
}

impl From<FrameError> for Heard {
    fn from(e: FrameError) -> Self {
        match e {
            FrameError::Gone => Self::Gone,
            e => Self::Fault(format!("its process sent {e}")),
        }
    }
}

async fn hear(mut from: OwnedReadHalf, silence: Duration, tell: &impl Fn(News)) -> Heard {
    loop {
        match tokio::time::timeout(silence, wire::receive(&mut from)).await {
            Ok(Ok(News::Alive)) => {}
            Ok(Ok(News::Ended(why))) => return Heard::Ended(why),
            Ok(Ok(news)) => tell(news),
            Ok(Err(e)) => return e.into(),
            Err(_) => {
                let secs = silence.as_secs_f64();
                return Heard::Fault(format!(
                    "its process was silent for {secs} seconds and was killed"
                ));
            }
        }
    }
}

async fn ask(mut to: OwnedWriteHalf, start: Start, mut queue: mpsc::Receiver<Request>) -> Heard {
    let mut sent = write(&mut to, &start).await;
    drop(start);
    while sent.is_ok() {
        sent = match queue.recv().await {
            Some(request) => write(&mut to, &request).await,
            // The owner has dropped the handle.
            None => return std::future::pending().await,
        };
    }
    // Why it can't be written to is heard from the other half.
    std::future::pending().await
}

/// Writes a value. This end never makes one that is too large for a frame.
async fn write(to: &mut OwnedWriteHalf, value: &impl Encode) -> Result<(), FrameError> {
    match wire::frame(value) {
        Some(frame) => wire::send(to, &frame).await,
        None => {
            tracing::error!("a request of more than {} bytes is not made", wire::MAX_FRAME);
            Ok(())
        }
    }
}

/// Why the manager's process can't work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not started by a monitor.
    #[error("a monitor starts the manager, nobody else: {0}")]
    NotStartedByMonitor(io::Error),
    /// The system refuses to bound its resources.
    #[error("the manager can't be confined: {0}")]
    NotConfined(io::Error),
    /// The monitor sends messages that can't be decoded.
    #[error("the manager heard what it does not understand: {0}")]
    Monitor(String),
}

/// Gives up rights that the manager does not need: it ends with the monitor, and its memory is
/// bounded. To be called first; rights that all daemons give up are gone already.
///
/// # Errors
/// [`ServeError::NotConfined`].
pub fn restrict() -> Result<(), ServeError> {
    let failed = |e: rustix::io::Errno| ServeError::NotConfined(e.into());
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    let memory = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    setrlimit(Resource::Data, memory).map_err(failed)
}

/// Runs the manager, with the monitor at the other end of standard input, until the monitor closes
/// it. Must be called inside a `LocalSet`.
///
/// # Errors
/// Where nobody started it as [`Process`] does, and where what it hears makes no sense.
pub async fn serve() -> Result<(), ServeError> {
    let (mut from, to) = socket().map_err(ServeError::NotStartedByMonitor)?.into_split();
    let start = tokio::time::timeout(PATIENCE, wire::receive::<Start>(&mut from)).await;
    let start = match start {
        Ok(Ok(start)) => start,
        Ok(Err(FrameError::Gone)) => return Ok(()),
        Ok(Err(e)) => return Err(ServeError::Monitor(e.to_string())),
        Err(_) => return Err(ServeError::Monitor("nothing".to_owned())),
    };
    let (requests, queue) = mpsc::channel(QUEUE);
    // There is an answer to each question, of which there are few, and progress once a second.
    let (told, news) = mpsc::unbounded_channel();
    let tell = move |news| {
        // Nobody listens where it is to end.
        let _ = told.send(news);
    };
    tokio::select! {
        () = service::run(start, queue, Rc::new(tell)) => Ok(()),
        heard = requested(from, requests) => heard,
        () = tell_all(to, news) => Ok(()),
    }
}

/// Standard input, which must be a socket.
fn socket() -> io::Result<UnixStream> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let socket = StdStream::from(socket);
    socket.peer_addr()?;
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

async fn requested(mut from: OwnedReadHalf, requests: mpsc::Sender<Request>) -> Result<(), ServeError> {
    loop {
        let request = match wire::receive(&mut from).await {
            Ok(request) => request,
            Err(FrameError::Gone) => return Ok(()),
            Err(e) => return Err(ServeError::Monitor(e.to_string())),
        };
        if requests.send(request).await.is_err() {
            return Ok(());
        }
    }
}

async fn tell_all(mut to: OwnedWriteHalf, mut news: mpsc::UnboundedReceiver<News>) {
    while let Some(news) = news.recv().await {
        let Some(frame) = wire::frame_of_news(&news) else {
            continue;
        };
        if wire::send(&mut to, &frame).await.is_err() {
            return;
        }
        if matches!(news, News::Ended(_)) {
            // The monitor hears that, and ends this process.
            let _ = to.shutdown().await;
        }
    }
}
