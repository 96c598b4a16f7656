//! The commands of `rbd`: their names, operands, and the options that each takes.

use super::Command;

/// A command.
pub(super) struct Definition {
    pub(super) command: Command,
    /// Its name, and aliases.
    pub(super) names: &'static [&'static str],
    /// Its operands in order: optional ones in brackets, and with an ellipsis those that may be
    /// repeated.
    pub(super) operands: &'static str,
    /// Its help text.
    pub(super) about: &'static str,
    /// Groups of its options, by their ids in [`super::Args`].
    options: &'static [&'static [&'static str]],
}

const POOL: &[&str] = &["pool", "namespace"];
const IMAGE: &[&str] = &["pool", "namespace", "image"];
const SNAP: &[&str] = &["snap"];
const ID: &[&str] = &["image_id"];
const DEST: &[&str] = &["dest_pool", "dest_namespace", "dest"];
const DEST_SNAP: &[&str] = &["dest_snap"];
const FORMAT: &[&str] = &["format", "pretty_format"];
const PROGRESS: &[&str] = &["no_progress"];
const PATH: &[&str] = &["path"];
const SIZE: &[&str] = &["size"];
const QUIESCE: &[&str] = &["skip_quiesce", "ignore_quiesce_error"];
const JOURNAL: &[&str] = &["journal_splay_width", "journal_object_size", "journal_pool"];
const CREATION: &[&str] = &[
    "order",
    "object_size",
    "image_format",
    "image_feature",
    "image_shared",
    "stripe_unit",
    "stripe_count",
    "data_pool",
];
const SERVE: &[&str] = &[
    "listen",
    "socket",
    "read_only",
    "exclusive",
    "cache",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "tls_optional",
];
const DEVICE: &[&str] = &["device_type"];
const DEVICE_OPTIONS: &[&str] = &["options"];
const BENCH: &[&str] = &[
    "io_size",
    "io_threads",
    "io_total",
    "io_pattern",
    "rw_mix_read",
    "io_type",
];

const POOL_SPEC: &str = "[<pool>[/<namespace>]]";
const IMAGE_SPEC: &str = "[<pool>/[<namespace>/]]<image>";
const SNAP_SPEC: &str = "[<pool>/[<namespace>/]]<image>@<snap>";
const ANY_SPEC: &str = "[<pool>/[<namespace>/]]<image>[@<snap>]";

