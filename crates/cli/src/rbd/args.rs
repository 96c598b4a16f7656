//! The arguments of `rbd`.

use std::collections::BTreeSet;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};

use super::{device, serve};

/// Block images
#[derive(Debug, Parser)]
#[command(name = "rbd", disable_help_flag = true, disable_version_flag = true)]
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
    /// The image's id
    #[arg(long)]
    pub(crate) image_id: Option<String>,
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
    /// Over how many objects a journal's entries are spread at a time
    #[arg(long)]
    pub(crate) journal_splay_width: Option<u8>,
    /// The size of objects with a journal's entries
    #[arg(long)]
    pub(crate) journal_object_size: Option<String>,
    /// The pool of a journal's entries
    #[arg(long)]
    pub(crate) journal_pool: Option<String>,
    /// The snapshot since which changes count
    #[arg(long, value_name = "SNAP")]
    pub(crate) from_snap: Option<String>,
    /// Whole objects, as far as possible from the object maps
    #[arg(long)]
    pub(crate) whole_object: bool,
    /// Copy what is seen of a parent, too
    #[arg(long)]
    pub(crate) flatten: bool,
    /// Until when the image should stay, as date(1) understands it; now where it is left out
    #[arg(long, value_name = "DATE")]
    pub(crate) expires_at: Option<String>,
    /// Those that need not stay any longer at this time, as date(1) understands it
    #[arg(long, value_name = "DATE")]
    pub(crate) expired_before: Option<String>,
    /// Until no more of the pool than this is used, from 0.0 to 1.0: those first that need not stay
    /// for long
    #[arg(long)]
    pub(crate) threshold: Option<String>,
    /// Data may be lost
    #[arg(long)]
    pub(crate) allow_shrink: bool,
    /// More of each
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Those that are out of sight, too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Clones of clones, too
    #[arg(long)]
    pub(crate) descendants: bool,
    /// By the byte, of each object by itself
    #[arg(long)]
    pub(crate) exact: bool,
    /// Others may hold the lock, too, with the same tag
    #[arg(long, value_name = "TAG")]
    pub(crate) shared: Option<String>,
    /// Whatever speaks against it: another application of the pool, or that an image should stay
    #[arg(long)]
    pub(crate) force: bool,
    /// How many there may be
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// Snapshots and image as one
    #[arg(long)]
    pub(crate) merge_snapshots: bool,
    /// Zeros of this many bytes are not written
    #[arg(long)]
    pub(crate) sparse_size: Option<String>,
    /// The format of the file: 1 for what the image holds, 2 for an image with its snapshots
    #[arg(long)]
    pub(crate) export_format: Option<String>,
    /// Bytes of a request
    #[arg(long)]
    pub(crate) io_size: Option<String>,
    /// Requests at once
    #[arg(long)]
    pub(crate) io_threads: Option<u64>,
    /// Bytes in all
    #[arg(long)]
    pub(crate) io_total: Option<String>,
    /// seq, full-seq or rand
    #[arg(long)]
    pub(crate) io_pattern: Option<String>,
    /// Percent of reads
    #[arg(long)]
    pub(crate) rw_mix_read: Option<u64>,
    /// read, write or readwrite
    #[arg(long)]
    pub(crate) io_type: Option<String>,
    #[command(flatten)]
    pub(crate) serve: serve::Args,
    #[command(flatten)]
    pub(crate) device: device::Args,
    /// plain, json or xml
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// Spread over lines
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
    /// Print help
    #[arg(short, long)]
    pub(crate) help: bool,
    /// The command and what it is about
    #[arg(value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

/// A parsed command line: the arguments, and which options were given. Most commands take few of
/// the options.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) args: Args,
    pub(crate) given: BTreeSet<String>,
}

impl FromArgMatches for Line {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = Args::command();
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = command
            .get_arguments()
            .map(|a| a.get_id().as_str())
            .filter(is_given);
        Ok(Self {
            given: given.map(str::to_owned).collect(),
            args: Args::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl CommandFactory for Line {
    fn command() -> Command {
        Args::command()
    }

    fn command_for_update() -> Command {
        Args::command_for_update()
    }
}

impl Parser for Line {}

/// The official tool's message about a command line that can't be parsed.
pub(crate) fn refusal(e: &clap::Error) -> Option<String> {
    let text = |kind| match e.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    // The option as clap shows it, with a name for its value.
    let option = argument.split(' ').next().unwrap_or(&argument);
    match (e.kind(), text(ContextKind::InvalidValue)) {
        (ErrorKind::UnknownArgument, _) => Some(format!("unrecognised option '{option}'")),
        (ErrorKind::InvalidValue, None) => {
            Some(format!("the required argument for option '{option}' is missing"))
        }
        (ErrorKind::InvalidValue, Some(value)) if value.is_empty() => {
            Some(format!("the required argument for option '{option}' is missing"))
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(value)) => Some(format!(
            "the argument ('{value}') for option '{option}' is invalid"
        )),
        (ErrorKind::TooManyValues, _) => Some(format!("option '{option}' does not take any arguments")),
        _ => None,
    }
}
