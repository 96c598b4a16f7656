//! A thread that owns a value which must not leave it, and the handle through which other threads
//! give it jobs: [`Worker`].
//!
//! Each job is a function that is called with the owned value on the thread, and the future that it
//! returns runs there beside those of other jobs. The memory of all jobs under way is bounded.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Memory is counted in pieces of this many bytes; a job takes at least one.
const PIECE: usize = 1 << 10;

/// A future of the worker's thread.
type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// A function that is called on the worker's thread.
type Job<C> = Box<dyn FnOnce(C) -> Local<()> + Send>;

/// The worker has ended: the job was not done, or it is not known whether it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

/// A handle; the thread ends when the last one is gone, or at [`Worker::end`].
pub(crate) struct Worker<C> {
    jobs: mpsc::UnboundedSender<Job<C>>,
    room: Arc<Room>,
}

/// The memory budget of jobs.
struct Room {
    free: Arc<Semaphore>,
    pieces: u32,
    end: tokio::sync::Notify,
}

impl Room {
    fn new(bytes: usize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let pieces = (bytes / PIECE).clamp(1, most);
        Self {
            free: Arc::new(Semaphore::new(pieces)),
            pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
            end: tokio::sync::Notify::new(),
        }
    }

    /// Waits for memory. A job that is larger than the budget takes all of it.
    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Ended> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        let pieces = pieces.clamp(1, self.pieces);
        let taken = Arc::clone(&self.free).acquire_many_owned(pieces).await;
        taken.map_err(|_| Ended)
    }
}

impl<C> Clone for Worker<C> {
    fn clone(&self) -> Self {
        Self {
            jobs: self.jobs.clone(),
            room: Arc::clone(&self.room),
        }
    }
}

/// The worker's end of the channel.
pub(crate) struct Jobs<C> {
    jobs: mpsc::UnboundedReceiver<Job<C>>,
    room: Arc<Room>,
}

/// When the thread ends, in whatever way, no caller waits for memory any more. Callers of its jobs
/// notice as their channels close.
impl<C> Drop for Jobs<C> {
    fn drop(&mut self) {
        self.room.free.close();
    }
}

/// A worker whose jobs may take `memory` bytes together, and its end to be served.
pub(crate) fn channel<C>(memory: usize) -> (Worker<C>, Jobs<C>) {
    let (sender, jobs) = mpsc::unbounded_channel();
    let room = Arc::new(Room::new(memory));
    let worker = Worker {
        jobs: sender,
        room: Arc::clone(&room),
    };
    (worker, Jobs { jobs, room })
}

impl<C: 'static> Worker<C> {
    /// Runs `work` on the worker's thread as soon as there are `bytes` of memory for it. Dropping
    /// the future drops the job, too.
    ///
    /// # Errors
    /// [`Ended`].
    pub(crate) async fn run<T, F, W>(&self, bytes: usize, work: F) -> Result<T, Ended>
    where
        T: Send + 'static,
        F: FnOnce(C) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        let taken = self.room.take(bytes).await?;
        let (mut answer, wait) = oneshot::channel();
        let job = move |owned: C| -> Local<()> {
            Box::pin(async move {
                // Released with the job, which may be after its caller has given up.
                let _taken = taken;
                if answer.is_closed() {
                    return;
                }
                let done = tokio::select! {
                    biased;
                    () = answer.closed() => return,
                    done = work(owned) => done,
                };
                // The caller may have given up just now.
                let _ = answer.send(done);
            })
        };
        self.jobs.send(Box::new(job)).map_err(|_| Ended)?;
        wait.await.map_err(|_| Ended)
    }

    /// Ends the worker: jobs under way are dropped.
    pub(crate) fn end(&self) {
        self.room.end.notify_one();
    }
}