/// All commands, in the order in which the help lists them.
pub(super) const DEFINITIONS: &[Definition] = &[
    define(
        Command::Create,
        &["create"],
        IMAGE_SPEC,
        "Create an empty image",
        &[IMAGE, SIZE, CREATION, JOURNAL, PROGRESS],
    ),
    define(
        Command::List,
        &["ls", "list"],
        POOL_SPEC,
        "List images",
        &[POOL, &["long"], FORMAT],
    ),
    define(
        Command::Info,
        &["info"],
        ANY_SPEC,
        "Show an image's size, layout and features",
        &[IMAGE, SNAP, ID, FORMAT],
    ),
    define(
        Command::Resize,
        &["resize"],
        IMAGE_SPEC,
        "Change an image's size",
        &[IMAGE, SIZE, &["allow_shrink"], PROGRESS],
    ),
    define(
        Command::Rename,
        &["mv", "rename"],
        "[<pool>/[<namespace>/]]<image> <image>",
        "Give an image another name",
        &[IMAGE, DEST],
    ),
    define(
        Command::Remove,
        &["rm", "remove"],
        IMAGE_SPEC,
        "Remove an image",
        &[IMAGE, PROGRESS],
    ),
    define(
        Command::Usage,
        &["du", "disk-usage"],
        "[[<pool>/[<namespace>/]]<image>[@<snap>]]",
        "Show how much space images take",
        &[IMAGE, SNAP, FORMAT, &["from_snap", "exact", "merge_snapshots"]],
    ),
    define(
        Command::ObjectMapRebuild,
        &["object-map rebuild"],
        ANY_SPEC,
        "Make an object map anew, of the objects that there are",
        &[IMAGE, SNAP, PROGRESS],
    ),
    define(
        Command::ObjectMapCheck,
        &["object-map check"],
        ANY_SPEC,
        "Compare an object map with the objects that there are; one that misses some is invalid from then on",
        &[IMAGE, SNAP, PROGRESS],
    ),
    define(
        Command::Sparsify,
        &["sparsify"],
        IMAGE_SPEC,
        "Give back the space of zeros that were written as data",
        &[IMAGE, &["sparse_size"], PROGRESS],
    ),
    define(
        Command::Status,
        &["status"],
        IMAGE_SPEC,
        "Show which clients use an image",
        &[IMAGE, FORMAT],
    ),
    define(
        Command::Watch,
        &["watch"],
        IMAGE_SPEC,
        "Show what clients of an image say to each other, until a line is entered",
        &[IMAGE],
    ),
    define(
        Command::FeatureEnable,
        &["feature enable"],
        "[<pool>/[<namespace>/]]<image> <feature>...",
        "Enable features of an image",
        &[IMAGE, JOURNAL],
    ),
    define(
        Command::FeatureDisable,
        &["feature disable"],
        "[<pool>/[<namespace>/]]<image> <feature>...",
        "Disable features of an image",
        &[IMAGE],
    ),
    define(
        Command::Export,
        &["export"],
        "[<pool>/[<namespace>/]]<image>[@<snap>] [<path>]",
        "Write an image to a file, - for standard output",
        &[IMAGE, SNAP, PATH, PROGRESS, &["export_format"]],
    ),
    define(
        Command::Import,
        &["import"],
        "<path> [[<pool>/[<namespace>/]]<image>]",
        "Make an image from a file, - for standard input",
        &[
            PATH,
            IMAGE,
            DEST,
            CREATION,
            PROGRESS,
            &["export_format", "sparse_size"],
        ],
    ),
    define(
        Command::Copy,
        &["cp", "copy"],
        "[<pool>/[<namespace>/]]<image>[@<snap>] [<pool>/[<namespace>/]]<image>",
        "Copy what an image holds",
        &[IMAGE, SNAP, DEST, CREATION, JOURNAL, PROGRESS, &["sparse_size"]],
    ),
    define(
        Command::DeepCopy,
        &["deep cp", "deep copy"],
        "[<pool>/[<namespace>/]]<image>[@<snap>] [<pool>/[<namespace>/]]<image>",
        "Copy an image with its snapshots",
        &[IMAGE, SNAP, DEST, CREATION, JOURNAL, PROGRESS, &["flatten"]],
    ),
    define(
        Command::Diff,
        &["diff"],
        ANY_SPEC,
        "Show what of an image differs since a snapshot, or since there was nothing",
        &[IMAGE, SNAP, &["from_snap", "whole_object"], FORMAT],
    ),
    define(
        Command::ExportDiff,
        &["export-diff"],
        "[<pool>/[<namespace>/]]<image>[@<snap>] <path>",
        "Write what of an image differs to a file, - for standard output",
        &[IMAGE, SNAP, PATH, &["from_snap", "whole_object"], PROGRESS],
    ),
    define(
        Command::ImportDiff,
        &["import-diff"],
        "<path> [<pool>/[<namespace>/]]<image>",
        "Bring what a file says that differs to an image, - for standard input",
        &[PATH, IMAGE, PROGRESS, &["sparse_size"]],
    ),
    define(
        Command::MergeDiff,
        &["merge-diff"],
        "<first-path> <second-path> <path>",
        "Make one file of two that follow on each other, - for standard input and output",
        &[PATH, PROGRESS],
    ),
    define(
        Command::Bench,
        &["bench"],
        IMAGE_SPEC,
        "Measure how fast an image is read or written",
        &[IMAGE, BENCH],
    ),
    define(
        Command::Serve,
        &["serve"],
        "[<pool>/[<namespace>/]]<image>[@<snap>]...",
        "Make images network block devices (NBD) until a signal comes",
        &[IMAGE, SNAP, SERVE],
    ),
    define(
        Command::DeviceMap,
        &["map", "device map"],
        ANY_SPEC,
        "Make an image a block device of this machine",
        &[
            IMAGE,
            SNAP,
            &["read_only", "exclusive", "cookie", "show_cookie"],
            DEVICE,
            DEVICE_OPTIONS,
        ],
    ),
    define(
        Command::DeviceUnmap,
        &["unmap", "device unmap"],
        "{[<pool>/[<namespace>/]]<image>[@<snap>]|<device>}",
        "Take away the block device that an image is; -o force also where it is in use",
        &[IMAGE, SNAP, DEVICE, DEVICE_OPTIONS],
    ),
    define(
        Command::DeviceList,
        &["showmapped", "device list", "device ls"],
        "",
        "Show which images are block devices",
        &[DEVICE, FORMAT],
    ),
    define(
        Command::SnapCreate,
        &["snap create", "snap add"],
        SNAP_SPEC,
        "Take a snapshot",
        &[IMAGE, SNAP, QUIESCE, PROGRESS],
    ),
    define(
        Command::SnapList,
        &["snap ls", "snap list"],
        IMAGE_SPEC,
        "List an image's snapshots",
        &[IMAGE, ID, FORMAT, &["all"]],
    ),
    define(
        Command::SnapRemove,
        &["snap rm", "snap remove"],
        SNAP_SPEC,
        "Remove a snapshot",
        &[IMAGE, SNAP, ID, PROGRESS],
    ),
    define(
        Command::SnapRename,
        &["snap rename"],
        "[<pool>/[<namespace>/]]<image>@<snap> [<pool>/[<namespace>/]]<image>@<snap>",
        "Give a snapshot another name",
        &[IMAGE, SNAP, DEST, DEST_SNAP],
    ),
    define(
        Command::SnapRollback,
        &["snap rollback", "snap revert"],
        SNAP_SPEC,
        "Make an image what it was at a snapshot",
        &[IMAGE, SNAP, PROGRESS],
    ),
    define(
        Command::SnapProtect,
        &["snap protect"],
        SNAP_SPEC,
        "Keep a snapshot from being removed",
        &[IMAGE, SNAP],
    ),
    define(
        Command::SnapUnprotect,
        &["snap unprotect"],
        SNAP_SPEC,
        "Let a snapshot be removed",
        &[IMAGE, SNAP],
    ),
    define(
        Command::SnapPurge,
        &["snap purge"],
        IMAGE_SPEC,
        "Remove all snapshots that are not protected",
        &[IMAGE, ID, PROGRESS],
    ),
    define(
        Command::SnapLimitSet,
        &["snap limit set"],
        IMAGE_SPEC,
        "Limit how many snapshots an image may have",
        &[IMAGE, &["limit"]],
    ),
    define(
        Command::SnapLimitClear,
        &["snap limit clear"],
        IMAGE_SPEC,
        "Let an image have any number of snapshots",
        &[IMAGE],
    ),
    define(
        Command::Clone,
        &["clone"],
        "[<pool>/[<namespace>/]]<image>@<snap> [<pool>/[<namespace>/]]<image>",
        "Make an image that begins as a snapshot",
        &[IMAGE, SNAP, DEST, CREATION, JOURNAL],
    ),
    define(
        Command::Children,
        &["children"],
        ANY_SPEC,
        "List the images that begin as snapshots of an image",
        &[IMAGE, SNAP, FORMAT, &["all", "descendants"]],
    ),
    define(
        Command::Flatten,
        &["flatten"],
        IMAGE_SPEC,
        "Make a clone independent of its snapshot",
        &[IMAGE, PROGRESS],
    ),
    define(
        Command::TrashMove,
        &["trash mv", "trash move"],
        IMAGE_SPEC,
        "Put an image into the trash",
        &[IMAGE, &["expires_at"]],
    ),
    define(
        Command::TrashList,
        &["trash ls", "trash list"],
        POOL_SPEC,
        "List the images in the trash",
        &[POOL, &["all", "long"], FORMAT],
    ),
    define(
        Command::TrashRemove,
        &["trash rm", "trash remove"],
        "[<pool>/[<namespace>/]]<image-id>",
        "Remove an image in the trash for good",
        &[POOL, ID, PROGRESS, &["force"]],
    ),
    define(
        Command::TrashRestore,
        &["trash restore"],
        "[<pool>/[<namespace>/]]<image-id>",
        "Take an image out of the trash, under its name or the one given by --image",
        &[IMAGE, ID],
    ),
    define(
        Command::TrashPurge,
        &["trash purge"],
        POOL_SPEC,
        "Remove the images in the trash that need not stay any longer",
        &[POOL, PROGRESS, &["expired_before", "threshold"]],
    ),
    define(
        Command::PoolInit,
        &["pool init"],
        "[<pool>]",
        "Make a pool one of images",
        &[&["pool"], &["force"]],
    ),
    define(
        Command::PoolStats,
        &["pool stats"],
        POOL_SPEC,
        "Show how many images there are, and how large",
        &[POOL, FORMAT],
    ),
    define(
        Command::NamespaceCreate,
        &["namespace create"],
        POOL_SPEC,
        "Make a part of a pool that keys may be limited to",
        &[POOL],
    ),
    define(
        Command::NamespaceList,
        &["namespace ls", "namespace list"],
        "[<pool>]",
        "List the namespaces of a pool",
        &[&["pool"], FORMAT],
    ),
    define(
        Command::NamespaceRemove,
        &["namespace rm", "namespace remove"],
        POOL_SPEC,
        "Remove a namespace",
        &[POOL],
    ),
    define(
        Command::MetadataList,
        &["image-meta ls", "image-meta list"],
        IMAGE_SPEC,
        "List what is noted of an image",
        &[IMAGE, FORMAT],
    ),
    define(
        Command::MetadataGet,
        &["image-meta get"],
        "[<pool>/[<namespace>/]]<image> <key>",
        "Show what is noted of an image under a key",
        &[IMAGE],
    ),
    define(
        Command::MetadataSet,
        &["image-meta set"],
        "[<pool>/[<namespace>/]]<image> <key> <value>",
        "Note something of an image under a key",
        &[IMAGE],
    ),
    define(
        Command::MetadataRemove,
        &["image-meta rm", "image-meta remove"],
        "[<pool>/[<namespace>/]]<image> <key>",
        "Remove what is noted of an image under a key",
        &[IMAGE],
    ),
    define(
        Command::ConfigGlobalList,
        &["config global ls", "config global list"],
        "<entity>",
        "List the options that the monitors keep for clients: for global, client or client.<id>",
        &[FORMAT],
    ),
    define(
        Command::ConfigGlobalGet,
        &["config global get"],
        "<entity> <option>",
        "Show an option that the monitors keep for clients",
        &[],
    ),
    define(
        Command::ConfigGlobalSet,
        &["config global set"],
        "<entity> <option> <value>",
        "Set an option for clients: for global, client or client.<id>",
        &[],
    ),
    define(
        Command::ConfigGlobalRemove,
        &["config global rm", "config global remove"],
        "<entity> <option>",
        "Remove an option that the monitors keep for clients",
        &[],
    ),
    define(
        Command::ConfigPoolList,
        &["config pool ls", "config pool list"],
        "<pool>",
        "List the options of a pool's images",
        &[FORMAT],
    ),
    define(
        Command::ConfigPoolGet,
        &["config pool get"],
        "<pool> <option>",
        "Show an option that is set for a pool's images",
        &[],
    ),
    define(
        Command::ConfigPoolSet,
        &["config pool set"],
        "<pool> <option> <value>",
        "Set an option for a pool's images",
        &[],
    ),
    define(
        Command::ConfigPoolRemove,
        &["config pool rm", "config pool remove"],
        "<pool> <option>",
        "Remove an option that is set for a pool's images",
        &[],
    ),
    define(
        Command::ConfigImageList,
        &["config image ls", "config image list"],
        IMAGE_SPEC,
        "List the options of an image",
        &[IMAGE, FORMAT],
    ),
    define(
        Command::ConfigImageGet,
        &["config image get"],
        "[<pool>/[<namespace>/]]<image> <option>",
        "Show an option that is set for an image",
        &[IMAGE],
    ),
    define(
        Command::ConfigImageSet,
        &["config image set"],
        "[<pool>/[<namespace>/]]<image> <option> <value>",
        "Set an option for an image",
        &[IMAGE],
    ),
    define(
        Command::ConfigImageRemove,
        &["config image rm", "config image remove"],
        "[<pool>/[<namespace>/]]<image> <option>",
        "Remove an option that is set for an image",
        &[IMAGE],
    ),
    define(
        Command::LockList,
        &["lock ls", "lock list"],
        IMAGE_SPEC,
        "List the locks on an image",
        &[IMAGE, FORMAT],
    ),
    define(
        Command::LockAdd,
        &["lock add"],
        "[<pool>/[<namespace>/]]<image> <lock-id>",
        "Lock an image by hand",
        &[IMAGE, &["shared"]],
    ),
    define(
        Command::LockRemove,
        &["lock rm", "lock remove"],
        "[<pool>/[<namespace>/]]<image> <lock-id> <locker>",
        "Take a lock away from its holder, which the cluster shuts out",
        &[IMAGE],
    ),
];

