//! A client for programs with several threads: gateways, file systems in user space.

use std::sync::Arc;
use std::time::Duration;

use spirula_cephx::AuthName;
use tokio::sync::oneshot;

use crate::worker::{self, Ended, Jobs, Worker};
use crate::{Connection, Error, IoCtx, Options, Rados, Result};

/// The name of the client's thread.
const THREAD: &str = "rados";

/// What the client may receive, in bytes: all there is. Requests wait for memory, so answers need not; and those who keep what they
/// have read, and ask for more, must not keep anybody's answer from being read.
const RECEIVED: usize = usize::MAX >> 1;
/// How often memory that nobody needs any more is given back.
const TRIM: Duration = Duration::from_secs(5);

/// A handle to a client that lives on a thread of its own. Any thread may use it, in any runtime or none; clones lead to the same
/// client, which ends when the last one is gone.
///
/// What requests under way and their answers take together is bounded by [`Options::memory`]: others wait before they are sent. What
/// is in an answer belongs to whoever has it, and counts no more.
#[derive(Clone)]
pub struct RadosHandle {
    worker: Worker<Rados>,
    name: Arc<AuthName>,
}

impl From<Ended> for Error {
    fn from(_: Ended) -> Self {
        Self::Mon(spirula_monc::Error::ShutDown)
    }
}

impl RadosHandle {
    /// Starts the thread, connects and logs in.
    ///
    /// # Errors
    /// Those of [`Rados::connect`]; [`Error::Config`] where the system starts no thread.
    pub async fn connect(options: &Options) -> Result<Self> {
        let (worker, jobs) = worker::channel(options.memory);
        let (connected, wait) = oneshot::channel();
        let name = Arc::new(options.name.clone());
        let options = Options {
            memory: RECEIVED,
            ..options.clone()
        };
        std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || thread(&options, jobs, connected))
            .map_err(|e| Error::Config(format!("no thread for the client: {e}")))?;
        wait.await.unwrap_or(Err(Ended.into()))?;
        Ok(Self { worker, name })
    }

    /// Who is connected.
    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Opens a pool by name.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn pool(&self, name: &str) -> Result<IoCtx<Self>> {
        let name = name.to_owned();
        let opened = self.run(
            0,
            |rados| async move { Ok(rados.pool(&name).await?.into_parts().1) },
        );
        Ok(IoCtx::from_parts(self.clone(), opened.await?))
    }

    /// Opens a pool by its id.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn pool_by_id(&self, id: i64) -> Result<IoCtx<Self>> {
        let opened = self.run(0, move |rados| async move {
            Ok(rados.pool_by_id(id).await?.into_parts().1)
        });
        Ok(IoCtx::from_parts(self.clone(), opened.await?))
    }

    /// Ends the client, whoever has handles to it. What is under way ends with [`spirula_monc::Error::ShutDown`], and whether it
    /// was done nobody knows.
    pub fn shut_down(&self) {
        self.worker.end();
    }
}

impl Connection for RadosHandle {
    async fn run<T, F, W>(&self, bytes: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Rados) -> W + Send + 'static,
        W: Future<Output = Result<T>> + 'static,
    {
        self.worker.run(bytes, work).await?
    }
}

/// The client's thread.
fn thread(options: &Options, jobs: Jobs<Rados>, mut connected: oneshot::Sender<Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            // Whoever asked may have given up.
            let _ = connected.send(Err(Error::Config(format!("no runtime for the client: {e}"))));
            return;
        }
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let rados = tokio::select! {
            rados = Rados::connect(options) => rados,
            () = connected.closed() => return,
        };
        let rados = match rados {
            Ok(rados) => rados,
            Err(e) => {
                let _ = connected.send(Err(e));
                return;
            }
        };
        if connected.send(Ok(())).is_err() {
            return;
        }
        let memory = rados.inner.config.pool.budget();
        let trim = async {
            loop {
                tokio::time::sleep(TRIM).await;
                memory.trim();
            }
        };
        tokio::select! {
            () = jobs.serve(rados) => {}
            () = trim => {}
        }
    });
}
