//! `spirula rados`: object access and benchmarks, with the arguments, output and exit codes of the
//! official `rados` of Ceph 16.2. `mkpool` and `rmpool`, which 16.2 no longer has, work as they
//! did.

mod args;
pub(crate) mod attr_value;
mod bench;
mod copy;
mod dump;
mod export;
pub(crate) mod format;
mod import;
mod inconsistent;
mod list;
mod load_gen;
mod lock;
mod objects;
mod omap;
mod pools;
mod scrub;
mod snaps;
mod store;
mod tier;
mod watch;
mod xattr;

use std::ffi::OsString;
use std::fmt::Display;

use args::Args;
use spirula_client::{
    Error, IoCtx, Rados,
    errno::{self, Errno},
};
use spirula_conf::amount;
use spirula_maps::{ObjectName, PgId, SnapId};
use spirula_proto::osd_op_data::{InconsistentObject, InconsistentSnapSet};
use spirula_text::Format;
use store::Store;

use crate::ceph::common;
use crate::ceph::common::conn::Connection;

/// Size of operations unless told otherwise.
const OP_SIZE: u64 = 4 << 20;
/// Concurrent operations unless told otherwise.
const CONCURRENT: usize = 16;

/// Runs the tool with the arguments behind its name and returns the exit code.
pub(crate) async fn run(args: Vec<OsString>) -> i32 {
    if args.is_empty() {
        return complain(1, "rados: -h or --help for usage");
    }
    let words = common::args::words(args);
    let (args, connection) =
        match common::args::parse("rados", words, args::sort, |_| None, |e| complain(1, e)) {
            Ok(parsed) => parsed,
            Err(code) => return code,
        };
    match Tool::start(args, &connection).await {
        Ok(tool) => tool.run().await.map_or_else(|code| code, |()| 0),
        Err(code) => code,
    }
}

/// Prints the reason and returns the exit code.
fn complain(code: i32, why: impl Display) -> i32 {
    eprintln!("{why}");
    code
}

/// The result of a command: nothing, or an exit code after the reason was printed.
type Done = Result<(), i32>;

/// A name as messages show it.
fn shown(name: &(impl AsRef<[u8]> + ?Sized)) -> &str {
    let name = name.as_ref();
    let printable = name.iter().all(|b| (b' '..=b'~').contains(b));
    std::str::from_utf8(name)
        .ok()
        .filter(|_| printable)
        .unwrap_or("(binary key)")
}

/// Prints the errno and its text for a failed command, and returns the exit code.
fn last_words(errno: Errno) -> i32 {
    complain(1, format!("error {}: {errno}", errno.code()))
}

/// The options that are sizes.
struct Sizes {
    op: u64,
    object: u64,
    max_objects: u64,
    concurrent: usize,
    offset: Option<u64>,
    /// Whether one of the sizes was given.
    given: bool,
}

/// The exit code of the official tool after a bad number: the errno as an unsigned byte.
const BAD_NUMBER: i32 = 256 - errno::EINVAL.code();

fn number(what: &str, text: Option<&str>) -> Result<Option<u64>, i32> {
    let Some(text) = text else { return Ok(None) };
    let bad = |why| complain(BAD_NUMBER, format!("Invalid value for {what}: {why}"));
    amount::iec(text).map(Some).map_err(bad)
}

impl Sizes {
    fn parse(args: &Args) -> Result<Self, i32> {
        let concurrent = number("concurrent-ios", args.concurrent_ios.as_deref())?;
        let op = number("block-size", args.block_size.as_deref())?;
        let object = number("object-size", args.object_size.as_deref())?;
        Ok(Self {
            op: op.unwrap_or(OP_SIZE),
            object: object.unwrap_or(0),
            max_objects: number("max-objects", args.max_objects.as_deref())?.unwrap_or(0),
            concurrent: concurrent.map_or(CONCURRENT, |n| usize::try_from(n).unwrap_or(CONCURRENT)),
            offset: number("offset", args.offset.as_deref())?,
            given: op.is_some() || object.is_some(),
        })
    }
}

/// A command line with a connection.
struct Tool {
    args: Args,
    sizes: Sizes,
    format: Format,
    rados: Rados,
    /// The pool as the options name it.
    io: Option<IoCtx>,
    /// The PG that is listed.
    pgid: Option<PgId>,
    /// The words of the command, with the object's name if that comes from a file.
    words: Vec<String>,
    /// The object's name from a file.
    obj_name: Option<ObjectName>,
}

/// A command on an object.
struct OnObject<'a> {
    /// The pool.
    io: &'a IoCtx,
    /// The pool, for the commands that know striped objects.
    store: Store,
    oid: ObjectName,
    /// The words behind the object's name.
    rest: &'a [String],
}

