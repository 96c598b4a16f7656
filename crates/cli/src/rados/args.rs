//! The arguments of `rados`.

use std::collections::BTreeMap;

use clap::{CommandFactory, Parser};

/// The commands, behind the options in the help.
const COMMANDS: &str = "\
POOL COMMANDS
   lspools                          list pools
   mkpool <pool-name> [crush-rule]  create a pool
   rmpool <pool-name> <pool-name> --yes-i-really-really-mean-it
                                    remove a pool and all its objects
   cppool <pool-name> <dest-pool>   copy a pool's objects into another pool
   purge <pool-name> --yes-i-really-really-mean-it
                                    remove all objects of a pool, not the pool
   df                               show per-pool and total usage
   ls                               list objects in pool

POOL SNAP COMMANDS
   lssnap                           list the pool's snapshots
   mksnap <snap-name>               take one
   rmsnap <snap-name>               remove one

OBJECT COMMANDS
   get <obj-name> <outfile>         fetch object, - for standard output
   put <obj-name> <infile> [--offset offset]
                                    write object, - for standard input
   append <obj-name> <infile>       append to object
   truncate <obj-name> <length>     truncate object
   create <obj-name>                create object
   rm <obj-name> ... [--force-full] remove objects, --force-full when the cluster is full, too
   cp <obj-name> [target-obj]       copy object
   listxattr <obj-name>             list attributes of this object
   getxattr <obj-name> <attr>       get an attribute of this object
   setxattr <obj-name> <attr> [val] set it, to standard input without a value
   rmxattr <obj-name> <attr>        remove it
   stat <obj-name>                  size and modification time of this object
   stat2 <obj-name>                 the same with microseconds
   touch <obj-name> [timestamp]     change the modification time, create the object if missing
   mapext <obj-name>                ranges that hold data, in hexadecimal
   set-alloc-hint <obj-name> <expected-object-size> <expected-write-size>
                                    say what writes to expect
   rollback <obj-name> <snap-name>  set the object to what it was at a snapshot
   listsnaps <obj-name>             list the object's clones

OBJECT MAP COMMANDS
   listomapkeys <obj-name>          list the keys in the object map
   listomapvals <obj-name>          the same with values
   getomapval <obj-name> <key> [file]
                                    get a value of the object map
   setomapval <obj-name> <key> [val]
                                    set it, to --input-file or standard input without a value
   rmomapkey <obj-name> <key>       remove a key
   clearomap <obj-name> ...         remove all keys and the header
   getomapheader <obj-name> [file]  get the header
   setomapheader <obj-name> <val>   set it

WATCH AND NOTIFY
   watch <obj-name>                 watch this object until enter is pressed
   notify <obj-name> <message>      tell its watchers, wait for their answers
   listwatchers <obj-name>          list its watchers

ADVISORY LOCKS
   lock list <obj-name>             list the locks on an object
   lock get <obj-name> <lock-name>  take a lock
   lock break <obj-name> <lock-name> <locker-name>
                                    take it away from another client
   lock info <obj-name> <lock-name> who holds it

IMPORT AND EXPORT
   export [filename]                write the pool's contents to a file or standard output
   import [--dry-run] [--no-overwrite] <filename | ->
                                    write them into a pool

SCRUB
   list-inconsistent-pg <pool>      list PGs with inconsistent objects
   list-inconsistent-obj <pgid>     list what is wrong with a PG's objects
   list-inconsistent-snapset <pgid> list what is wrong between its objects and their clones

