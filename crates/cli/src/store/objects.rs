//! `spirula store object`: what a copy holds of single objects, and how to change it, after the
//! official `ceph-objectstore-tool`. Attributes have the names that this tool gives them: `_` is the
//! object's info, `_NAME` a user's attribute.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_denc::decode_all;
use spirula_maps::PgId;
use spirula_osd::pg::key::snap_key;
use spirula_osd::pg::object::ObjectInfo;
use spirula_proto::osd_op_data::attr;
use spirula_store::{ObjectKey, Onode, Op, Transaction};

use super::named::{Found, find, line, of_pgs};
use super::offline::Offline;
use super::omap;
use crate::error::Error;
use crate::rados::attr_value;
use crate::rados::format::text;

/// An object of a copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The placement group, such as 1.2a
    #[arg(value_parser = pg)]
    pg: PgId,
    /// The object's name; its line in `list`, if it has clones
    object: String,
}

/// An object and one of its attributes or keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Part {
    #[command(flatten)]
    pub(super) target: Target,
    /// The name of the attribute, or the key
    pub(super) name: String,
}

/// Where a value is read.
#[derive(Debug, clap::Args)]
pub(crate) struct Input {
    /// The file with the value [default: standard input]
    file: Option<PathBuf>,
}

/// What to do with an object. A change is durable when the command ends. It changes nothing else,
/// not even the object's info.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the objects, one a line
    List {
        /// Only those of this placement group
        #[arg(long, value_parser = pg)]
        pg: Option<PgId>,
    },
    /// Show an object's info, its clones and its size
    Dump(Target),
    /// Remove an object, with all that belongs to it
    Remove(Target),
    /// Write an object's data to a file or to standard output
    GetBytes {
        #[command(flatten)]
        target: Target,
        /// The file to write [default: standard output]
        file: Option<PathBuf>,
    },
    /// Replace an object's data
    SetBytes {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        value: Input,
    },
    /// List the names of an object's attributes: `_` is its info, `_NAME` a user's
    ListAttrs(Target),
    /// Show an attribute
    GetAttr(Part),
    /// Set an attribute
    SetAttr {
        #[command(flatten)]
        part: Part,
        #[command(flatten)]
        value: Input,
    },
    /// Remove an attribute
    RmAttr(Part),
    #[command(flatten)]
    Omap(omap::Command),
}

fn pg(text: &str) -> Result<PgId, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a placement group such as 1.2a"))
}

impl Input {
    pub(super) fn read(&self) -> Result<Bytes, Error> {
        let mut value = Vec::new();
        let (path, read) = match &self.file {
            Some(path) => (
                path.as_path(),
                File::open(path).and_then(|mut f| f.read_to_end(&mut value)),
            ),
            None => (
                Path::new("standard input"),
                std::io::stdin().lock().read_to_end(&mut value),
            ),
        };
        read.map_err(|e| Error::path("read", path, e))?;
        Ok(value.into())
    }
}

/// Writes to standard output. A pipe that was closed ends the output without an error.
pub(super) fn print(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::Output(e)),
        _ => Ok(()),
    }
}

pub(super) fn print_names<'a>(names: impl Iterator<Item = &'a Bytes>) -> Result<(), Error> {
    let lines: Vec<&[u8]> = names.flat_map(|name| [&name[..], b"\n"]).collect();
    print(&lines.concat())
}

/// The attributes of an object, with its info as the first.
fn attrs(onode: &Onode) -> Vec<(Bytes, Bytes)> {
    let info = Some(onode.info()).filter(|info| !info.is_empty());
    let info = info.map(|info| (attr::OBJECT_INFO, info.clone()));
    let users = onode.attrs().iter();
    let users = users.map(|(name, value)| (attr::of_user(name), value.clone()));
    info.into_iter().chain(users).collect()
}

pub(super) fn value_of(pairs: &[(Bytes, Bytes)], name: &str) -> Result<Bytes, Error> {
    let found = pairs.iter().find(|(n, _)| n == name.as_bytes());
    let missing = || Error::Usage(format!("the object has no {name}"));
    found.map(|(_, value)| value.clone()).ok_or_else(missing)
}

/// The change that sets an attribute, or with `None` removes it.
fn attr_op(key: ObjectKey, name: &str, value: Option<Bytes>) -> Result<Op, Error> {
    if name.as_bytes() == attr::OBJECT_INFO {
        let info = value.unwrap_or_default();
        return Ok(Op::SetInfo { key, info });
    }
    let user = attr::user_name(name.as_bytes()).map(Bytes::copy_from_slice);
    let name = user.ok_or_else(|| {
        Error::Usage(format!(
            "{name} is no attribute: `_` is the info, `_NAME` a user's attribute"
        ))
    })?;
    Ok(match value {
        Some(value) => Op::SetAttr { key, name, value },
        None => Op::RmAttr { key, name },
    })
}

