//! The supervisor's state of its daemons, and the socket on which `up` and `status` read it:
//! `run/supervisor.sock`. Each connection is sent one JSON object.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream as BlockingStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use crate::daemon::DaemonName;
use crate::error::Error;
use crate::layout::Layout;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is accepted, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// The supervisor's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// How often it has started missing daemons, the first time at its own start included.
    pub(crate) rounds: u64,
    /// Why the cluster's OSDs are not known yet.
    pub(crate) unknown: Option<String>,
    /// The daemons of the cluster in this directory, by name.
    pub(crate) daemons: BTreeMap<DaemonName, DaemonState>,
}

/// One daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonState {
    /// Its process, if it runs.
    pub(crate) pid: Option<i32>,
    /// How often it has ended in a row soon after it was started.
    pub(crate) deaths: u32,
    /// Whether it is not restarted automatically.
    pub(crate) stays_down: bool,
    /// The last words of the process before.
    pub(crate) last_words: Option<String>,
    /// Why it is not run at all, and the remedy.
    pub(crate) trouble: Option<String>,
}

impl DaemonState {
    /// Why it does not come up by itself.
    pub(crate) fn failure(&self) -> Option<&str> {
        let is_failing = self.deaths >= 2 || (self.stays_down && self.pid.is_none());
        self.last_words.as_deref().filter(|_| is_failing)
    }
}

/// Opens the supervisor's socket.
///
/// # Errors
/// What the file system says.
pub(super) fn listen(layout: &Layout) -> Result<UnixListener, Error> {
    let path = layout.supervisor_socket();
    spirula_asok::bind(&path).map_err(|e| Error::path("listen on", &path, e))
}

/// Sends the state to a connection.
pub(super) async fn tell(mut stream: UnixStream, state: &State) {
    let sent = async {
        let text = serde_json::to_vec(state)?;
        stream.write_all(&text).await?;
        stream.shutdown().await
    };
    match tokio::time::timeout(PATIENCE, sent).await {
        Ok(Ok(())) => {}
        // The reader has gone away, or does not read.
        Ok(Err(e)) => tracing::debug!("supervisor's socket: {e}"),
        Err(_) => tracing::debug!("supervisor's socket: a client does not read"),
    }
}

/// Asks the supervisor of `layout`; `None` if none answers, as none runs or an earlier version's
/// does.
pub(crate) async fn ask(layout: &Layout) -> Option<State> {
    let path = layout.supervisor_socket();
    let exchange = move || -> std::io::Result<State> {
        let stream = BlockingStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    tokio::task::spawn_blocking(exchange).await.ok()?.ok()
}