async fn connect(connection: &Connection) -> Result<Rados, i32> {
    let refused = |e: &Error| {
        tracing::debug!("{e}");
        complain(1, format!("couldn't connect to cluster: {}", e.errno()))
    };
    let source = connection.source().map_err(|e| complain(1, e))?;
    let options = source.read().map_err(|e| match &e {
        Error::Config(why) | Error::Conf(why) | Error::NoKey(why) => {
            complain(1, format!("{why}\n{}", "couldn't connect to cluster"))
        }
        e => refused(e),
    })?;
    Rados::connect(&options).await.map_err(|e| refused(&e))
}

impl Tool {
    async fn start(args: Args, connection: &Connection) -> Result<Self, i32> {
        if args.words.is_empty() {
            return Err(complain(1, "rados: you must give an action. Try --help"));
        }
        let sizes = Sizes::parse(&args)?;
        let Some(format) = format::parse(args.format.as_deref()) else {
            let name = args.format.unwrap_or_default();
            return Err(complain(BAD_NUMBER, format!("unrecognized format: {name}")));
        };
        let mut words = args.words.clone();
        let mut obj_name = None;
        if let Some(path) = &args.obj_name_file {
            let name = file(path)?;
            words.insert(1, format::text(&name));
            obj_name = Some(name.into());
        }
        let snapid = number("snapid", args.snapid.as_deref())?;
        let rados = connect(connection).await?;
        let mut tool = Self {
            args,
            sizes,
            format,
            rados,
            io: None,
            pgid: None,
            words,
            obj_name,
        };
        tool.open().await?;
        tool.select_snap(snapid).await?;
        Ok(tool)
    }

