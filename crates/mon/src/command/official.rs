//! Pacific's whole command table, and the answers to its commands that have no handler.
//!
//! The table is recorded from a real cluster, so that the official tool accepts the same command
//! lines, and a script learns from the errno that a command is not supported, rather than from a
//! usage text.

use spirula_proto::mon::CommandFlags;

use super::{Reply, errno, signature, unsupported};

const TABLE: &str = include_str!("pacific.tsv");

/// Commands that only `ceph tell` may send.
const TELL_ONLY: CommandFlags = CommandFlags::NOFORWARD.with(CommandFlags::HIDDEN);

/// A command of the official monitor or manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Official {
    pub(super) signature: &'static str,
    pub(super) module: &'static str,
    pub(super) perm: &'static str,
    flags: CommandFlags,
}

/// The parameter that later releases add to commands that make keys.
const KEY_TYPE: &str = " key_type?:String";

impl Official {
    /// Whether the signature of a supported command is this one's, perhaps with additions of later
    /// releases.
    pub(super) fn is_served_as(&self, signature: &str) -> bool {
        let more = signature.strip_prefix(self.signature);
        more.is_some_and(|more| more.is_empty() || more == KEY_TYPE)
    }
}

fn parse(line: &'static str) -> Option<Official> {
    let mut fields = line.split('\t');
    Some(Official {
        signature: fields.next()?,
        module: fields.next()?,
        perm: fields.next()?,
        flags: CommandFlags(fields.next()?.parse().ok()?),
    })
}

/// The table, in the official order.
pub(super) fn all() -> impl Iterator<Item = Official> {
    TABLE.lines().filter(|l| !l.starts_with('#')).filter_map(parse)
}

/// The command of this name.
pub(super) fn find(prefix: &str) -> Option<Official> {
    all().find(|o| signature::prefix(o.signature) == prefix)
}

impl Official {
    /// Whether the command is served by Ceph's manager.
    pub(super) fn is_managers(&self) -> bool {
        self.flags.contains(CommandFlags::MGR)
    }

    /// The flags shown to the tool: the monitors answer the manager's commands themselves. Only the
    /// commands for images are sent to the manager, as users of images have capabilities there.
    pub(super) fn shown_flags(&self) -> CommandFlags {
        match self.signature.starts_with("rbd ") {
            true => self.flags,
            false => self.flags.without(CommandFlags::MGR),
        }
    }

    /// The answer if there is no handler.
    pub(super) fn refusal(&self) -> Reply {
        let prefix = signature::prefix(self.signature);
        match self.refused_officially() {
            Some(reply) => reply,
            None => unsupported::reply(&prefix),
        }
    }

    /// The refusal that Ceph itself gives: for orchestrator commands without an orchestrator, for
    /// obsolete commands, and for those that only `ceph tell` may send.
    pub(super) fn refused_officially(&self) -> Option<Reply> {
        if self.signature.starts_with("orch ") {
            let text = "No orchestrator configured (try `ceph orch set backend`)";
            return Some(Reply::error(errno::ENOENT, text));
        }
        if self.flags.contains(CommandFlags::OBSOLETE) {
            let text = "command is obsolete; please check usage and/or man page";
            return Some(Reply::error(errno::EOPNOTSUPP, text));
        }
        let tell_only = self.flags.contains(TELL_ONLY) || self.signature.starts_with("tell ");
        tell_only.then(|| Reply::error(errno::EINVAL, "unrecognized command"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::named;

    /// How a command is treated.
    enum Standing {
        Served,
        /// Ceph itself refuses it.
        Refused,
        NotSupported(&'static str),
    }

    fn standing(o: &Official) -> Option<Standing> {
        let prefix = signature::prefix(o.signature);
        if named(&prefix).next().is_some() {
            return Some(Standing::Served);
        }
        if o.refused_officially().is_some() {
            return Some(Standing::Refused);
        }
        unsupported::reason(&prefix).map(Standing::NotSupported)
    }

    /// Prints the table (`--nocapture`); README tells the counts.
    #[test]
    fn every_official_command_is_served_or_refused_with_a_reason() {
        let (mut served, mut refused, mut not_supported, mut unknown) = (0, 0, 0, Vec::new());
        for o in all() {
            let prefix = signature::prefix(o.signature);
            match standing(&o) {
                Some(Standing::Served) => {
                    served += 1;
                    println!("served         {prefix}");
                }
                Some(Standing::Refused) => {
                    refused += 1;
                    println!("as Ceph, not   {prefix}");
                }
                Some(Standing::NotSupported(why)) => {
                    not_supported += 1;
                    println!("not supported  {prefix}: {why}");
                }
                None => unknown.push(prefix),
            }
        }
        assert!(
            unknown.is_empty(),
            "neither served nor refused with a reason: {unknown:?}"
        );
        let line = format!(
            "Of the {} commands of Pacific's monitor and manager {served} are served, {refused} are refused as Ceph itself \
             refuses them, and {not_supported} are answered with `EOPNOTSUPP` and the reason.",
            all().count()
        );
        let readme = include_str!("../../../../README.md").replace('\n', " ");
        assert!(readme.contains(&line), "README should say: {line}");
    }

    /// Commands of releases later than Pacific.
    const LATER: [&str; 3] = [
        "auth rotate entity:String key_type?:String",
        "auth dump-keys",
        "mon set name:{auth_service_cipher|auth_allowed_ciphers|auth_preferred_cipher} value:String",
    ];

    #[test]
    fn what_is_served_has_the_official_signature() {
        for c in crate::command::all() {
            let same = |o: Official| o.is_served_as(c.signature) && (o.module, o.perm) == (c.module, c.perm);
            let is_later = LATER.contains(&c.signature);
            assert!(
                is_later || all().any(same),
                "{} {} {}",
                c.signature,
                c.module,
                c.perm
            );
        }
    }

    #[test]
    fn every_reason_is_of_use() {
        let unserved: Vec<String> = all()
            .map(|o| signature::prefix(o.signature))
            .filter(|p| named(p).next().is_none())
            .collect();
        for words in unsupported::listed() {
            let used = unserved
                .iter()
                .any(|p| *p == words || p.strip_prefix(words).is_some_and(|r| r.starts_with(' ')));
            assert!(used, "{words}: no such command, or it is served");
        }
    }
}
