//! Removes the objects of benchmarks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use spirula_client::{Error, IoCtx, ObjectList, Result, errno};
use spirula_maps::ObjectName;
use tokio::task::JoinSet;

use super::names::Run;

/// The message at the end.
pub(super) fn removed(count: u64) -> String {
    format!("Removed {count} object{}", if count == 1 { "" } else { "s" })
}

async fn remove(io: &IoCtx, name: impl Into<ObjectName>) -> Result<()> {
    match io.remove(name).await {
        Err(e) if e.errno() != errno::ENOENT => {
            eprintln!("remove got {}", -e.errno());
            Err(e)
        }
        _ => Ok(()),
    }
}

async fn join(mut workers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = workers.join_next().await {
        done.map_err(|e| {
            tracing::error!("{e}");
            Error::Os {
                what: "cleanup",
                errno: errno::EIO,
            }
        })??;
    }
    Ok(())
}

/// Removes the objects of one run by their names, and returns their number.
pub(super) async fn run_objects(io: &IoCtx, run: &Run, concurrent: usize) -> Result<u64> {
    let next = Rc::new(Cell::new(0));
    let (objects, pid) = (run.objects(), run.pid);
    let mut workers = JoinSet::new();
    for _ in 0..concurrent {
        let (io, next) = (io.clone(), Rc::clone(&next));
        workers.spawn_local(async move {
            while next.get() < objects {
                let number = next.replace(next.get() + 1);
                remove(&io, super::names::object(pid, number)).await?;
            }
            Ok(())
        });
    }
    join(workers).await?;
    Ok(objects)
}

/// Removes the objects whose names begin with `prefix`, of the namespace or of all; lists all
/// objects to find them.
pub(super) async fn by_prefix(io: &IoCtx, all: bool, prefix: &str, concurrent: usize) -> Result<u64> {
    struct Source {
        list: RefCell<Option<ObjectList>>,
        count: Cell<u64>,
    }
    // One worker lists at a time while the others remove.
    let source = Rc::new(Source {
        list: RefCell::new(Some(io.list(all))),
        count: Cell::new(0),
    });
    let turn = Rc::new(tokio::sync::Mutex::new(()));
    let mut workers = JoinSet::new();
    for _ in 0..concurrent {
        let (io, source, turn) = (io.clone(), Rc::clone(&source), Rc::clone(&turn));
        let prefix = prefix.to_owned();
        workers.spawn_local(async move {
            loop {
                let found = {
                    let _turn = turn.lock().await;
                    let Some(mut list) = source.list.take() else {
                        return Ok(());
                    };
                    let found = loop {
                        match list.next().await? {
                            Some(entry) if entry.oid.as_bytes().starts_with(prefix.as_bytes()) => {
                                break Some(entry);
                            }
                            Some(_) => {}
                            None => break None,
                        }
                    };
                    if found.is_some() {
                        source.list.replace(Some(list));
                    }
                    found
                };
                let Some(entry) = found else { return Ok(()) };
                let io = io
                    .clone()
                    .with_namespace(entry.nspace)
                    .with_locator(entry.locator);
                remove(&io, entry.oid).await?;
                source.count.set(source.count.get() + 1);
            }
        });
    }
    join(workers).await?;
    Ok(source.count.get())
}

/// Removes all benchmark objects whose names begin with `prefix`: by the run's description where
/// there is one, else by listing.
pub(super) async fn all(
    io: &IoCtx,
    all_namespaces: bool,
    prefix: &str,
    run_name: &str,
    concurrent: usize,
) -> Result<()> {
    let (mut described, mut with_objects) = (BTreeSet::new(), BTreeSet::new());
    let mut list = io.list(all_namespaces);
    while let Some(entry) = list.next().await? {
        let nspace = String::from_utf8_lossy(entry.nspace.as_bytes()).into_owned();
        if entry.oid.as_bytes() == run_name.as_bytes() {
            described.insert(nspace.clone());
        }
        if entry.oid.as_bytes().starts_with(prefix.as_bytes()) {
            with_objects.insert(nspace);
        }
    }
    for nspace in with_objects {
        let io = io.clone().with_namespace(&nspace);
        if described.contains(&nspace) {
            let run = Run::load(&io, run_name).await?;
            let count = run_objects(&io, &run, concurrent).await?;
            println!("{}", removed(count));
            io.remove(run_name).await?;
        } else {
            println!("Warning: using slow linear search");
            let count = by_prefix(&io, false, prefix, concurrent).await?;
            println!("{}", removed(count));
        }
    }
    Ok(())
}
