//! Tasks on a virtual clock, one at a time, in an order that follows from a seed alone.
//!
//! openraft asks its runtime for tasks, timers and chance through functions without a receiver, so
//! there is one executor a thread. Every task belongs to a process, and ends with it. A timer fires
//! only when it is its turn, so no event comes at the same moment as a timeout: openraft, which
//! chooses between the two at random, never has a choice.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use openraft::AsyncRuntime;
use openraft::async_runtime::TokioOneShotSender;
use spirula_mon::raft::{Runtime, Stopped};
use tokio::sync::oneshot;

use spirula_random::Rng;

/// A process, whose tasks end together.
pub(crate) type Process = u64;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Exec>>> = const { RefCell::new(None) };
}

/// The future of a task.
type Work = Pin<Box<dyn Future<Output = ()>>>;
type Queue = Arc<Mutex<VecDeque<u64>>>;
type Timers = BTreeMap<(u64, u64), Arc<Mutex<Timer>>>;

/// How long a disk operation waits, in microseconds.
#[derive(Default)]
struct DiskTimes {
    /// Before the disk is called.
    before: u64,
    /// After the call.
    after: u64,
}

/// The executor.
pub(crate) struct Exec {
    now: Cell<u64>,
    last_timer: Cell<u64>,
    last_task: Cell<u64>,
    timers: RefCell<Timers>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    ready: Queue,
    /// The process whose task is being polled.
    process: Cell<Process>,
    rng: RefCell<Rng>,
    /// The longest time that disk operations of a process take, in microseconds.
    disks: RefCell<BTreeMap<Process, u64>>,
}

struct Task {
    process: Process,
    /// Taken out while it is polled.
    future: Option<Work>,
}

#[derive(Default)]
struct Timer {
    fired: bool,
    waker: Option<Waker>,
}