CACHE POOLS AND MANIFESTS
   cache-flush, cache-try-flush, cache-evict, tier-promote, tier-flush, tier-evict, unset-manifest <obj-name>
   cache-flush-evict-all, cache-try-flush-evict-all
   set-redirect <obj-name> --target-pool <pool> <target-obj> [--with-reference]
   set-chunk <obj-name> <offset> <length> --target-pool <pool> <target-obj> <target-offset>

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
    /// With cp and others: the pool of the other object
    #[arg(long, value_name = "POOL")]
    pub(crate) target_pool: Option<String>,
    /// With cp: the other object's locator key
    #[arg(long, value_name = "KEY")]
    pub(crate) target_locator: Option<String>,
    /// With cp: the other object's namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) target_nspace: Option<String>,
    /// The PG whose objects are listed
    #[arg(long)]
    pub(crate) pgid: Option<String>,
    /// Read what was at this snapshot of the pool
    #[arg(short, long, value_name = "NAME")]
    pub(crate) snap: Option<String>,
    /// The same by the snapshot's number
    #[arg(short = 'S', long, value_name = "ID")]
    pub(crate) snapid: Option<String>,
    /// Objects are striped as libradosstriper does
    #[arg(long)]
    pub(crate) striper: bool,
    /// With setomapval: the file that holds the value
    #[arg(long, value_name = "FILE")]
    pub(crate) input_file: Option<String>,
    /// Take the key of an object map from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) omap_key_file: Option<String>,
    /// With cache-flush and cache-evict: the object's clones, too
    #[arg(long)]
    pub(crate) with_clones: bool,
    /// With set-redirect: count the reference
    #[arg(long)]
    pub(crate) with_reference: bool,
    /// With lock: all lockers give the same
    #[arg(long, value_name = "TAG", default_value = "")]
    pub(crate) lock_tag: String,
    /// With lock: tells apart several locks of one client
    #[arg(long, value_name = "COOKIE", default_value = "")]
    pub(crate) lock_cookie: String,
    /// With lock: for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) lock_description: String,
    /// With lock: seconds after which it ends
    #[arg(long, value_name = "SECONDS")]
    pub(crate) lock_duration: Option<String>,
    /// With lock: exclusive or shared
    #[arg(long, value_name = "TYPE")]
    pub(crate) lock_type: Option<String>,
    /// Take the object's name from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) obj_name_file: Option<String>,
    /// plain, json, json-pretty, xml or xml-pretty
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
    /// Without meaning for years
    #[arg(long, hide = true)]
    pub(crate) workers: Option<String>,
    /// The same
    #[arg(short, long, hide = true)]
    pub(crate) delete_after: bool,
    /// The command and its words
    #[arg(hide = true, allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

/// All spellings of options, and whether each takes a value.
fn options() -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for arg in Args::command().get_arguments().filter(|a| !a.is_positional()) {
        let takes_value = arg.get_action().takes_values();
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        all.extend(longs.into_iter().map(|long| (format!("--{long}"), takes_value)));
        all.extend(arg.get_short().map(|short| (format!("-{short}"), takes_value)));
    }
    all
}

/// Puts the options before all other words, which follow behind `--`. The official tool takes
/// unknown options for words of the command, wherever they stand, and underscores for hyphens.
///
/// # Errors
/// The option that lacks its value.
pub(crate) fn sort(words: Vec<String>) -> Result<Vec<String>, String> {
    let known = options();
    let (mut sorted, mut rest) = (Vec::new(), vec!["--".to_owned()]);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            rest.extend(words);
            break;
        }
        if word == "-h" || word == "--help" {
            return Ok(vec!["--help".to_owned()]);
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let name = name.replace('_', "-");
        match known.get(&name) {
            None => rest.push(word),
            Some(false) => sorted.push(name),
            Some(true) => {
                let value = value.or_else(|| words.next());
                let value = value.ok_or_else(|| format!("Option {name} requires an argument."))?;
                sorted.push(format!("{name}={value}"));
            }
        }
    }
    sorted.append(&mut rest);
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(text: &str) -> Result<Vec<String>, String> {
        sort(text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_stand_anywhere_and_unknown_ones_are_words() {
        let args = sorted("import -p a --dry-run --object_locator=k=l f -N n -C").unwrap();
        assert_eq!(
            args.join(" "),
            "-p=a --object-locator=k=l -N=n -C -- import --dry-run f"
        );
        let args = Args::try_parse_from(std::iter::once("rados".to_owned()).chain(args)).unwrap();
        assert_eq!(args.words, ["import", "--dry-run", "f"]);
        assert_eq!(args.object_locator.as_deref(), Some("k=l"));
        assert!(args.create);
        let args = sorted("setxattr o -x -5 -p p -- -p q").unwrap();
        assert_eq!(args.join(" "), "-p=p -- setxattr o -x -5 -p q");
        assert!(sorted("ls -p").is_err());
        assert_eq!(sorted("ls --help -p").unwrap(), ["--help"]);
    }
}
