//! `spirula rados`: object access and benchmarks, with the arguments, output and exit codes of the official `rados`
//! of Ceph 16.2. `mkpool` and `rmpool`, which that has no longer, work as they did.

mod args;
mod bench;
mod list;
mod load_gen;
mod objects;
mod omap;
mod pools;
mod random;
mod xattr;

use std::ffi::OsString;
use std::fmt::Display;

use clap::Parser;
use spirula_client::{Error, IoCtx, Rados, errno};

use crate::ceph::common::conn::{self, Connection};
use crate::ceph::common::errno::{describe, of};
use args::{Args, Format};

/// Size of operations unless told otherwise.
const OP_SIZE: u64 = 4 << 20;
/// Concurrent operations unless told otherwise.
const CONCURRENT: usize = 16;

/// Runs the tool with the arguments behind its name and returns the exit code.
pub(crate) async fn run(args: Vec<OsString>) -> i32 {
    let lossy = |arg: OsString| arg.to_string_lossy().into_owned();
    let mut words: Vec<String> = args.into_iter().map(lossy).collect();
    if words.is_empty() {
        return complain(1, "rados: -h or --help for usage");
    }
    words.extend(conn::environment());
    if words
        .iter()
        .take_while(|w| *w != "--")
        .any(|w| w == "-v" || w == "--version")
    {
        println!("{}", crate::ceph::common::VERSION);
        return 0;
    }
    let mut connection = Connection::default();
    let words = match connection.take(words) {
        Ok(words) => words,
        Err(e) => return complain(1, e),
    };
    let parsed = Args::try_parse_from(std::iter::once("rados".to_owned()).chain(words));
    let args = match parsed {
        Ok(args) => args,
        Err(e) => {
            // Where it can't be printed there is nobody to read it.
            let _ = e.print();
            return i32::from(e.use_stderr());
        }
    };
    match Tool::start(args, &connection).await {
        Ok(tool) => tool.run().await.map_or_else(|code| code, |()| 0),
        Err(code) => code,
    }
}

/// Prints why and gives the exit code.
fn complain(code: i32, why: impl Display) -> i32 {
    eprintln!("{why}");
    code
}

/// What a command ends with: nothing, or an exit code after the reason was printed.
type Done = Result<(), i32>;

/// A name as messages show it.
fn shown(name: &str) -> &str {
    let printable = name.bytes().all(|b| (b' '..=b'~').contains(&b));
    if printable { name } else { "(binary key)" }
}

/// Settings with sizes in them.
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
const BAD_NUMBER: i32 = 256 - errno::EINVAL;

fn number(what: &str, text: Option<&str>) -> Result<Option<u64>, i32> {
    let Some(text) = text else { return Ok(None) };
    match spirula_conf::parse_size(text) {
        Some(v) => Ok(Some(v)),
        None => Err(complain(
            BAD_NUMBER,
            format!("Invalid value for {what}: strict_iecstrtoll: unit prefix not recognized"),
        )),
    }
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
    /// The words of the command, the object's name among them wherever it came from.
    words: Vec<String>,
}

async fn connect(connection: &Connection) -> Result<Rados, i32> {
    let refused = |e: &Error| {
        tracing::debug!("{e}");
        complain(1, format!("couldn't connect to cluster: {}", describe(e.errno())))
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
        let Some(format) = Format::parse(args.format.as_deref()) else {
            let name = args.format.unwrap_or_default();
            return Err(complain(BAD_NUMBER, format!("unrecognized format: {name}")));
        };
        let mut words = args.words.clone();
        if let Some(path) = &args.obj_name_file {
            let name = std::fs::read(path)
                .map_err(|e| complain(1, format!("can't open {path}: {}", describe(of(&e)))))?;
            words.insert(1, String::from_utf8_lossy(&name).into_owned());
        }
        let rados = connect(connection).await?;
        let mut tool = Self {
            args,
            sizes,
            format,
            rados,
            io: None,
            words,
        };
        tool.open().await?;
        Ok(tool)
    }

    /// Opens the pool that the options name.
    async fn open(&mut self) -> Done {
        let Some(pool) = self.args.pool.clone() else {
            let needs = [
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
            .map_err(|e| complain(1, format!("error opening pool {pool}: {}", describe(e.errno()))))?;
        if let Some(key) = &self.args.object_locator {
            io = io.with_locator(key);
        }
        if let Some(nspace) = &self.args.namespace {
            io = io.with_namespace(nspace);
        }
        self.io = Some(io);
        Ok(())
    }

    /// Prints the usage because the command lacks something.
    fn usage(&self) -> i32 {
        eprintln!("{}", <Args as clap::CommandFactory>::command().render_help());
        1
    }

    /// The pool and the words behind the command, at least `least` of them.
    fn object_command(&self, least: usize) -> Result<(&IoCtx, &[String]), i32> {
        let words = &self.words[1..];
        match &self.io {
            Some(io) if words.len() >= least => Ok((io, words)),
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
    fn failed(&self, what: &str, object: &str, e: &Error) -> i32 {
        let pool = self.pool_name();
        let object = shown(object);
        complain(1, format!("{what} {pool}/{object}: {}", describe(e.errno())))
    }

    async fn run(&self) -> Done {
        match self.words[0].as_str() {
            "lspools" => self.list_pools().await,
            "mkpool" => self.make_pool().await,
            "rmpool" => self.remove_pool().await,
            "df" => self.df().await,
            "ls" => self.list().await,
            "stat" => self.stat(false).await,
            "stat2" => self.stat(true).await,
            "touch" => self.touch().await,
            "get" => self.get().await,
            "put" => self.put().await,
            "append" => self.append().await,
            "truncate" => self.truncate().await,
            "create" => self.create().await,
            "rm" => self.remove().await,
            "setxattr" => self.set_xattr().await,
            "getxattr" => self.get_xattr().await,
            "rmxattr" => self.remove_xattr().await,
            "listxattr" => self.list_xattrs().await,
            "listomapkeys" => self.list_omap_keys().await,
            "getomapval" => self.get_omap_value().await,
            "setomapval" => self.set_omap_value().await,
            "rmomapkey" => self.remove_omap_key().await,
            "bench" => self.bench().await,
            "cleanup" => self.cleanup().await,
            "load-gen" => self.load_gen().await,
            other => Err(complain(
                1,
                format!(
                    "unrecognized command {other}; -h or --help for usage\nerror 22: {}",
                    describe(errno::EINVAL)
                ),
            )),
        }
    }
}