struct Wakes {
    task: u64,
    ready: Queue,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = lock(&self.ready);
        if !ready.contains(&self.task) {
            ready.push_back(self.task);
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread has an executor as long as this exists; all tasks end with it.
pub(crate) struct Entered(Rc<Exec>);

impl Drop for Entered {
    fn drop(&mut self) {
        loop {
            let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        CURRENT.with(|c| c.borrow_mut().take());
    }
}

impl Exec {
    /// Gives the thread an executor.
    pub(crate) fn enter(rng: Rng) -> (Rc<Self>, Entered) {
        let exec = Rc::new(Self {
            now: Cell::new(0),
            last_timer: Cell::new(0),
            last_task: Cell::new(0),
            timers: RefCell::default(),
            tasks: RefCell::default(),
            ready: Arc::default(),
            process: Cell::new(0),
            rng: RefCell::new(rng),
            disks: RefCell::default(),
        });
        CURRENT.with(|c| *c.borrow_mut() = Some(exec.clone()));
        (exec.clone(), Entered(exec))
    }

    /// Calls `f` with the thread's executor; returns the default without one, as while it ends.
    fn with<T: Default>(f: impl FnOnce(&Rc<Self>) -> T) -> T {
        let current = CURRENT.with(|c| c.try_borrow().ok().and_then(|c| c.clone()));
        current.map_or_else(T::default, |e| f(&e))
    }

    /// Microseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// A task of a process.
    pub(crate) fn spawn(&self, process: Process, future: impl Future<Output = ()> + 'static) {
        let id = self.last_task.get() + 1;
        self.last_task.set(id);
        let task = Task {
            process,
            future: Some(Box::pin(future)),
        };
        self.tasks.borrow_mut().insert(id, task);
        lock(&self.ready).push_back(id);
    }

    /// Ends a process: none of its tasks is polled any more.
    pub(crate) fn kill(&self, process: Process) {
        self.disks.borrow_mut().remove(&process);
        let ended: Vec<Task> = {
            let mut tasks = self.tasks.borrow_mut();
            let of = |t: &Task| t.process == process;
            let ids: Vec<u64> = tasks.iter().filter(|(_, t)| of(t)).map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        drop(ended);
    }

    /// Sets how long disk operations of a process take at most, in microseconds.
    pub(crate) fn set_disk(&self, process: Process, most: u64) {
        self.disks.borrow_mut().insert(process, most);
    }

    /// Polls all tasks that can go on.
    pub(crate) fn settle(&self) {
        loop {
            let next = lock(&self.ready).pop_front();
            let Some(id) = next else { return };
            let Some((process, mut future)) = self.take(id) else {
                continue;
            };
            self.process.set(process);
            let ready = self.ready.clone();
            let waker = Waker::from(Arc::new(Wakes { task: id, ready }));
            let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            self.process.set(0);
            if !done && let Some(task) = self.tasks.borrow_mut().get_mut(&id) {
                task.future = Some(future);
                continue;
            }
            self.tasks.borrow_mut().remove(&id);
            drop(future);
        }
    }

    fn take(&self, id: u64) -> Option<(Process, Work)> {
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(&id)?;
        Some((task.process, task.future.take()?))
    }

    /// Advances to the next timer and fires it; false if none is due before `end`.
    pub(crate) fn fire(&self, end: u64) -> bool {
        let next = {
            let mut timers = self.timers.borrow_mut();
            match timers.first_entry() {
                Some(first) if first.key().0 <= end => Some(first.remove_entry()),
                _ => None,
            }
        };
        let Some(((at, _), timer)) = next else {
            self.now.set(end);
            return false;
        };
        self.now.set(at);
        let waker = {
            let mut t = lock(&timer);
            t.fired = true;
            t.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
        true
    }

    fn sleep_until(&self, at: u64) -> Sleep {
        let number = self.last_timer.get() + 1;
        self.last_timer.set(number);
        let key = (at.max(self.now()), number);
        let timer = Arc::<Mutex<Timer>>::default();
        self.timers.borrow_mut().insert(key, timer.clone());
        Sleep { key, timer }
    }

    fn disk_times(&self) -> DiskTimes {
        let most = self.disks.borrow().get(&self.process.get()).copied();
        let most = most.unwrap_or(0);
        let mut rng = self.rng.borrow_mut();
        DiskTimes {
            before: rng.below(most),
            after: rng.below(most),
        }
    }
}

/// Waits for so many microseconds.
pub(crate) fn sleep(usec: u64) -> Sleep {
    Exec::with(|e| Some(e.sleep_until(e.now().saturating_add(usec)))).unwrap_or_default()
}

/// A timer. It registers when it is made, not when it is first asked.
#[derive(Default)]
pub(crate) struct Sleep {
    key: (u64, u64),
    timer: Arc<Mutex<Timer>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut timer = lock(&self.timer);
        if timer.fired {
            return Poll::Ready(());
        }
        timer.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        Exec::with(|e| {
            e.timers.borrow_mut().remove(&self.key);
        });
    }
}

/// A future with a time limit.
pub(crate) struct Timeout<T> {
    future: Pin<Box<T>>,
    sleep: Sleep,
}

/// The time limit has passed.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not in time")
    }
}

impl<T: Future> Future for Timeout<T> {
    type Output = Result<T::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(done) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        Pin::new(&mut self.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}

/// The end of a task.
pub(crate) struct Join<T>(oneshot::Receiver<T>);

impl<T> Future for Join<T> {
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// A moment of the virtual clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    fn usec(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d))
    }
}

impl SubAssign<Duration> for Moment {
    fn sub_assign(&mut self, d: Duration) {
        *self = *self - d;
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, other: Self) -> Duration {
        self.0.saturating_sub(other.0)
    }
}

impl openraft::Instant for Moment {
    fn now() -> Self {
        Self(Duration::from_micros(Exec::with(|e| e.now())))
    }
}

/// The run's source of chance.
pub(crate) struct Chance;

impl rand::RngCore for Chance {
    fn next_u32(&mut self) -> u32 {
        chance()
    }

    fn next_u64(&mut self) -> u64 {
        u64::from(chance()) << 32 | u64::from(chance())
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        for part in dest.chunks_mut(4) {
            part.copy_from_slice(&chance().to_le_bytes()[..part.len()]);
        }
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

fn chance() -> u32 {
    Exec::with(|e| u32::try_from(e.rng.borrow_mut().below(1 << 32)).unwrap_or(0))
}

/// The runtime of the log in the simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Virtual;

impl AsyncRuntime for Virtual {
    type JoinError = oneshot::error::RecvError;
    type JoinHandle<T: Send + 'static> = Join<T>;
    type Sleep = Sleep;
    type Instant = Moment;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + Send> = Timeout<T>;
    type ThreadLocalRng = Chance;
    type OneshotSender<T: Send> = TokioOneShotSender<T>;
    type OneshotReceiverError = oneshot::error::RecvError;
    type OneshotReceiver<T: Send> = oneshot::Receiver<T>;

    fn spawn<T>(future: T) -> Join<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        Exec::with(|e| {
            e.spawn(e.process.get(), async move {
                // Nobody may wait for it.
                let _ = tx.send(future.await);
            });
        });
        Join(rx)
    }

    fn sleep(duration: Duration) -> Sleep {
        sleep(Moment(duration).usec())
    }

    fn sleep_until(deadline: Moment) -> Sleep {
        Exec::with(|e| Some(e.sleep_until(deadline.usec()))).unwrap_or_default()
    }

    fn timeout<R, F: Future<Output = R> + Send>(duration: Duration, future: F) -> Timeout<F> {
        Timeout {
            future: Box::pin(future),
            sleep: Self::sleep(duration),
        }
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(deadline: Moment, future: F) -> Timeout<F> {
        Timeout {
            future: Box::pin(future),
            sleep: Self::sleep_until(deadline),
        }
    }

    fn is_panic(_: &Self::JoinError) -> bool {
        // A panic ends the run.
        false
    }

    fn thread_rng() -> Chance {
        Chance
    }

    fn oneshot<T: Send>() -> (TokioOneShotSender<T>, oneshot::Receiver<T>) {
        let (tx, rx) = oneshot::channel();
        (TokioOneShotSender(tx), rx)
    }
}

impl Runtime for Virtual {
    type Tasks = Self;

    async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopped> {
        let DiskTimes { before, after } = Exec::with(|e| e.disk_times());
        sleep(before).await;
        let done = f();
        sleep(after).await;
        Ok(done)
    }
}
