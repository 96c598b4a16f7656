//! A client's handle for programs with several threads, used by several at once.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use spirula_client::{Connection, IoCtx, Options, RadosHandle, Source, WatchNews, errno};

use crate::common::Cluster;

type Pool = IoCtx<RadosHandle>;

/// Threads at work, and objects of each.
const THREADS: usize = 4;
const OBJECTS: usize = 24;

/// Less than the requests of all threads need together: they wait for each other.
const MEMORY: usize = 1 << 20;

fn options(conf: &Path) -> Options {
    let source = Source {
        conf: Some(conf.to_owned()),
        name: "client.admin".parse().unwrap(),
        ..Source::default()
    };
    Options {
        memory: MEMORY,
        ..source.read().unwrap()
    }
}

/// Waits for a future on this thread. The handle needs no runtime here.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls a future once, so that its request is on its way.
fn begin(future: std::pin::Pin<&mut impl Future>) {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

fn data(thread: usize, n: usize) -> Bytes {
    let len = [100, 5000, 400_000, MEMORY + 1][n % 4];
    Bytes::from(vec![(thread * 31 + n) as u8; len])
}

/// The data in several buffers, as it arrives from a socket.
fn pieces(data: &Bytes) -> Vec<Bytes> {
    let cut = data.len() / 3;
    vec![
        data.slice(..cut),
        Bytes::new(),
        data.slice(cut..cut + 7),
        data.slice(cut + 7..),
    ]
}

/// The work of one thread, which counts its writes.
async fn work(pool: Pool, thread: usize, written: Arc<AtomicUsize>) {
    for n in 0..OBJECTS {
        let name = format!("{thread}.{n}");
        pool.write_full(name.as_str(), pieces(&data(thread, n)))
            .await
            .unwrap();
        let key = Bytes::from(name.clone());
        let values = [(key.clone(), Bytes::from_static(b"v"))].into_iter().collect();
        pool.omap_set(name.as_str(), &values).await.unwrap();
        pool.setxattr(name.as_str(), "a", name.as_bytes()).await.unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }
    for n in 0..OBJECTS {
        let name = format!("{thread}.{n}");
        let read = pool.read(name.as_str(), 0, u64::MAX).await.unwrap();
        assert!(read == data(thread, n), "{name}");
        let keys = pool
            .omap_keys(name.as_str(), Bytes::new(), 10)
            .await
            .unwrap()
            .keys;
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [Bytes::from(name.clone())]);
        assert_eq!(pool.getxattr(name.as_str(), "a").await.unwrap(), name.as_bytes());
    }
}

/// All threads write and read while an OSD is killed.
fn several_threads(c: &Cluster, handle: &RadosHandle) {
    let written = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (handle, written) = (handle.clone(), Arc::clone(&written));
            scope.spawn(move || {
                let pool = wait(handle.pool("p")).unwrap();
                // Of a kind that any runtime's threads may take from each other.
                let work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> =
                    Box::pin(work(pool, thread, written));
                wait(work);
            });
        }
        while written.load(Ordering::Relaxed) < THREADS {
            std::thread::yield_now();
        }
        c.kill("osd.1");
    });
    let mut names = Vec::new();
    wait(async {
        let mut all = handle.pool("p").await.unwrap().list(false);
        while let Some(object) = all.next().await.unwrap() {
            names.push(object.oid.to_string());
        }
    });
    assert_eq!(names.len(), THREADS * OBJECTS, "{names:?}");
    let official = c.sh("rados -p p ls | wc -l; rados -p p get 3.2 - | wc -c");
    assert_eq!(official.split_whitespace().collect::<Vec<_>>(), ["96", "400000"]);
}

/// One thread watches, another one notifies.
fn watch_and_notify(handle: &RadosHandle) {
    let pool = wait(handle.pool("p")).unwrap();
    let mut watch = wait(pool.watch("0.0", 0)).unwrap();
    let said = Bytes::from_static(b"hello");
    let outcome = std::thread::scope(|scope| {
        let (notifier, payload) = (pool.clone(), said.clone());
        let notified = scope.spawn(move || wait(notifier.notify("0.0", payload, 30)));
        let Some(WatchNews::Notify { id, payload, .. }) = wait(watch.next()) else {
            panic!("no notification");
        };
        assert_eq!(payload, said);
        wait(watch.ack(id, Bytes::from_static(b"heard"))).unwrap();
        notified.join().unwrap().unwrap()
    });
    assert_eq!(outcome.result, 0);
    assert_eq!(wait(pool.list_watchers("0.0")).unwrap().len(), 1);
    wait(watch.unwatch()).unwrap();
    assert_eq!(wait(pool.list_watchers("0.0")).unwrap(), []);
    let missing = wait(pool.watch("nothing", 0)).err().unwrap();
    assert_eq!(missing.errno(), errno::ENOENT);
}

