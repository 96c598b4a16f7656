//! `spirula rbd`: block images, with the arguments, output and exit codes of the official `rbd` of
//! Ceph 16.2; `serve` is our own.

mod args;
mod bench;
mod clones;
mod commands;
mod config;
mod copies;
mod device;
mod diffs;
mod export;
mod features;
mod help;
mod images;
mod import;
mod list;
mod locks;
mod metadata;
mod namespaces;
mod object_map;
mod pools;
mod progress;
mod serve;
mod snaps;
mod spec;
mod status;
mod trash;
mod usage;
mod watch;

use std::ffi::OsString;
use std::fmt::Display;

use args::{Args, Line};
use commands::Found;
use progress::Progress;
use serde_json::Value;
use spec::Spec;
use spirula_client::errno::{self, Errno};
use spirula_client::{IoCtx, Rados};
use spirula_conf::amount;
use spirula_rbd::{Error, Image, Options};
use spirula_text::{Format, Names};

use crate::ceph::common;
use crate::ceph::common::conn::Connection;

pub(crate) use device::{NBD_PROCESS, run_nbd};
pub(crate) use help::command;

/// The default pool.
const DEFAULT_POOL: &str = "rbd";

/// The exit code of a command that failed, after the reason was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(Errno);

impl Exit {
    /// The arguments can't be read: 1.
    const USAGE: Self = Self(errno::EPERM);

    fn code(self) -> i32 {
        self.0.code()
    }
}

impl From<Errno> for Exit {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

/// As the official tool prints such a code, which it takes for an errno.
impl Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The result of a command: nothing, or an exit code after the reason was printed.
type Done = Result<(), Exit>;

/// Prints the reason and returns the exit code.
fn complain(exit: impl Into<Exit>, why: impl Display) -> Exit {
    eprintln!("rbd: {why}");
    exit.into()
}

/// Reports a command that only Ceph's tool has, and returns the exit code.
fn elsewhere(name: &str) -> Exit {
    complain(
        errno::EOPNOTSUPP,
        format!("'{name}' is not a command of this tool: use Ceph's rbd, which works with this cluster too"),
    )
}

/// Reports a bad argument, and returns the exit code.
fn bad(why: impl Display) -> Exit {
    complain(errno::EINVAL, why)
}

/// Reports a failed operation, and returns the exit code.
fn failed(what: impl Display, e: &Error) -> Exit {
    tracing::debug!("{e}");
    complain(e.errno(), format!("{what}: {}", e.errno()))
}

/// Runs the tool with the arguments behind its name and returns the exit code.
pub(crate) async fn run(args: Vec<OsString>) -> i32 {
    let words = common::args::words(args);
    let (line, connection) = match common::args::parse::<Line>("rbd", words, Ok, args::refusal, |e| {
        complain(Exit::USAGE, e).code()
    }) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    if line.args.help || line.args.words.first().is_some_and(|w| w == "help") {
        let is_help = |w: &&String| w.as_str() != "help";
        let words: Vec<String> = line
            .args
            .words
            .iter()
            .skip_while(|w| !is_help(w))
            .cloned()
            .collect();
        return help::print(&words).map_or_else(|exit| exit.code(), |()| 0);
    }
    let done = match Asked::new(line) {
        Ok(asked) if asked.command == Command::MergeDiff => diffs::merge(&asked.args, &asked.words),
        Ok(asked) if asked.command == Command::DeviceUnmap => asked.device_unmap(),
        Ok(asked) if asked.command == Command::DeviceList => asked.device_list(),
        Ok(asked) => match Tool::start(asked, connection).await {
            Ok(tool) => tool.run().await,
            Err(code) => Err(code),
        },
        Err(code) => Err(code),
    };
    done.map_or_else(|exit| exit.code(), |()| 0)
}

/// A parsed command line.
struct Asked {
    args: Args,
    format: Format,
    /// The words behind the command.
    words: Vec<String>,
    command: Command,
}

/// A command line with a connection.
struct Tool {
    args: Args,
    connection: Connection,
    format: Format,
    rados: Rados,
    /// The words behind the command.
    words: Vec<String>,
    command: Command,
}

/// The command to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Create,
    List,
    Info,
    Resize,
    Rename,
    Remove,
    Usage,
    Export,
    Import,
    Bench,
    Serve,
    DeviceMap,
    DeviceUnmap,
    DeviceList,
    SnapCreate,
    SnapList,
    SnapRemove,
    SnapRename,
    SnapRollback,
    SnapProtect,
    SnapUnprotect,
    SnapPurge,
    SnapLimitSet,
    SnapLimitClear,
    Clone,
    Children,
    Flatten,
    Status,
    ObjectMapRebuild,
    ObjectMapCheck,
    Sparsify,
    PoolInit,
    PoolStats,
    NamespaceCreate,
    NamespaceList,
    NamespaceRemove,
    MetadataList,
    MetadataGet,
    MetadataSet,
    MetadataRemove,
    LockList,
    LockAdd,
    LockRemove,
    Watch,
    Diff,
    ExportDiff,
    ImportDiff,
    MergeDiff,
    Copy,
    DeepCopy,
    FeatureEnable,
    FeatureDisable,
    TrashMove,
    TrashList,
    TrashRemove,
    TrashRestore,
    TrashPurge,
    ConfigGlobalList,
    ConfigGlobalGet,
    ConfigGlobalSet,
    ConfigGlobalRemove,
    ConfigPoolList,
    ConfigPoolGet,
    ConfigPoolSet,
    ConfigPoolRemove,
    ConfigImageList,
    ConfigImageGet,
    ConfigImageSet,
    ConfigImageRemove,
}

