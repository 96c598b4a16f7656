//! The arguments of `rados`.

use clap::Parser;

/// What the commands are, behind the options in the help.
const COMMANDS: &str = "\
POOL COMMANDS
   lspools                          list pools
   mkpool <pool-name> [crush-rule]  create a pool
   rmpool <pool-name> <pool-name> --yes-i-really-really-mean-it
                                    remove a pool and all its objects
   df                               show per-pool and total usage
   ls                               list objects in pool

OBJECT COMMANDS
   get <obj-name> <outfile>         fetch object, - for standard output
   put <obj-name> <infile> [--offset offset]
                                    write object, - for standard input
   append <obj-name> <infile>       append to object
   truncate <obj-name> <length>     truncate object
   create <obj-name>                create object
   rm <obj-name> ... [--force-full] remove objects, --force-full when the cluster is full, too
   listxattr <obj-name>             list attributes of this object
   getxattr <obj-name> <attr>       get an attribute of this object
   setxattr <obj-name> <attr> [val] set it, to standard input without a value
   rmxattr <obj-name> <attr>        remove it
   stat <obj-name>                  size and modification time of this object
   stat2 <obj-name>                 the same with microseconds
   touch <obj-name> [timestamp]     change the modification time, create the object if missing
   listomapkeys <obj-name>          list the keys in the object map
   getomapval <obj-name> <key> [file]
                                    get a value of the object map
   setomapval <obj-name> <key> [val]
                                    set it, to standard input without a value
   rmomapkey <obj-name> <key>       remove a key

BENCHMARK
   bench <seconds> write|seq|rand [-t concurrent-operations] [--no-cleanup] [--run-name name]
                                    16 operations of 4 MiB at once unless told otherwise
   cleanup [--run-name name] [--prefix prefix]
                                    remove the objects of a benchmark
   load-gen                         generate load on the cluster";

/// Object access and benchmarks
#[derive(Debug, Parser)]
#[command(
    name = "rados",
    override_usage = "rados [options] [commands]",
    after_help = COMMANDS,
    disable_help_subcommand = true,
    disable_version_flag = true
)]
pub(crate) struct Args {
    /// The pool
    #[arg(short, long)]
    pub(crate) pool: Option<String>,
    /// The namespace of the objects
    #[arg(short = 'N', long)]
    pub(crate) namespace: Option<String>,
    /// With ls and cleanup: objects in all namespaces
    #[arg(long)]
    pub(crate) all: bool,
    /// With ls: objects in the default namespace, even if --all is in CEPH_ARGS
    #[arg(long)]
    pub(crate) default: bool,
    /// The key that is hashed instead of the objects' names
    #[arg(long)]
    pub(crate) object_locator: Option<String>,
    /// Take the object's name from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) obj_name_file: Option<String>,
    /// plain, json or json-pretty
    #[arg(short, long)]
    pub(crate) format: Option<String>,
    /// Where ls and bench write to
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<String>,
    /// Create the pool
    #[arg(short = 'C', long, visible_alias = "create-pool")]
    pub(crate) create: bool,
    /// Remove objects although the cluster is full
    #[arg(long)]
    pub(crate) force_full: bool,
    /// Where put begins
    #[arg(long)]
    pub(crate) offset: Option<String>,
    /// Size of put's, get's and benchmark's operations
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) block_size: Option<String>,
    /// Size of benchmark objects
    #[arg(short = 'O', long, value_name = "SIZE")]
    pub(crate) object_size: Option<String>,
    /// Most objects that a benchmark writes
    #[arg(long, value_name = "N")]
    pub(crate) max_objects: Option<String>,
    /// Concurrent operations
    #[arg(short = 't', long, value_name = "N")]
    pub(crate) concurrent_ios: Option<String>,
    /// Keep a write benchmark's objects
    #[arg(long)]
    pub(crate) no_cleanup: bool,
    /// Don't tell OSDs what to expect
    #[arg(long)]
    pub(crate) no_hints: bool,
    /// Write the objects of an earlier run
    #[arg(long)]
    pub(crate) reuse_bench: bool,
    /// Don't compare what is read
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// The benchmark's name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) run_name: String,
    /// Begin of the names that cleanup removes
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// Benchmark writes to the objects' data
    #[arg(long)]
    pub(crate) write_object: bool,
    /// Benchmark writes to the object maps
    #[arg(long)]
    pub(crate) write_omap: bool,
    /// Benchmark writes to attributes
    #[arg(long)]
    pub(crate) write_xattr: bool,
    /// Date and time before every line of a benchmark
    #[arg(long)]
    pub(crate) show_time: bool,
    #[command(flatten)]
    pub(super) load: super::load_gen::LoadArgs,
    #[arg(long, hide = true)]
    pub(crate) pretty_format: bool,
    #[arg(long, hide = true)]
    pub(crate) yes_i_really_really_mean_it: bool,
    /// The command and its words
    #[arg(hide = true, allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

/// How output is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    /// A format by name.
    pub(crate) fn parse(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("plain") => Some(Self::Plain),
            Some("json") => Some(Self::Json),
            Some("json-pretty") => Some(Self::JsonPretty),
            Some(_) => None,
        }
    }

    /// JSON in this format, as the official tools lay it out.
    pub(crate) fn json(self, value: &serde_json::Value) -> Vec<u8> {
        if self != Self::JsonPretty {
            return value.to_string().into_bytes();
        }
        let mut out = Vec::new();
        let style = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut writer = serde_json::Serializer::with_formatter(&mut out, style);
        // Writing into memory does not fail.
        let _ = serde::Serialize::serialize(value, &mut writer);
        out.push(b'\n');
        out
    }
}