/// A write whose future is dropped while the cluster takes no writes is not made later, and holds
/// nothing.
fn a_dropped_write_is_not_made(c: &Cluster, handle: &RadosHandle) {
    let pool = wait(handle.pool("p")).unwrap();
    c.sh("ceph osd pause");
    wait(handle.run(0, |rados| async move { rados.latest_map().await.map(drop) })).unwrap();
    {
        let mut dropped = pin!(pool.write_full("dropped", data(0, 3)));
        begin(dropped.as_mut());
    }
    // It had all memory.
    let kept = pool.write_full("kept", data(0, 3));
    let mut kept = pin!(kept);
    begin(kept.as_mut());
    c.sh("ceph osd unpause");
    wait(kept).unwrap();
    assert_eq!(wait(pool.stat("kept")).unwrap().0, data(0, 3).len() as u64);
    let gone = wait(pool.stat("dropped")).unwrap_err();
    assert_eq!(gone.errno(), errno::ENOENT);
}

/// Snapshots and other work of the client's thread.
fn snapshots_and_commands(handle: &RadosHandle) {
    wait(async {
        let pool = handle.pool("p").await.unwrap();
        pool.write_full("snapped", Bytes::from_static(b"before"))
            .await
            .unwrap();
        let id = pool.self_managed_snap_create().await.unwrap();
        let context = spirula_maps::SnapContext {
            seq: id,
            snaps: vec![id],
        };
        let writer = pool.clone().with_snap_context(context);
        writer
            .write_full("snapped", Bytes::from_static(b"after"))
            .await
            .unwrap();
        let old = pool.clone().with_snap_read(id);
        assert_eq!(old.read("snapped", 0, 100).await.unwrap(), "before");
        assert_eq!(old.remove("snapped").await.unwrap_err().errno(), errno::EROFS);
        pool.self_managed_snap_remove(id).await.unwrap();
        let pools = handle.run(0, |rados| async move { rados.pools().await });
        assert!(pools.await.unwrap().iter().any(|(_, name)| name == "p"));
        let nowhere = handle.pool("q").await.err().unwrap();
        assert_eq!(nowhere.errno(), errno::ENOENT);
    });
}

/// The end of the client answers all requests: those under way, and later ones.
fn the_end_answers(c: &Cluster, handle: RadosHandle) {
    let pool = wait(handle.pool("p")).unwrap();
    c.sh("ceph osd pause");
    wait(handle.run(0, |rados| async move { rados.latest_map().await.map(drop) })).unwrap();
    let mut under_way = pin!(pool.write_full("never", data(0, 3)));
    let mut waiting = pin!(pool.write_full("never", data(0, 3)));
    begin(under_way.as_mut());
    begin(waiting.as_mut());
    handle.shut_down();
    for ended in [wait(under_way), wait(waiting), wait(pool.remove("kept"))] {
        assert_eq!(ended.unwrap_err().errno(), errno::ESHUTDOWN);
    }
    c.sh("ceph osd unpause; rados -p p stat kept; if rados -p p stat never; then exit 1; fi");
}

#[test]
fn several_threads_share_a_client() {
    let c = Cluster::up("handle", 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated");
    let handle = wait(RadosHandle::connect(&options(&c.conf()))).unwrap();
    several_threads(&c, &handle);
    watch_and_notify(&handle);
    a_dropped_write_is_not_made(&c, &handle);
    snapshots_and_commands(&handle);
    the_end_answers(&c, handle);
    let mut refused = options(&c.conf());
    refused.name = "client.nobody".parse().unwrap();
    let denied = wait(RadosHandle::connect(&refused)).err().unwrap();
    assert_eq!(denied.errno(), errno::EACCES);
}