/// An image, or a snapshot of one, with its pool open.
struct Target {
    io: IoCtx,
    spec: Spec,
    /// The image's id, if the command names the image by id.
    id: Option<String>,
    /// Prefixes this image in messages of a command with two images.
    role: &'static str,
}

impl Target {
    /// The snapshot's name, which the command requires.
    fn snap(&self) -> Result<&str, Exit> {
        let snap = self.spec.snap.as_deref();
        snap.ok_or_else(|| bad(format!("{}snapshot name was not specified", self.role)))
    }

    fn without_snap(self) -> Result<Self, Exit> {
        match self.spec.snap {
            None => Ok(self),
            Some(_) => Err(bad(format!(
                "{}snapshot name specified for a command that doesn't use it",
                self.role
            ))),
        }
    }

    async fn open(&self, options: Options) -> Result<Image, Exit> {
        let snapshot = options.snapshot.is_some();
        match self.try_open(options).await {
            Ok(image) => Ok(image),
            Err(e) if snapshot && e.is(errno::ENOENT) && self.exists().await => {
                eprintln!("error setting snapshot context: {}", e.errno());
                Err(errno::ENOENT.into())
            }
            Err(e) => Err(match &self.id {
                Some(id) => failed(format!("error opening image with id {id}"), &e),
                None => failed(format!("error opening image {}", self.spec.image), &e),
            }),
        }
    }

    /// Whether the image exists, whatever its snapshots.
    async fn exists(&self) -> bool {
        match &self.id {
            Some(_) => true,
            None => spirula_rbd::image_id(&self.io, &self.spec.image).await.is_ok(),
        }
    }

    async fn try_open(&self, options: Options) -> spirula_rbd::Result<Image> {
        let Some(id) = &self.id else {
            return Image::open(&self.io, &self.spec.image, options).await;
        };
        let name = match spirula_rbd::name_of(&self.io, id).await {
            Ok((name, _)) => name,
            // Whether there is such an image is found when it is opened.
            Err(_) => String::new(),
        };
        Image::open_by_id(&self.io, &name, id, options).await
    }

    /// Opens the image for reading, at the snapshot if one is named.
    async fn open_to_read(&self) -> Result<Image, Exit> {
        let options = Options {
            read_only: true,
            snapshot: self.spec.snap.clone(),
            ..Options::default()
        };
        self.open(options).await
    }
}

async fn connect(connection: &Connection) -> Result<Rados, Exit> {
    let source = connection.source().map_err(|e| complain(Exit::USAGE, e))?;
    let refused = |e: spirula_client::Error| {
        tracing::debug!("{e}");
        complain(e.errno(), "couldn't connect to the cluster!")
    };
    let options = source.read().map_err(refused)?;
    Rados::connect(&options).await.map_err(refused)
}

impl Asked {
    fn new(line: Line) -> Result<Self, Exit> {
        let Line { args, given } = line;
        let (definition, length) = match commands::find(&args.words) {
            Found::Here(definition, length) => (definition, length),
            Found::Elsewhere(name) => return Err(elsewhere(name)),
            Found::Unknown if args.words.is_empty() => {
                eprint!("{}", help::all());
                return Err(Exit::USAGE);
            }
            Found::Unknown => {
                eprintln!(
                    "error: unknown option '{}'\n\n{}",
                    args.words.join(" "),
                    help::all()
                );
                return Err(Exit::USAGE);
            }
        };
        if let Some(other) = given.iter().find(|id| *id != "words" && !definition.takes(id)) {
            let option = other.replace('_', "-");
            return Err(complain(Exit::USAGE, format!("unrecognised option '--{option}'")));
        }
        if args.words.len() - length > definition.max_operands() {
            return Err(complain(Exit::USAGE, "too many arguments"));
        }
        let command = definition.command;
        let format = match (args.format.as_deref(), args.pretty_format) {
            (None | Some("plain"), _) => Format::Plain,
            (Some(name @ ("json" | "xml")), pretty) => {
                let name = if pretty {
                    format!("{name}-pretty")
                } else {
                    name.to_owned()
                };
                Format::parse(Some(&name))
            }
            (Some(_), _) => return Err(invalid("format")),
        };
        let words = args.words.iter().skip(length).cloned().collect();
        Ok(Self {
            args,
            format,
            words,
            command,
        })
    }
}