/// The changes that remove an object, with the records of the snapshots that a clone stands for.
fn removal(key: ObjectKey, onode: &Onode) -> Vec<Op> {
    let info: ObjectInfo = decode_all(onode.info()).unwrap_or_default();
    let records = info.snaps.iter();
    let mut ops: Vec<Op> = records
        .map(|snap| Op::MetaDelete(snap_key(*snap, key.as_slice())))
        .collect();
    ops.push(Op::Remove(key));
    ops
}

/// What is known of an object besides its content; `info` is `null` if it cannot be read.
fn description(found: &Found, onode: &Onode) -> Value {
    let digest = |digest: u32| format!("{digest:#010x}");
    let info = decode_all(onode.info()).ok().map(|info: ObjectInfo| {
        let clones = info.snap_set.clones.iter();
        let clones = clones.map(|c| json!({"snap": c.id, "size": c.size, "snaps": c.snaps}));
        json!({
            "version": info.version.to_string(),
            "prior_version": info.prior_version.to_string(),
            "user_version": info.user_version,
            "size": info.size,
            "mtime": info.mtime.to_string(),
            "local_mtime": info.local_mtime.to_string(),
            "truncate_seq": info.truncate_seq,
            "truncate_size": info.truncate_size,
            "data_digest": info.digests.data.map(digest),
            "omap_digest": info.digests.omap.map(digest),
            "omap": info.has_omap(),
            "whiteout": info.whiteout,
            "expected_object_size": info.hint.object_size,
            "expected_write_size": info.hint.write_size,
            "alloc_hint_flags": info.hint.flags.0,
            "watchers": info.watchers.len(),
            "snaps": info.snaps,
            "snapset": {"seq": info.snap_set.seq, "clones": clones.collect::<Vec<_>>()},
        })
    });
    json!({
        "id": attr_value::object(&found.object),
        "info": info,
        "stat": {"size": onode.size(), "allocated": onode.allocated()},
        "attrs": attrs(onode).iter().map(|(name, _)| text(name)).collect::<Vec<_>>(),
    })
}

/// An object that was found, in its store.
pub(super) struct Place<'a> {
    store: &'a mut Offline,
    found: Found,
}

impl Place<'_> {
    pub(super) fn onode(&mut self) -> Result<Arc<Onode>, Error> {
        self.store.object(&self.found.key)
    }

    pub(super) fn key(&self) -> ObjectKey {
        self.found.key.clone()
    }

    pub(super) fn omap(&mut self) -> Result<Vec<(Bytes, Bytes)>, Error> {
        self.store.omap(&self.found.key)
    }

    pub(super) fn commit(&mut self, ops: Vec<Op>) -> Result<(), Error> {
        self.store.commit(Transaction { ops })
    }

    fn set_attr(&mut self, name: &str, value: Option<Bytes>) -> Result<(), Error> {
        let op = attr_op(self.key(), name, value)?;
        self.commit(vec![op])
    }

    fn set_bytes(&mut self, data: Bytes) -> Result<(), Error> {
        let key = self.key();
        let mut txn = Transaction::new();
        txn.truncate(&key, 0);
        if !data.is_empty() {
            txn.write(&key, 0, data);
        }
        self.store.commit(txn)
    }

    fn get_bytes(&mut self, file: Option<&Path>) -> Result<(), Error> {
        let data = self.store.data(&self.found.key)?;
        match file {
            Some(path) => std::fs::write(path, data).map_err(|e| Error::path("write", path, e)),
            None => print(&data),
        }
    }
}

impl Target {
    pub(super) fn find<'a>(&self, store: &'a mut Offline) -> Result<Place<'a>, Error> {
        let found = find(store, self.pg, &self.object)?;
        Ok(Place { store, found })
    }
}

impl Command {
    /// Runs the command on an open store.
    pub(super) fn run(&self, store: &mut Offline) -> Result<(), Error> {
        match self {
            Self::List { pg } => of_pgs(store, *pg, |pg, _, object| {
                print(format!("{}\n", line(pg, object)).as_bytes())
            }),
            Self::Dump(target) => {
                let mut place = target.find(store)?;
                let onode = place.onode()?;
                print(format!("{:#}\n", description(&place.found, &onode)).as_bytes())
            }
            Self::Remove(target) => {
                let mut place = target.find(store)?;
                let onode = place.onode()?;
                place.commit(removal(place.key(), &onode))
            }
            Self::GetBytes { target, file } => target.find(store)?.get_bytes(file.as_deref()),
            Self::SetBytes { target, value } => target.find(store)?.set_bytes(value.read()?),
            Self::ListAttrs(target) => {
                let onode = target.find(store)?.onode()?;
                print_names(attrs(&onode).iter().map(|(name, _)| name))
            }
            Self::GetAttr(part) => {
                let onode = part.target.find(store)?.onode()?;
                print(&value_of(&attrs(&onode), &part.name)?)
            }
            Self::SetAttr { part, value } => {
                let mut place = part.target.find(store)?;
                place.set_attr(&part.name, Some(value.read()?))
            }
            Self::RmAttr(part) => {
                let mut place = part.target.find(store)?;
                let onode = place.onode()?;
                value_of(&attrs(&onode), &part.name)?;
                place.set_attr(&part.name, None)
            }
            Self::Omap(command) => command.run(store),
        }
    }
}
