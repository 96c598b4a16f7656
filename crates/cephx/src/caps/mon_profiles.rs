//! What the profiles of monitor capabilities stand for (`MonCapGrant::expand_profile` of Ceph's
//! `src/mon/MonCap.cc`; documented in `doc/rados/operations/user-management.rst`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Access;
use super::constraint::{Constraint, Match};
use super::mon::{Grant, Subject};
use super::{mgr, osd};

/// How an argument is limited, in the tables.
#[derive(Clone, Copy)]
enum Arg {
    Is(&'static str),
    Starts(&'static str),
    Matches(&'static str),
    DaemonPrivate,
    RbdProfiles(fn(&str) -> bool),
    Absent,
    Optional(&'static Arg),
}

/// A line of the tables.
#[derive(Clone, Copy)]
enum Rule {
    Everything(Access),
    Service(&'static str, Access),
    Command(&'static str, &'static [(&'static str, Arg)]),
}

use Arg::{Absent, DaemonPrivate, Is, Matches, Optional, RbdProfiles, Starts};
use Rule::{Command, Everything, Service};

const R: Access = Access::R;
const W: Access = Access::W;
const RW: Access = Access::RW;
const RWX: Access = Access::RWX;

/// A client's address with its nonce, which is not 0: locks may be broken for one instance, not for
/// a whole host or network.
const INSTANCE: Arg = Matches("^[^/]+/0*[1-9][0-9]*$");
const ADDS_BLOCKLIST: &[(&str, Arg)] = &[("blocklistop", Is("add")), ("addr", INSTANCE), ("range", Absent)];
const ADDS_BLACKLIST: &[(&str, Arg)] = &[("blacklistop", Is("add")), ("addr", INSTANCE), ("range", Absent)];
/// Ceph's regular expression for this takes `profile rbd pool=p;allow *` for a pool with a strange
/// name.
const RBD_AT_OSDS: Arg = RbdProfiles(osd::is_rbd_profiles);
const RBD_AT_MANAGERS: Arg = RbdProfiles(mgr::is_rbd_profiles);

const READS_MAPS: &[Rule] = &[Service("mon", R), Service("osd", R), Service("pg", R)];

const MON: &[Rule] = &[Service("mon", RWX), Service("log", RWX)];

const OSD: &[Rule] = &[
    Service("osd", RWX),
    Service("mon", R),
    Service("pg", RW),
    Service("log", W),
    Command(
        "config set",
        &[("name", Matches("osd_mclock_max_capacity_iops_(hdd|ssd)"))],
    ),
    Command(
        "config rm",
        &[(
            "name",
            Matches("^(osd_max_backfills|osd_recovery_max_active(.*)|osd_mclock_scheduler_(.*))"),
        )],
    ),
];

const MDS: &[Rule] = &[
    Service("mds", RWX),
    Service("mon", R),
    Service("osd", R),
    Command("osd pool rmsnap", &[]),
    Command("osd blocklist", ADDS_BLOCKLIST),
    Command("osd blacklist", ADDS_BLACKLIST),
    Service("log", W),
];

const MGR: &[Rule] = &[
    Service("mgr", RWX),
    Service("log", RW),
    Service("mon", RW),
    Service("mds", RW),
    Service("fs", RW),
    Service("osd", RW),
    Service("auth", RWX),
    Service("config-key", RW),
    Service("config", RW),
    Command("auth get-or-create", &[]),
    Command("auth caps", &[]),
    Command("auth rm", &[]),
    Command("smart", &[]),
    Command("heap", &[]),
    Command("dump_mempools", &[]),
];

/// The configuration keys that a daemon keeps for itself.
const DAEMON_KEYS: &[Rule] = &[
    Command("config-key get", &[("key", DaemonPrivate)]),
    Command("config-key put", &[("key", DaemonPrivate)]),
    Command("config-key set", &[("key", DaemonPrivate)]),
    Command("config-key exists", &[("key", DaemonPrivate)]),
    Command("config-key delete", &[("key", DaemonPrivate)]),
];

const BOOTSTRAP: &[Rule] = &[Service("mon", R), Service("osd", R), Command("mon getmap", &[])];

const BOOTSTRAP_OSD: &[Rule] = &[Command("osd new", &[]), Command("osd purge-new", &[])];

// Ceph does not check capabilities at services other than those named here, and gives the holder of
// the bootstrap key any of them. So the allowed capabilities are listed completely.

const BOOTSTRAP_MDS: &[Rule] = &[Command(
    "auth get-or-create",
    &[
        ("entity", Starts("mds.")),
        ("caps_mon", Is("allow profile mds")),
        ("caps_osd", Is("allow rwx")),
        ("caps_mds", Is("allow")),
        ("caps_mgr", Optional(&Is("profile mds"))),
    ],
)];

const BOOTSTRAP_MGR: &[Rule] = &[Command(
    "auth get-or-create",
    &[
        ("entity", Starts("mgr.")),
        ("caps_mon", Is("allow profile mgr")),
        ("caps_osd", Optional(&Is("allow *"))),
        ("caps_mds", Optional(&Is("allow *"))),
        ("caps_mgr", Absent),
    ],
)];

const BOOTSTRAP_RGW: &[Rule] = &[Command(
    "auth get-or-create",
    &[
        ("entity", Starts("client.rgw.")),
        ("caps_mon", Is("allow rw")),
        ("caps_osd", Is("allow rwx")),
        ("caps_mds", Absent),
        ("caps_mgr", Absent),
    ],
)];

const BOOTSTRAP_RBD: &[Rule] = &[
    Service("mon", R),
    Command(
        "auth get-or-create",
        &[
            ("entity", Starts("client.")),
            ("caps_mon", Is("profile rbd")),
            ("caps_osd", RBD_AT_OSDS),
            ("caps_mds", Absent),
            ("caps_mgr", Optional(&RBD_AT_MANAGERS)),
        ],
    ),
];

const BOOTSTRAP_RBD_MIRROR: &[Rule] = &[
    Service("mon", R),
    Command(
        "auth get-or-create",
        &[
            ("entity", Starts("client.")),
            ("caps_mon", Is("profile rbd-mirror")),
            ("caps_osd", RBD_AT_OSDS),
            ("caps_mds", Absent),
            ("caps_mgr", Optional(&RBD_AT_MANAGERS)),
        ],
    ),
];

const BLOCKLISTS: &[Rule] = &[Command("osd blocklist", ADDS_BLOCKLIST)];
const BLACKLISTS: &[Rule] = &[Command("osd blacklist", ADDS_BLACKLIST)];

/// Mirror daemons register with the manager; Ceph requires no capability for that.
const REGISTERS: &[Rule] = &[Service("service", W)];
const RBD_MIRROR: &[Rule] = &[Command("config-key get", &[("key", Starts("rbd/mirror/"))])];
const RBD_MIRROR_PEER: &[Rule] = &[
    Command("config-key get", &[("key", Matches("rbd/mirror/[^/]+"))]),
    Command("config-key set", &[("key", Starts("rbd/mirror/peer/"))]),
];
const CEPHFS_MIRROR: &[Rule] = &[
    Service("mds", R),
    Command("config-key get", &[("key", Starts("cephfs/mirror/peer/"))]),
];
const ROLE_DEFINER: &[Rule] = &[Service("mon", R), Service("auth", RWX)];

/// The tables that make up each profile.
const PROFILES: &[(&str, &[&[Rule]])] = &[
    ("read-only", &[&[Everything(R)]]),
    ("read-write", &[&[Everything(RW)]]),
    ("mon", &[MON, DAEMON_KEYS]),
    ("osd", &[OSD, DAEMON_KEYS]),
    ("mds", &[MDS, DAEMON_KEYS]),
    ("mgr", &[MGR, DAEMON_KEYS]),
    ("bootstrap-osd", &[BOOTSTRAP, BOOTSTRAP_OSD]),
    ("bootstrap-mds", &[BOOTSTRAP, BOOTSTRAP_MDS]),
    ("bootstrap-mgr", &[BOOTSTRAP, BOOTSTRAP_MGR]),
    ("bootstrap-rgw", &[BOOTSTRAP, BOOTSTRAP_RGW]),
    ("bootstrap-rbd", &[BOOTSTRAP_RBD]),
    ("bootstrap-rbd-mirror", &[BOOTSTRAP_RBD_MIRROR]),
    ("fs-client", &[READS_MAPS, &[Service("mds", R)]]),
    ("simple-rados-client", &[READS_MAPS]),
    ("simple-rados-client-with-blocklist", &[READS_MAPS, BLOCKLISTS]),
    (
        "rbd-mirror",
        &[READS_MAPS, BLOCKLISTS, BLACKLISTS, RBD_MIRROR, REGISTERS],
    ),
    (
        "rbd-mirror-peer",
        &[READS_MAPS, BLOCKLISTS, BLACKLISTS, RBD_MIRROR_PEER],
    ),
    (RBD, &[READS_MAPS, BLOCKLISTS, BLACKLISTS]),
    ("crash", &[&[Service("mon", R)]]),
    ("cephfs-mirror", &[READS_MAPS, CEPHFS_MIRROR, REGISTERS]),
    ("role-definer", &[ROLE_DEFINER]),
];

/// Also stands for `rbd-read-only` and every unknown profile with this prefix.
const RBD: &str = "rbd";

/// Made once: a text may name a profile many times.
static EXPANDED: LazyLock<BTreeMap<&str, Vec<Grant>>> = LazyLock::new(|| {
    let expanded = |tables: &[&[Rule]]| tables.iter().copied().flatten().map(grant).collect();
    PROFILES
        .iter()
        .map(|(name, tables)| (*name, expanded(tables)))
        .collect()
});

/// The grants of a profile. An unknown profile allows nothing.
pub(super) fn expand(profile: &str) -> &'static [Grant] {
    let known = EXPANDED.get(profile);
    let found = known.or_else(|| profile.starts_with(RBD).then(|| EXPANDED.get(RBD)).flatten());
    found.map_or(&[], Vec::as_slice)
}

fn grant(rule: &Rule) -> Grant {
    match *rule {
        Everything(access) => Grant::new(Subject::Everything, access),
        Service(service, access) => Grant::new(Subject::Service(service.to_owned()), access),
        Command(command, args) => {
            let constraints = args
                .iter()
                .map(|(key, arg)| Constraint::new(key, matcher(arg)))
                .collect();
            Grant::new(Subject::Command(command.to_owned(), constraints), Access::empty())
        }
    }
}

fn matcher(arg: &Arg) -> Match {
    match *arg {
        Is(value) => Match::Equal(value.to_owned()),
        Starts(value) => Match::Prefix(value.to_owned()),
        Matches(pattern) => Match::Regex(pattern.to_owned()),
        DaemonPrivate => Match::DaemonPrivate,
        RbdProfiles(are) => Match::RbdProfiles(are),
        Absent => Match::Absent,
        Optional(inner) => Match::Optional(Box::new(matcher(inner))),
    }
}