/// The first words of commands that only Ceph's tool has.
const ELSEWHERE: &[&str] = &[
    "device attach",
    "device detach",
    "encryption",
    "group",
    "journal",
    "migration",
    "mirror",
    "perf",
    "persistent-cache",
    "trash purge schedule",
];

/// The command that words name.
pub(super) enum Found {
    /// A command, and the number of words in its name.
    Here(&'static Definition, usize),
    /// A command that only Ceph's tool has, or a group of such commands.
    Elsewhere(&'static str),
    /// No command.
    Unknown,
}

/// The number of words in a name, if `words` begin with it.
fn length(name: &str, words: &[String]) -> Option<usize> {
    let length = name.split(' ').count();
    let begins = words.len() >= length && name.split(' ').zip(words).all(|(a, b)| a == b);
    begins.then_some(length)
}

/// Finds the command with which `words` begin.
pub(super) fn find(words: &[String]) -> Found {
    let here = DEFINITIONS
        .iter()
        .flat_map(|d| d.names.iter().map(move |n| (d, n)));
    let here = here.filter_map(|(d, name)| Some((d, length(name, words)?)));
    let elsewhere = ELSEWHERE
        .iter()
        .filter_map(|name| Some((*name, length(name, words)?)));
    match (here.max_by_key(|(_, n)| *n), elsewhere.max_by_key(|(_, n)| *n)) {
        (Some((definition, n)), other) if other.is_none_or(|(_, m)| m < n) => Found::Here(definition, n),
        (_, Some((name, _))) => Found::Elsewhere(name),
        _ => Found::Unknown,
    }
}

impl Definition {
    /// Whether the command takes an option.
    pub(super) fn takes(&self, option: &str) -> bool {
        self.options.iter().any(|group| group.contains(&option))
    }

    /// The largest number of operands.
    pub(super) fn max_operands(&self) -> usize {
        match self.operands.contains("...") {
            true => usize::MAX,
            false => self.operands.split_whitespace().count(),
        }
    }
}

const fn define(
    command: Command,
    names: &'static [&'static str],
    operands: &'static str,
    about: &'static str,
    options: &'static [&'static [&'static str]],
) -> Definition {
    Definition {
        command,
        names,
        operands,
        about,
        options,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::rbd::Args;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_longest_name_counts() {
        let found = |text: &str| match find(&words(text)) {
            Found::Here(definition, n) => format!("{:?} {n}", definition.command),
            Found::Elsewhere(name) => format!("elsewhere {name}"),
            Found::Unknown => "unknown".to_owned(),
        };
        for (text, want) in [
            ("ls p", "List 1"),
            ("trash purge p", "TrashPurge 2"),
            ("trash purge schedule ls", "elsewhere trash purge schedule"),
            ("snap limit set p/i", "SnapLimitSet 3"),
            ("mirror pool enable p", "elsewhere mirror"),
            ("snap", "unknown"),
            ("nonsense", "unknown"),
        ] {
            assert_eq!(found(text), want, "{text}");
        }
    }

    /// A misspelt id would take an option away from a command without anybody noticing.
    #[test]
    fn all_options_are_some_commands_and_exist() {
        let command = Args::command();
        let exist: BTreeSet<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
        let groups = DEFINITIONS.iter().flat_map(|d| d.options);
        let mut taken: BTreeSet<&str> = groups.flat_map(|g| g.iter().copied()).collect();
        taken.extend(["words", "help"]);
        assert_eq!(taken, exist);
    }

    #[test]
    fn names_are_those_of_one_command() {
        let names = || DEFINITIONS.iter().flat_map(|d| d.names);
        let distinct: BTreeSet<&&str> = names().collect();
        assert_eq!(distinct.len(), names().count());
        assert!(names().all(|n| matches!(find(&words(n)), Found::Here(_, _))));
    }
}