impl Tool {
    async fn start(asked: Asked, connection: Connection) -> Result<Self, Exit> {
        let rados = connect(&connection).await?;
        let Asked {
            args,
            format,
            words,
            command,
        } = asked;
        Ok(Self {
            args,
            connection,
            format,
            rados,
            words,
            command,
        })
    }

    async fn run(&self) -> Done {
        match self.command {
            Command::Create => self.create().await,
            Command::List => self.list().await,
            Command::Info => self.info().await,
            Command::Resize => self.resize().await,
            Command::Rename => self.rename().await,
            Command::Remove => self.remove().await,
            Command::Usage => self.usage().await,
            Command::Export => self.export().await,
            Command::Import => self.import().await,
            Command::Bench => self.bench().await,
            Command::Serve => self.serve().await,
            Command::SnapCreate => self.snap_create().await,
            Command::SnapList => self.snap_list().await,
            Command::SnapRemove => self.snap_remove().await,
            Command::SnapRename => self.snap_rename().await,
            Command::SnapRollback => self.snap_rollback().await,
            Command::SnapProtect => self.snap_protect().await,
            Command::SnapUnprotect => self.snap_unprotect().await,
            Command::SnapPurge => self.snap_purge().await,
            Command::SnapLimitSet => self.snap_limit(true).await,
            Command::SnapLimitClear => self.snap_limit(false).await,
            Command::Clone => self.clone_image().await,
            Command::Children => self.children().await,
            Command::Flatten => self.flatten().await,
            Command::Status => self.status().await,
            Command::ObjectMapRebuild => self.object_map_rebuild().await,
            Command::ObjectMapCheck => self.object_map_check().await,
            Command::Sparsify => self.sparsify().await,
            Command::PoolInit => self.pool_init().await,
            Command::PoolStats => self.pool_stats().await,
            Command::NamespaceCreate => self.namespace_create().await,
            Command::NamespaceList => self.namespace_list().await,
            Command::NamespaceRemove => self.namespace_remove().await,
            Command::MetadataList => self.metadata_list().await,
            Command::MetadataGet => self.metadata_get().await,
            Command::MetadataSet => self.metadata_set().await,
            Command::MetadataRemove => self.metadata_remove().await,
            Command::LockList => self.lock_list().await,
            Command::LockAdd => self.lock_add().await,
            Command::LockRemove => self.lock_remove().await,
            Command::Watch => self.watch().await,
            Command::Diff => self.diff().await,
            Command::ExportDiff => self.export_diff().await,
            Command::ImportDiff => self.import_diff().await,
            // Commands that need no cluster ran before there was a connection.
            Command::MergeDiff | Command::DeviceUnmap | Command::DeviceList => Ok(()),
            Command::DeviceMap => self.device_map().await,
            Command::Copy => self.copy().await,
            Command::DeepCopy => self.deep_copy().await,
            Command::FeatureEnable => self.feature_update(true).await,
            Command::FeatureDisable => self.feature_update(false).await,
            Command::TrashMove => self.trash_move().await,
            Command::TrashList => self.trash_list().await,
            Command::TrashRemove => self.trash_remove().await,
            Command::TrashRestore => self.trash_restore().await,
            Command::TrashPurge => self.trash_purge().await,
            Command::ConfigGlobalList => self.config_global_list().await,
            Command::ConfigGlobalGet => self.config_global_get().await,
            Command::ConfigGlobalSet => self.config_global_set().await,
            Command::ConfigGlobalRemove => self.config_global_remove().await,
            Command::ConfigPoolList => self.config_pool_list().await,
            Command::ConfigPoolGet => self.config_pool_get().await,
            Command::ConfigPoolSet => self.config_pool_set().await,
            Command::ConfigPoolRemove => self.config_pool_remove().await,
            Command::ConfigImageList => self.config_image_list().await,
            Command::ConfigImageGet => self.config_image_get().await,
            Command::ConfigImageSet => self.config_image_set().await,
            Command::ConfigImageRemove => self.config_image_remove().await,
        }
    }

