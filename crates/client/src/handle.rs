//! A client for programs with several threads: gateways, file systems in user space.

use std::sync::Arc;
use std::time::Duration;

use spirula_cephx::AuthName;
use spirula_maps::PoolId;
use tokio::sync::oneshot;

use crate::worker::{self, Ended, Jobs, Worker};
use crate::{Connection, Error, IoCtx, Options, Rados, Result};

/// The name of the client's thread.
const THREAD: &str = "rados";

/// The receive budget of the client's thread in bytes: unlimited. Requests wait for memory before
/// they are sent, so answers need not wait; and callers that keep their answers must not hold up
/// the answers of others.
const RECEIVED: usize = usize::MAX >> 1;
/// How often unused memory is returned to the system.
const TRIM: Duration = Duration::from_secs(5);

/// A handle to a client that lives on a thread of its own. Any thread may use it, in any runtime or
/// none; clones lead to the same client, which ends when the last one is gone.
///
/// The memory of all requests under way and their answers is bounded by [`Options::memory`]:
/// further requests wait before they are sent. A delivered answer belongs to its caller and does
/// not count any more.
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

    /// The entity that is logged in.
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
    pub async fn pool_by_id(&self, id: PoolId) -> Result<IoCtx<Self>> {
        let opened = self.run(0, move |rados| async move {
            Ok(rados.pool_by_id(id).await?.into_parts().1)
        });
        Ok(IoCtx::from_parts(self.clone(), opened.await?))
    }

    /// Ends the client for all its handles. Requests under way fail with
    /// [`spirula_monc::Error::ShutDown`], and may have been executed or not.
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
            // The caller may have given up.
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
