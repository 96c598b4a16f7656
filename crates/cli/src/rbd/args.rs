//! The arguments of `rbd`.

use clap::Parser;

use super::serve;

/// What the commands are, behind the options in the help.
const COMMANDS: &str = "\
IMAGES
   create --size <size> <image>     create an empty image
   ls [-l] [<pool>]                 list images
   info <image>[@<snap>]            size, layout, features
   resize --size <size> [--allow-shrink] <image>
                                    change the size
   rename <image> <image>           give another name
   rm <image>                       remove an image
   du [<image>[@<snap>]]            how much space images take
   export <image>[@<snap>] <path>   write an image to a file, - for standard output
   import <path> [<image>]          make an image from a file, - for standard input
   bench --io-type read|write|rw <image>
                                    measure
   serve <image>[@<snap>] ...       make images network block devices (NBD) until a signal comes

SNAPSHOTS AND CLONES
   snap create <image>@<snap>       take a snapshot
   snap ls [--all] <image>          list snapshots
   snap rm <image>@<snap>           remove one
   snap rename <image>@<snap> <image>@<snap>
                                    give another name
   snap rollback <image>@<snap>     make the image what it was
   snap protect <image>@<snap>      keep it from being removed
   snap unprotect <image>@<snap>    let it be removed
   snap purge <image>               remove all
   snap limit set --limit <n> <image>, snap limit clear <image>
                                    how many there may be
   clone <image>@<snap> <image>     make an image that begins as a snapshot
   children <image>[@<snap>]        list such images
   flatten <image>                  make one independent of its snapshot

POOLS AND CLIENTS
   pool init [--force] <pool>       make a pool one of images
   pool stats [<pool>[/<namespace>]]
                                    how many images there are, and how large
   namespace create|rm <pool>/<namespace>, namespace ls [<pool>]
                                    parts of a pool that keys may be limited to
   status <image>                   which clients use an image
   lock ls <image>, lock add [--shared <tag>] <image> <id>, lock rm <image> <id> <locker>
                                    locks that people take by hand
   image-meta ls <image>, image-meta get|rm <image> <key>, image-meta set <image> <key> <value>
                                    what is noted of an image

An image is [<pool>/[<namespace>/]]<name>.";

/// Block images
#[derive(Debug, Parser)]
#[command(
    name = "rbd",
    override_usage = "rbd [options] <command> ...",
    after_help = COMMANDS,
    disable_help_subcommand = true,
    disable_version_flag = true
)]
pub(crate) struct Args {
    /// The pool
    #[arg(short, long)]
    pub(crate) pool: Option<String>,
    /// The namespace in it
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// The image
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// The snapshot
    #[arg(long)]
    pub(crate) snap: Option<String>,
    /// The pool of the other image
    #[arg(long)]
    pub(crate) dest_pool: Option<String>,
    /// The namespace of the other image
    #[arg(long)]
    pub(crate) dest_namespace: Option<String>,
    /// The other image
    #[arg(long)]
    pub(crate) dest: Option<String>,
    /// The other snapshot
    #[arg(long)]
    pub(crate) dest_snap: Option<String>,
    /// The file
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// The image's size, in MiB unless it has a unit
    #[arg(short, long)]
    pub(crate) size: Option<String>,
    /// The size of objects as a power of two
    #[arg(long)]
    pub(crate) order: Option<u8>,
    /// The size of objects
    #[arg(long)]
    pub(crate) object_size: Option<String>,
    /// The format of the image: 2
    #[arg(long)]
    pub(crate) image_format: Option<String>,
    /// What the image can do
    #[arg(long, value_name = "FEATURE")]
    pub(crate) image_feature: Vec<String>,
    /// The image is for several clients at once
    #[arg(long)]
    pub(crate) image_shared: bool,
    /// Bytes that lie together
    #[arg(long)]
    pub(crate) stripe_unit: Option<String>,
    /// Objects that are written in turn
    #[arg(long)]
    pub(crate) stripe_count: Option<u64>,
    /// The pool of the data
    #[arg(long)]
    pub(crate) data_pool: Option<String>,
    /// With resize: data may be lost
    #[arg(long)]
    pub(crate) allow_shrink: bool,
    /// With ls: more of each
    #[arg(short, long)]
    pub(crate) long: bool,
    /// With snap ls and children: those that are out of sight, too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// With lock add: others may hold the lock, too, with the same tag
    #[arg(long, value_name = "TAG")]
    pub(crate) shared: Option<String>,
    /// With pool init: also a pool of another application
    #[arg(long)]
    pub(crate) force: bool,
    /// With snap limit: how many
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// With du: snapshots and image as one
    #[arg(long)]
    pub(crate) merge_snapshots: bool,
    /// With import: zeros of this many bytes are not written
    #[arg(long)]
    pub(crate) sparse_size: Option<String>,
    /// With export and import: 1
    #[arg(long)]
    pub(crate) export_format: Option<String>,
    /// With bench: bytes of a request
    #[arg(long)]
    pub(crate) io_size: Option<String>,
    /// With bench: requests at once
    #[arg(long)]
    pub(crate) io_threads: Option<u64>,
    /// With bench: bytes in all
    #[arg(long)]
    pub(crate) io_total: Option<String>,
    /// With bench: seq, full-seq or rand
    #[arg(long)]
    pub(crate) io_pattern: Option<String>,
    /// With bench: percent of reads
    #[arg(long)]
    pub(crate) rw_mix_read: Option<u64>,
    /// With bench: read, write or readwrite
    #[arg(long)]
    pub(crate) io_type: Option<String>,
    #[command(flatten)]
    pub(crate) serve: serve::Args,
    /// plain, json or xml
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// With json and xml: with line feeds
    #[arg(long)]
    pub(crate) pretty_format: bool,
    /// Don't show how far things are
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Accepted for the official tool's sake: there are no quiesce hooks here
    #[arg(long)]
    pub(crate) skip_quiesce: bool,
    /// Accepted for the official tool's sake
    #[arg(long)]
    pub(crate) ignore_quiesce_error: bool,
    /// The command and what it is about
    #[arg(value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}
