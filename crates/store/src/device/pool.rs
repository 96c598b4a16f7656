//! The fallback where io_uring is forbidden: a few threads that block in pread and pwritev.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use super::{BlockIo, CachedIo, Device, Done, FileIo, Io, IoKind};
use crate::notify::Notify;

#[derive(Default)]
struct Queues {
    todo: VecDeque<Io>,
    done: Vec<Done>,
    closing: bool,
}

struct Shared {
    file: Arc<FileIo>,
    queues: Mutex<Queues>,
    work: Condvar,
    notify: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut queues = self.lock();
            let io = loop {
                if let Some(io) = queues.todo.pop_front() {
                    break io;
                }
                if queues.closing {
                    return; // The device is gone, and so is what waits for it.
                }
                queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queues);
            let done = perform(&self.file, io);
            self.lock().done.push(done);
            self.notify.wake();
        }
    }
}

fn perform(file: &FileIo, io: Io) -> Done {
    let (result, buf) = match io.kind {
        IoKind::Read { offset, mut buf, way } => (file.read(offset, &mut buf, way), Some(buf)),
        IoKind::Write {
            offset,
            bufs,
            durable,
        } => {
            let result = file.write_vectored(offset, &bufs, durable);
            let len: usize = bufs.iter().map(Bytes::len).sum();
            file.written(offset..offset + len as u64);
            (result, None)
        }
        IoKind::Flush => (file.sync(), None),
    };
    Done {
        tag: io.tag,
        result,
        buf,
    }
}

/// A device served by threads.
pub struct PoolDevice {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queued: bool,
}

impl PoolDevice {
    /// Starts `threads` threads on `file`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(file: Arc<FileIo>, notify: Notify, threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            file,
            queues: Mutex::default(),
            work: Condvar::new(),
            notify,
        });
        let mut device = Self {
            shared,
            threads: Vec::new(),
            queued: false,
        };
        for i in 0..threads {
            let shared = Arc::clone(&device.shared);
            let name = format!("store-io-{i}");
            let spawn = thread::Builder::new()
                .name(name)
                .stack_size(256 << 10)
                .spawn(move || shared.run());
            device.threads.push(spawn?);
        }
        Ok(device)
    }
}

impl Device for PoolDevice {
    fn size(&self) -> u64 {
        self.shared.file.size()
    }

    fn queue(&mut self, io: Io) {
        self.shared.lock().todo.push_back(io);
        self.queued = true;
    }

    fn kick(&mut self) {
        if std::mem::take(&mut self.queued) {
            self.shared.work.notify_all();
        }
    }

    fn reap(&mut self, out: &mut Vec<Done>) {
        out.append(&mut self.shared.lock().done);
    }

    fn blocking(&self) -> Arc<dyn BlockIo> {
        Arc::clone(&self.shared.file) as Arc<dyn BlockIo>
    }

    fn cached(&self) -> Arc<dyn BlockIo> {
        Arc::new(CachedIo(Arc::clone(&self.shared.file)))
    }

    fn read_cached(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        self.shared.file.read_cached(offset, buf)
    }

    fn drop_cached(&mut self, part: Range<u64>) {
        self.shared.file.drop_cached(part);
    }
}

impl Drop for PoolDevice {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to clean up.
            let _ = thread.join();
        }
    }
}