impl<C: Clone + 'static> Jobs<C> {
    /// Serves until the last handle is gone, or [`Worker::end`]; then drops the jobs under way.
    pub(crate) async fn serve(mut self, owned: C) {
        let mut under_way = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.room.end.notified() => return,
                job = self.jobs.recv() => match job {
                    Some(job) => drop(under_way.spawn_local(job(owned.clone()))),
                    None => return,
                },
                Some(done) = under_way.join_next() => if let Err(e) = done {
                    tracing::error!("a job of the client's thread: {e}");
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::thread::JoinHandle;

    use super::*;

    /// A worker that owns a number.
    fn start(memory: usize) -> (Worker<Rc<Cell<u32>>>, JoinHandle<u32>) {
        let (worker, jobs) = channel(memory);
        let thread = std::thread::spawn(move || {
            let owned = Rc::new(Cell::new(0));
            run(jobs.serve(Rc::clone(&owned)));
            owned.get()
        });
        (worker, thread)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }

    async fn add(worker: &Worker<Rc<Cell<u32>>>, n: u32) -> Result<u32, Ended> {
        let work = move |owned: Rc<Cell<u32>>| async move {
            owned.set(owned.get() + n);
            owned.get()
        };
        worker.run(0, work).await
    }

    /// Sets the number when it is dropped.
    struct Tell(Rc<Cell<u32>>, oneshot::Receiver<()>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.set(77);
        }
    }

    #[test]
    fn several_threads_have_it_work_until_the_last_is_gone() {
        let (worker, thread) = start(PIECE);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let worker = worker.clone();
                std::thread::spawn(move || {
                    run(async {
                        for _ in 0..100 {
                            add(&worker, 1).await.unwrap();
                        }
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(worker);
        assert_eq!(thread.join().unwrap(), 400);
    }

    #[test]
    fn what_nobody_waits_for_is_dropped() {
        let (worker, thread) = start(PIECE);
        run(async {
            let (begun, has_begun) = oneshot::channel();
            let (_never, never) = oneshot::channel();
            let job = worker.run(0, move |owned: Rc<Cell<u32>>| async move {
                begun.send(()).unwrap();
                let mut tell = Tell(owned, never);
                let _ = (&mut tell.1).await;
            });
            tokio::select! {
                _ = job => panic!("it never ends"),
                begun = has_begun => begun.unwrap(),
            }
            // All memory was its own: this one begins only after it is gone.
            assert_eq!(add(&worker, 1).await, Ok(78));
        });
        drop(worker);
        assert_eq!(thread.join().unwrap(), 78);
    }

    #[test]
    fn jobs_wait_for_memory_and_the_largest_has_it_alone() {
        let (worker, thread) = start(4 * PIECE);
        run(async {
            let (go, wait) = oneshot::channel::<()>();
            let large = worker.run(usize::MAX, |owned: Rc<Cell<u32>>| async move {
                let _ = wait.await;
                owned.set(1);
            });
            let small = add(&worker, 1);
            tokio::pin!(large, small);
            tokio::select! {
                biased;
                _ = &mut large => panic!("it waits"),
                _ = &mut small => panic!("there is no memory"),
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(worker.room.free.available_permits(), 0);
            go.send(()).unwrap();
            large.await.unwrap();
            assert_eq!(small.await, Ok(2));
        });
        drop(worker);
        assert_eq!(thread.join().unwrap(), 2);
    }

    #[test]
    fn its_end_answers_everybody() {
        let (worker, thread) = start(PIECE);
        run(async {
            let (begun, has_begun) = oneshot::channel();
            let under_way = worker.run(0, move |_| async move {
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            });
            // It waits for memory.
            let waiting = add(&worker, 1);
            let end = async {
                has_begun.await.unwrap();
                worker.end();
            };
            let (under_way, waiting, ()) = tokio::join!(under_way, waiting, end);
            assert_eq!((under_way, waiting), (Err(Ended), Err(Ended)));
            assert_eq!(add(&worker, 1).await, Err(Ended));
        });
        assert_eq!(thread.join().unwrap(), 0);
    }
}
