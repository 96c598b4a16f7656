//! `import`.

use std::fs::File;
use std::io::{self, BufReader, Read};

use spirula_client::errno::Errno;
use spirula_client::{Error, IoCtx, errno};
use spirula_maps::HObject;

use super::dump::{self, DumpReader, Kind, ReadError, Section};
use super::{Done, Tool, complain};

/// The namespace of the official OSDs' own objects.
const INTERNAL: &[u8] = b".ceph-internal";

/// The options of an import.
#[derive(Clone, Copy, Default)]
struct Mode {
    dry_run: bool,
    no_overwrite: bool,
}

/// Why an import ends: an errno, after the reason was printed.
type Imported<T = ()> = Result<T, Errno>;

fn unreadable(e: impl Into<ReadError>) -> Errno {
    let e = e.into();
    eprintln!("{e}");
    e.errno()
}

fn failed(what: &'static str) -> impl Fn(Error) -> Errno {
    move |e| {
        eprintln!("{what} failed: {}", e.errno());
        e.errno()
    }
}

/// Continues where the pool does not support the operation: erasure-coded pools have no omaps.
fn unless_unsupported(what: &'static str, done: Result<(), Error>) -> Imported {
    match done.map_err(failed(what)) {
        Err(e) if e == errno::EOPNOTSUPP => Ok(()),
        done => done,
    }
}

/// Prepares the target of an object; returns the word for the output, and whether its contents are
/// written.
async fn prepare(io: &IoCtx, object: &HObject, mode: Mode) -> Imported<(&'static str, bool)> {
    let oid = &object.oid;
    if mode.dry_run {
        let what = match io.stat(oid).await {
            Ok(_) if mode.no_overwrite => "Skipping existing",
            Ok(_) => "***Overwrite***",
            Err(_) => "Write",
        };
        return Ok((what, false));
    }
    let exists = |done: Result<(), Error>| match done {
        Ok(()) => Ok(false),
        Err(e) if e.errno() == errno::EEXIST => Ok(true),
        Err(e) => Err(failed("create")(e)),
    };
    if !exists(io.create(oid, true).await)? {
        return Ok(("Write", true));
    }
    if mode.no_overwrite {
        return Ok(("Skipping existing", false));
    }
    io.remove(oid).await.map_err(failed("remove"))?;
    if exists(io.create(oid, true).await)? {
        // Somebody else uses it.
        return Ok(("Skipping in-use object", false));
    }
    Ok(("***Overwrite***", true))
}

async fn write(io: &IoCtx, object: &HObject, section: &Section) -> Imported {
    let (oid, content) = (&object.oid, &section.content);
    match section.kind {
        Kind::DATA => {
            let (offset, data) = dump::data(content).map_err(unreadable)?;
            io.write(oid, offset, data).await.map_err(failed("write"))
        }
        Kind::ATTRS => {
            for (name, value) in dump::values(content).map_err(unreadable)? {
                // The others, and the one without a name, are the OSD's own.
                let Some(name) = name.strip_prefix(b"_").filter(|n| !n.is_empty()) else {
                    continue;
                };
                let name = String::from_utf8_lossy(name);
                unless_unsupported("setxattr", io.setxattr(oid, &name, &value).await)?;
            }
            Ok(())
        }
        Kind::OMAP_HEADER => {
            let header = dump::header(content).map_err(unreadable)?;
            unless_unsupported("omap_set_header", io.omap_set_header(oid, header).await)
        }
        _ => {
            let values = dump::values(content).map_err(unreadable)?;
            unless_unsupported("omap_set", io.omap_set(oid, &values).await)
        }
    }
}

/// Reads an object to its end and writes it, unless it is skipped.
async fn object(io: &IoCtx, source: &mut DumpReader, content: &[u8], mode: Mode) -> Imported {
    let object = dump::object(content).map_err(unreadable)?;
    let io = io
        .clone()
        .with_namespace(&object.nspace)
        .with_locator(&object.key);
    let mut writing = false;
    if object.nspace.as_bytes() == INTERNAL {
        println!("Skipping internal object {object}");
    } else if !object.is_head() {
        println!("Skipping non-head for {object}");
    } else {
        let what;
        (what, writing) = prepare(&io, &object, mode).await?;
        println!("{what} #{object}#");
    }
    loop {
        let section = source.next().map_err(|e| {
            let errno = unreadable(e);
            eprintln!("Error reading section: {}", -errno);
            errno
        })?;
        match section.kind {
            Kind::OBJECT_END => return Ok(()),
            Kind::DATA | Kind::ATTRS | Kind::OMAP_HEADER | Kind::OMAP => {
                if writing {
                    write(&io, &object, &section).await?;
                }
            }
            kind if !kind.is_known() => println!("Skipping unknown object section type"),
            kind => {
                eprintln!("Unexpected section type {}", kind.0);
                return Err(errno::EFAULT);
            }
        }
    }
}

async fn pool(io: &IoCtx, source: Box<dyn Read>, mode: Mode) -> Imported {
    let mut source = DumpReader::new(source).map_err(unreadable)?;
    let first = source.next().map_err(unreadable)?;
    match first.kind {
        Kind::POOL_BEGIN => println!("Importing pool"),
        Kind::PG_BEGIN => {
            let pg = dump::pg_begin(&first.content).map_err(unreadable)?;
            println!("Importing from pgid {pg}");
        }
        kind => {
            eprintln!("Invalid initial section code {}", kind.0);
            return Err(errno::EFAULT);
        }
    }
    let mut complete = first.kind == Kind::POOL_BEGIN;
    loop {
        let section = source.next().map_err(unreadable)?;
        match section.kind {
            Kind::OBJECT_BEGIN => object(io, &mut source, &section.content, mode)
                .await
                .inspect_err(|errno| eprintln!("Error inserting object: {}", -*errno))?,
            Kind::PG_METADATA => complete = true,
            Kind::PG_END | Kind::POOL_END => break,
            kind if !kind.is_known() => println!("Skipping unknown section type"),
            _ => return Err(errno::EFAULT),
        }
    }
    if !complete {
        eprintln!("Missing metadata section!");
    }
    Ok(())
}

impl Tool {
    pub(super) async fn import(&self) -> Done {
        let (io, words) = self.pool_command(1)?;
        let Some((path, options)) = words.split_last().filter(|(_, o)| o.len() <= 2) else {
            return Err(self.usage());
        };
        let mut mode = Mode::default();
        for option in options {
            match option.as_str() {
                "--no-overwrite" => mode.no_overwrite = true,
                "--dry-run" => mode.dry_run = true,
                other => return Err(complain(1, format!("Invalid argument '{other}'"))),
            }
        }
        let source: Box<dyn Read> = match path.as_str() {
            "-" => Box::new(io::stdin()),
            path => {
                // The official tool says EPERM whatever the reason is.
                let file = File::open(path);
                Box::new(BufReader::new(file.map_err(|_| {
                    complain(1, format!("Error opening '{path}': {}", errno::EPERM))
                })?))
            }
        };
        let imported = pool(io, source, mode).await;
        imported.map_err(|errno| complain(1, format!("error from import: {}", errno)))
    }
}