    /// Opens the pool that the options name.
    async fn open(&mut self) -> Done {
        let Some(pool) = self.args.pool.clone() else {
            self.open_pg().await?;
            let needs = [
                ("snap", self.args.snap.is_some()),
                ("object-locator", self.args.object_locator.is_some()),
                ("namespace", self.args.namespace.is_some()),
            ];
            if self.args.create {
                return Err(complain(
                    1,
                    "--create-pool requested but pool_name was not specified!",
                ));
            }
            return match needs.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(complain(
                    1,
                    format!("pool name must be specified with --{option}"),
                )),
                None => Ok(()),
            };
        };
        if self.args.create {
            self.create_pool(&pool, -1).await?;
        }
        let mut io = self
            .rados
            .pool(&pool)
            .await
            .map_err(|e| complain(1, format!("error opening pool {pool}: {}", e.errno())))?;
        if let Some(key) = &self.args.object_locator {
            io = io.with_locator(key);
        }
        if let Some(nspace) = &self.args.namespace {
            io = io.with_namespace(nspace);
        }
        if let Some(text) = &self.args.pgid {
            let pgid: Option<PgId> = text.parse().ok();
            let of_pool = pgid.filter(|pg| pg.pool == io.pool_id());
            self.pgid = Some(of_pool.ok_or_else(|| complain(1, "invalid pgid"))?);
        }
        self.io = Some(io);
        Ok(())
    }

    /// Opens the pool of the PG that the options name.
    async fn open_pg(&mut self) -> Done {
        let Some(text) = &self.args.pgid else {
            return Ok(());
        };
        let pgid: PgId = text.parse().map_err(|_| complain(1, "invalid pgid"))?;
        let id = pgid.pool;
        let io = self
            .rados
            .pool_by_id(id)
            .await
            .map_err(|e| complain(1, format!("error opening pool with id {id}: {}", e.errno())))?;
        (self.io, self.pgid) = (Some(io), Some(pgid));
        Ok(())
    }

    /// Reads at the snapshot that the options name from now on.
    async fn select_snap(&mut self, id: Option<SnapId>) -> Done {
        let Some(io) = self.io.clone().filter(|_| self.args.pool.is_some()) else {
            return match id {
                Some(_) => Err(complain(1, "pool name must be specified with --snapid")),
                None => Ok(()),
            };
        };
        let id = match &self.args.snap {
            None => id,
            Some(name) => {
                let snap = io
                    .snap_by_name(name)
                    .await
                    .map_err(|e| complain(1, format!("error looking up snap '{name}': {}", e.errno())))?;
                Some(snap.snapid)
            }
        };
        let Some(id) = id else { return Ok(()) };
        let snaps = io.snaps().await.unwrap_or_default();
        let Some(snap) = snaps.into_iter().find(|s| s.snapid == id) else {
            let pool = self.pool_name();
            return Err(complain(1, format!("snapid {id} doesn't exist in pool {pool}")));
        };
        println!("selected snap {id} '{}'", snap.name);
        self.io = Some(io.with_snap_read(id));
        Ok(())
    }

    /// Prints the usage of a command that lacks something.
    fn usage(&self) -> i32 {
        eprintln!("{}", <Args as clap::CommandFactory>::command().render_help());
        1
    }

    /// The pool and the words behind the command, at least `least` of them.
    fn pool_command(&self, least: usize) -> Result<(&IoCtx, &[String]), i32> {
        match (&self.io, self.words.get(1..)) {
            (Some(io), Some(words)) if words.len() >= least && self.args.pool.is_some() => Ok((io, words)),
            _ => Err(self.usage()),
        }
    }

    /// A command on an object, with an allowed number of words behind its name.
    fn object_command(&self, words: impl std::ops::RangeBounds<usize>) -> Result<OnObject<'_>, i32> {
        let (io, all) = self.pool_command(1)?;
        match all.split_first() {
            Some((name, rest)) if words.contains(&rest.len()) => Ok(OnObject {
                io,
                store: Store::new(io, self.args.striper),
                oid: self.obj_name.clone().unwrap_or_else(|| name.into()),
                rest,
            }),
            _ => Err(self.usage()),
        }
    }

    fn pool_name(&self) -> &str {
        self.args.pool.as_deref().unwrap_or_default()
    }

    /// Whether all namespaces are meant.
    fn all_namespaces(&self) -> bool {
        self.args.all && !self.args.default && self.args.namespace.is_none()
    }

    /// Prints `error WHAT POOL/OBJECT: ERRNO` and gives the exit code.
    fn failed(&self, what: &str, object: &(impl AsRef<[u8]> + ?Sized), e: &Error) -> i32 {
        let pool = self.pool_name();
        let object = shown(object);
        complain(1, format!("{what} {pool}/{object}: {}", e.errno()))
    }

    async fn run(&self) -> Done {
        let command = self.words.first().map(String::as_str).unwrap_or_default();
        match command {
            "lspools" => self.list_pools().await,
            "mkpool" => self.make_pool().await,
            "rmpool" => self.remove_pool().await,
            "cppool" => self.copy_pool().await,
            "purge" => self.purge().await,
            "df" => self.df().await,
            "ls" => self.list().await,
            "lssnap" => self.list_pool_snaps().await,
            "mksnap" => self.make_snap().await,
            "rmsnap" => self.remove_snap().await,
            "rollback" => self.rollback().await,
            "listsnaps" => self.list_object_snaps().await,
            "bench" => self.bench().await,
            "cleanup" => self.cleanup().await,
            "load-gen" => self.load_gen().await,
            "watch" => self.watch().await,
            "notify" => self.notify().await,
            "listwatchers" => self.list_watchers().await,
            "lock" => self.lock().await,
            "export" => self.export().await,
            "import" => self.import().await,
            "list-inconsistent-pg" => self.list_inconsistent_pgs().await,
            "list-inconsistent-obj" => self.list_inconsistent::<InconsistentObject>().await,
            "list-inconsistent-snapset" => self.list_inconsistent::<InconsistentSnapSet>().await,
            _ => self.run_on_object(command).await,
        }
    }

    async fn run_on_object(&self, command: &str) -> Done {
        match command {
            "stat" => self.stat(false).await,
            "stat2" => self.stat(true).await,
            "touch" => self.touch().await,
            "get" => self.get().await,
            "put" => self.put().await,
            "append" => self.append().await,
            "truncate" => self.truncate().await,
            "create" => self.create().await,
            "rm" => self.remove().await,
            "cp" => self.copy().await,
            "mapext" => self.mapext().await,
            "set-alloc-hint" => self.set_alloc_hint().await,
            "setxattr" => self.set_xattr().await,
            "getxattr" => self.get_xattr().await,
            "rmxattr" => self.remove_xattr().await,
            "listxattr" => self.list_xattrs().await,
            "listomapkeys" => self.list_omap_keys().await,
            "listomapvals" => self.list_omap_values().await,
            "getomapval" => self.get_omap_value().await,
            "setomapval" => self.set_omap_value().await,
            "rmomapkey" => self.remove_omap_key().await,
            "clearomap" => self.clear_omap().await,
            "getomapheader" => self.get_omap_header().await,
            "setomapheader" => self.set_omap_header().await,
            _ => self.run_tier(command).await,
        }
    }

    fn unknown(command: &str) -> i32 {
        eprintln!("unrecognized command {command}; -h or --help for usage");
        last_words(errno::EINVAL)
    }
}

/// The contents of a file that an option names.
fn file(path: &str) -> Result<Vec<u8>, i32> {
    std::fs::read(path).map_err(|e| complain(1, format!("can't open {path}: {}", Errno::from(&e))))
}
