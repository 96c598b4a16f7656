//! A group whose members are restarted with a program of another version, one after the other.

use std::rc::Rc;

use spirula_proto::internal::quorum::MonPeer;
use spirula_proto::internal::{Edition, Protocol};

use super::member::start;
use super::run::{advance, heal};
use super::{Group, Shared};
use crate::clock::SECOND;
use crate::exec::Exec;

/// How long proposals are made with members of both versions before the next one is restarted.
const MIXED_TIME: u64 = 2 * SECOND;

/// Restarts every member with a program that speaks `edition`.
pub(super) fn replace(group: &Shared, exec: &Rc<Exec>, edition: Edition) -> Result<(), String> {
    let count = group.borrow().setup.members;
    for m in 0..count {
        group.borrow_mut().stop(m, false);
        group.borrow_mut().speak(m, edition);
        start(group, m);
        heal(group, exec)?;
        advance(group, exec, MIXED_TIME, |_| false)?;
        group.borrow().check_written()?;
    }
    Ok(())
}

impl Group {
    /// A member's next process speaks this edition.
    pub(super) fn speak(&mut self, m: usize, edition: Edition) {
        if let Some(member) = self.members.get_mut(m) {
            member.edition = edition;
        }
    }

    /// Checks that the leader asks each other member in the newest version that both speak, and is
    /// answered in it.
    fn check_written(&self) -> Result<(), String> {
        let Some((leader, _)) = self.whole() else {
            return Err(format!("the group is not whole:\n{}", self.report()));
        };
        for to in (0..self.setup.members).filter(|to| *to != leader) {
            let wanted = MonPeer::version(self.edition(leader).min(self.edition(to)));
            let written = self.net.written_between(leader, to);
            if written != [Some(wanted); 2] {
                return Err(format!(
                    "mon {leader} and mon {to} write in {written:?} and not in {wanted}"
                ));
            }
        }
        Ok(())
    }
}