    /// Opens a pool; without a name the default one.
    async fn pool(&self, name: Option<&str>, namespace: Option<&str>) -> Result<IoCtx, Exit> {
        let name = name.unwrap_or(DEFAULT_POOL);
        let pool = self.rados.pool(name).await.map_err(|e| {
            if e.errno() == errno::ENOENT && name == DEFAULT_POOL {
                return complain(
                    errno::ENOENT,
                    format!(
                        "error opening default pool '{name}'\nEnsure that the default pool has been created or \
                         specify an alternate pool name."
                    ),
                );
            }
            complain(
                e.errno(),
                format!("error opening pool '{name}': {}", e.errno()),
            )
        })?;
        Ok(pool.with_namespace(namespace.unwrap_or_default()))
    }

    async fn open_spec(&self, spec: Spec, defaults: [&Option<String>; 3]) -> Result<Target, Exit> {
        let [pool, namespace, snap] = defaults;
        let spec = spec.or(pool, namespace, snap);
        let io = self.pool(spec.pool.as_deref(), spec.namespace.as_deref()).await?;
        Ok(Target {
            io,
            spec,
            id: None,
            role: "",
        })
    }

    /// The image of the command, of an option or else its first word, and the words behind it.
    async fn image(&self) -> Result<(Target, &[String]), Exit> {
        self.image_of(&self.words).await
    }

    /// The image of the command, of an option or else the first of `words`, and the words behind
    /// it.
    async fn image_of<'a>(&self, words: &'a [String]) -> Result<(Target, &'a [String]), Exit> {
        let args = &self.args;
        let defaults = [&args.pool, &args.namespace, &args.snap];
        if let (Some(id), None) = (&args.image_id, &args.image) {
            let target = self.open_spec(Spec::default(), defaults).await?;
            let id = Some(id.clone());
            return Ok((Target { id, ..target }, words));
        }
        if let Some(image) = &args.image {
            let spec = Spec {
                image: image.clone(),
                ..Spec::default()
            };
            return Ok((self.open_spec(spec, defaults).await?, words));
        }
        let Some((word, rest)) = words.split_first() else {
            return Err(bad("image name was not specified"));
        };
        let spec = Spec::parse(word).ok_or_else(|| bad(format!("invalid spec '{word}'")))?;
        Ok((self.open_spec(spec, defaults).await?, rest))
    }

    /// The other image of a command: of an option, or else the first of these words. Pool and
    /// namespace default to those given.
    async fn dest(
        &self,
        words: &[String],
        pool: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Target, Exit> {
        let args = &self.args;
        let pool = args.dest_pool.clone().or_else(|| pool.map(str::to_owned));
        let namespace = args
            .dest_namespace
            .clone()
            .or_else(|| namespace.map(str::to_owned));
        let defaults = [&pool, &namespace, &args.dest_snap];
        let spec = match (&args.dest, words.first()) {
            (Some(image), _) => Spec {
                image: image.clone(),
                ..Spec::default()
            },
            (None, Some(word)) => Spec::parse(word).ok_or_else(|| bad(format!("invalid spec '{word}'")))?,
            (None, None) => return Err(bad("destination image name was not specified")),
        };
        let target = self.open_spec(spec, defaults).await?;
        Ok(Target {
            role: "destination ",
            ..target
        })
    }

    /// The other image of a command. Pool and namespace default to those of `target`.
    async fn dest_near(&self, words: &[String], target: &Target) -> Result<Target, Exit> {
        let spec = &target.spec;
        self.dest(words, spec.pool.as_deref(), spec.namespace.as_deref())
            .await
    }

    /// Prints a tree in the requested format; `item` is the name of elements of its lists.
    fn print(&self, tree: &Value, root: &str, item: &str) {
        print(self.format, tree, root, item);
    }

    fn progress(&self, what: &'static str) -> Progress {
        Progress::new(what, !self.args.no_progress)
    }
}

/// Prints a tree; `item` is the name of elements of its lists.
fn print(format: Format, tree: &Value, root: &str, item: &str) {
    let bytes = format.render_named(tree, Names { root, item });
    let text = String::from_utf8_lossy(&bytes);
    println!("{}", text.trim_end_matches('\n'));
}

/// Reports a bad value of an option.
fn invalid(option: &str) -> Exit {
    complain(
        Exit::USAGE,
        format!("the argument for option '--{option}' is invalid"),
    )
}

/// Parses the size in an option: a number with a unit, or without one in units of `unit` bytes.
fn size(option: &str, text: &str, unit: u64) -> Result<u64, Exit> {
    let number = amount::iec(text).map_err(|_| invalid(option))?;
    let has_unit = !text.ends_with(|c: char| c.is_ascii_digit());
    let bytes = if has_unit {
        Some(number)
    } else {
        number.checked_mul(unit)
    };
    bytes.ok_or_else(|| invalid(option))
}

/// Closes an image after a command. If both failed, the command's failure is returned.
async fn close(image: Image, done: Done) -> Done {
    let closed = image.close().await;
    done?;
    closed.map_err(|e| failed("error closing image", &e))
}
