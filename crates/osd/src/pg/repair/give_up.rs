//! Giving up objects that no member can read.

use bytes::Bytes;
use spirula_invariant::impossible;
use spirula_maps::{OsdId, snap};
use spirula_proto::mon::LogPriority;
use spirula_proto::osd::{OpArgs, OpCode, OsdFlags, OsdOpIn};

use super::MarkLostError;
use super::handler::Repairing;
use crate::pg::key;
use crate::pg::op::ClientOp;
use crate::pg::output::{Ctx, Output};
use crate::pg::store_queue::Pending;

impl Repairing<'_> {
    /// Deletes the objects that no member can read. Returns their number.
    ///
    /// # Errors
    /// There are none, or they may still be somewhere.
    pub(in crate::pg) fn mark_lost(
        &mut self,
        unfound: usize,
        cx: &mut Ctx<'_>,
    ) -> Result<usize, MarkLostError> {
        if unfound == 0 {
            return Err(MarkLostError::NoneUnfound);
        }
        let keys: Vec<Bytes> = self
            .serving
            .role
            .lost()
            .map(|l| l.keys().cloned().collect())
            .unwrap_or_default();
        if keys.is_empty() || self.may_be_elsewhere() {
            return Err(MarkLostError::NotProbed(unfound));
        }
        let line = format!(
            "pg has {} objects unfound and apparently lost marking",
            keys.len()
        );
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::INFO,
            line,
        });
        for key in &keys {
            self.give_up(key, cx);
        }
        Ok(keys.len())
    }

    /// Whether an OSD that is down, and not declared lost, may have the objects that no member can
    /// read.
    fn may_be_elsewhere(&self) -> bool {
        let lacks_members =
            self.serving.site.interval.place.acting.count() < self.serving.site.pool.size as usize;
        let may_have =
            |o: OsdId| {
                self.serving.site.map.osd(o).is_some_and(|v| {
                    !v.up && v.down_at > self.serving.site.pool.created && v.lost_at < v.down_at
                })
            };
        lacks_members && OsdId::below(self.serving.site.map.max_osd()).any(may_have)
    }

    fn give_up(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        let Some(object) = key::parse_object_key(key) else {
            impossible!("what is lost to be an object"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch());
        };
        if object.snap == snap::NOSNAP {
            let delete = OsdOpIn::new(OpCode::DELETE, OpArgs::None, Bytes::new());
            let op = ClientOp {
                // Without the pool's snapshots: no clone is to be made of an object that can't be
                // read.
                flags: OsdFlags::ENFORCE_SNAPC,
                ..self
                    .serving
                    .site
                    .internal_op(object, vec![delete.into()], cx.usec)
            };
            return self.serving.queue_op(key.clone(), op, cx);
        }
        if let Some(lost) = self.serving.role.lost() {
            lost.give_up(key.clone());
        }
        self.serving
            .store
            .look_up(key.clone(), Pending::TrimClone(key.clone()), cx);
    }
}
