//! A device in memory that records its requests, and a server of it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use spirula_errno::Errno;
use spirula_nbd::{BlockDevice, BlockSizes, DeviceError, Export, Extent, Geometry, Limits, Listener};
use spirula_nbd::{Server, Tls, Zeroing};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// The unit of extents.
const UNIT: usize = 64 << 10;

/// A device with a volatile cache, as disks have: unflushed data is only in `data`.
pub struct Memory {
    pub data: RefCell<Vec<u8>>,
    pub durable: RefCell<Vec<u8>>,
    pub log: RefCell<Vec<String>>,
    pub read_only: bool,
    /// Requests at this offset wait for permits.
    pub held: Cell<Option<u64>>,
    pub gate: Arc<Semaphore>,
    /// The errno of writes, 0 for success.
    pub broken: Cell<Option<Errno>>,
}

impl Memory {
    pub fn new(size: usize) -> Rc<Self> {
        Rc::new(Self::unshared(size))
    }

    pub fn unshared(size: usize) -> Self {
        Self {
            data: vec![0; size].into(),
            durable: vec![0; size].into(),
            log: RefCell::default(),
            read_only: false,
            held: Cell::default(),
            gate: Arc::new(Semaphore::new(0)),
            broken: Cell::default(),
        }
    }

    async fn begin(&self, what: String, offset: u64) {
        self.log.borrow_mut().push(what);
        if self.held.get() == Some(offset) {
            self.gate.acquire().await.unwrap().forget();
        }
        tokio::task::yield_now().await;
    }

    fn change(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), DeviceError> {
        if let Some(errno) = self.broken.get() {
            return Err(DeviceError::new(errno, "broken"));
        }
        let range = offset as usize..offset as usize + data.len();
        self.data.borrow_mut()[range.clone()].copy_from_slice(data);
        if fua {
            self.durable.borrow_mut()[range].copy_from_slice(data);
        }
        Ok(())
    }

    pub fn logged(&self, what: &str) -> usize {
        self.log.borrow().iter().filter(|l| l.starts_with(what)).count()
    }
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.data.borrow().len() as u64,
            read_only: self.read_only,
            blocks: BlockSizes::default(),
        }
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        self.begin(format!("read {offset}"), offset).await;
        let range = offset as usize..offset as usize + len as usize;
        Ok(Bytes::copy_from_slice(&self.data.borrow()[range]))
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), DeviceError> {
        self.begin(format!("write {offset}"), offset).await;
        self.change(offset, &data, fua)
    }

    async fn trim(&self, offset: u64, len: u32, fua: bool) -> Result<(), DeviceError> {
        self.begin(format!("trim {offset}"), offset).await;
        self.change(offset, &vec![0; len as usize], fua)
    }

    async fn write_zeroes(&self, offset: u64, len: u32, how: Zeroing, fua: bool) -> Result<(), DeviceError> {
        self.begin(format!("zero {offset}"), offset).await;
        if how.fast && how.allocate {
            return Err(DeviceError::not_fast());
        }
        self.change(offset, &vec![0; len as usize], fua)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let now = self.data.borrow().clone();
        self.begin("flush".into(), u64::MAX).await;
        self.durable.replace(now);
        Ok(())
    }

    async fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        let data = self.data.borrow();
        let asked = &data[offset as usize..offset as usize + len as usize];
        Ok(asked
            .chunks(UNIT)
            .map(|unit| {
                if unit.iter().all(|b| *b == 0) {
                    Extent::absent(unit.len() as u64)
                } else {
                    Extent::data(unit.len() as u64)
                }
            })
            .collect())
    }
}

/// A server that runs until it is told to end.
pub struct Running {
    pub directory: PathBuf,
    pub socket: PathBuf,
    pub port: u16,
    pub end: watch::Sender<bool>,
    pub tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Serves devices under names, on a Unix socket and a port.
    pub async fn start<D: BlockDevice + 'static>(
        exports: Vec<(&str, Rc<D>)>,
        tls: impl FnOnce(&Path) -> Option<Tls>,
        limits: Limits,
    ) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("spirula-nbd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("nbd");
        let exports = exports
            .into_iter()
            .map(|(name, device)| Export {
                name: name.into(),
                description: String::new(),
                device,
            })
            .collect();
        let server = Server::new(exports, tls(&directory), limits).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = tcp.local_addr().unwrap().port();
        let unix = UnixListener::bind(&socket).unwrap();
        let (end, ends) = watch::channel(false);
        let listeners = [Listener::Tcp(tcp), Listener::Unix(unix)];
        let tasks = listeners
            .map(|listener| {
                let (server, ends) = (server.clone(), ends.clone());
                tokio::task::spawn_local(async move { server.serve(listener, ends).await })
            })
            .into();
        Self {
            directory,
            socket,
            port,
            end,
            tasks,
        }
    }

    pub async fn one<D: BlockDevice + 'static>(device: Rc<D>) -> Self {
        Self::start(vec![("disk", device)], |_| None, Limits::default()).await
    }

    pub async fn stop(self) {
        self.end.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::fs::remove_dir_all(self.directory).unwrap();
    }
}

/// Runs a test on this thread.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limited = async {
        let limit = std::time::Duration::from_secs(120);
        tokio::time::timeout(limit, test).await.expect("in time");
    };
    tokio::task::LocalSet::new().block_on(&runtime, limited);
}

/// Data that is nowhere zero and does not repeat.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 | 1
        })
        .collect()
}
