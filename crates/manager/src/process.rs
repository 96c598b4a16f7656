//! The manager's process, seen from both ends.
//!
//! What lies in pools is written by tenants, and the modules read it. Whatever they can be made to do by that, they do it in a
//! process that holds little: no key but those that the monitor lends it, no files, bounded memory. The monitor starts it as a child of its
//! own ([`Process`]), speaks with it through a pair of sockets (`wire.rs`), and starts another one when it ends or is silent.

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

/// The program that runs, also where its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// Variables that it gets of the monitor's: what is logged, whether developers may look into it, the local time.
const VARIABLES: [&str; 3] = ["SPIRULA_LOG", "SPIRULA_DUMPABLE", "TZ"];
/// Has the allocator take memory as it is used, and not a gigabyte at once, and give large pieces back when they are freed: what it has
/// counts against [`MEMORY`], whether it is used or not.
const ALLOCATOR: [(&str, &str); 2] = [
    ("MIMALLOC_ARENA_EAGER_COMMIT", "0"),
    ("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "1M"),
];
/// Bytes of memory that it may take: three copies of the largest object, as read, put together and on the way out, for each of which the
/// allocator maps 40 MiB, and what is needed anyhow.
const MEMORY: u64 = 192 << 20;
/// Requests that wait to be looked at, at either end.
const QUEUE: usize = 256;
/// How long the monitor may take to say what to start with.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many signs of life may get lost before it counts as silent.
const HEARTBEATS: u32 = 6;

/// The running manager. It is killed when this is dropped; what was on its way to the cluster then may still happen.
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
    /// Starts it, as a child of the calling thread, with which it ends. `tell` is called in a task of the calling `LocalSet`. Where nothing
    /// is heard for so long as `silence` says it is killed. [`News::Ended`] comes once, whatever ends it.
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

    /// Hands a request over; gives it back where too many wait, or the process has ended.
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

/// Speaks with the child until it ends or must be ended. Returns why.
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
    // One that closes the socket, or says what makes no sense, may not end by itself.
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

/// Ends a child; where it has hung up it is about to end, and left the time to do so by itself.
async fn end(child: &mut Child, is_ending: bool) -> io::Result<ExitStatus> {
    const MOMENT: Duration = Duration::from_secs(1);
    if is_ending && let Ok(status) = tokio::time::timeout(MOMENT, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

/// Why nothing more is heard of a child.
enum Heard {
    /// It said that it can't go on.
    Ended(String),
    /// It did what it must not.
    Fault(String),
    /// It has hung up.
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
            // Whoever has started it does not want it any more.
            None => return std::future::pending().await,
        };
    }
    // Why it can't be written to is heard from the other half.
    std::future::pending().await
}

/// Writes a value. What is too large was made here, and is never.
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
    /// It was started by hand.
    #[error("a monitor starts the manager, nobody else: {0}")]
    NotStartedByMonitor(io::Error),
    /// The system does not let it bound what it may take.
    #[error("the manager can't be confined: {0}")]
    NotConfined(io::Error),
    /// The monitor says what makes no sense.
    #[error("the manager heard what it does not understand: {0}")]
    Monitor(String),
}

/// Gives up what the manager does not need: it ends with the monitor, and its memory is bounded. To be called at once; what other
/// daemons give up it has given up already.
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

/// Is the manager, with the monitor at the other end of standard input, until that hangs up. Must be called inside a `LocalSet`.
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
