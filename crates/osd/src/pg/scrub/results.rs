//! What comes of a scrub: its findings are listed and told, what can be is repaired, and the PG's
//! members remember the scrub.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::{EntityName, EntityType, decode_all, encode_to_vec};
use spirula_invariant::{impossible, invariant};
use spirula_maps::{HObject, OsdId, PgShard, ReqId, SnapId, SpgId};
use spirula_proto::mon::LogPriority;
use spirula_proto::osd_op_data::{InconsistentObject, ShardInfo};

use super::account::{Account, Found, Omap};
use super::clones::{self, Info, Member};
use super::findings::{self, MOST_BYTES, MOST_LISTED};
use super::handler::Scrubbing;
use super::history::Progress;
use super::judge::{Copy, Judgement, Shard, judge};
use super::message::{FindingNote, News};
use super::official;
use super::run::{Asked, Finding, Order, Run, State};
use super::said::Told;
use crate::pg::bug::Bug;
use crate::pg::digests::Digests;
use crate::pg::key;
use crate::pg::layout::{Layout, Shape};
use crate::pg::log::usage_of;
use crate::pg::object::ObjectInfo;
use crate::pg::output::{Ctx, Output};
use crate::pg::role::Role;
use crate::pg::site::Site;

/// The most objects that one scrub repairs. A repair that finds more is followed by another one.
const MOST_REPAIRED: usize = 1024;

/// An object's judgement.
#[derive(Debug)]
pub(super) struct Judged {
    key: Bytes,
    pub(super) judgement: Judgement,
    /// The info that counts, and the omap beside it if that was read.
    auth: Option<(Bytes, Option<Omap>)>,
    /// The object, if any member that could count has it.
    member: Option<Member>,
    /// The info with the digests of the contents, if all copies are alike and some lack digests, or all
    /// have those of other contents.
    pub(super) lacking: Option<ObjectInfo>,
    /// What is to be told if it is inconsistent, once it was looked at alone.
    told: Option<(InconsistentObject, Vec<String>)>,
}

impl Judged {
    /// The object's key.
    pub(super) fn key(&self) -> &Bytes {
        &self.key
    }

    /// The encoded info that counts.
    pub(super) fn auth_info(&self) -> Option<&Bytes> {
        self.auth.as_ref().map(|(info, _)| info)
    }
}

/// The info of an object all of whose copies are alike, with the digests that some copy lacks.
fn lacking(copies: &[Copy<'_>], found: &Found, is_misnoted: bool) -> Option<ObjectInfo> {
    let content = found.content.as_ref()?;
    let (data, omap) = (content.data?, content.omap?.digest);
    let is_lacking = |copy: &Copy<'_>| {
        let info = copy.account.and_then(|a| a.found.as_ref()).map(|f| &f.info);
        let info = info.and_then(|info| decode_all::<ObjectInfo>(info).ok());
        copy.shape == Shape::Whole
            && info.is_some_and(|i| !i.whiteout && i.digests.lack(i.size, i.has_omap()))
    };
    if !is_misnoted && !copies.iter().any(is_lacking) {
        return None;
    }
    Some(ObjectInfo {
        digests: Digests {
            data: Some(data),
            omap: Some(omap),
        },
        ..decode_all(&found.info).ok()?
    })
}

impl Site {
    /// A member with its place in the PG, if members' parts differ.
    fn shard_of(&self, osd: OsdId) -> PgShard {
        let place = self.interval.place.acting.of(osd);
        let shard = match self.pool.layout {
            Some(Layout::Coded(_)) => place.and_then(|i| i8::try_from(i).ok()),
            _ => None,
        };
        PgShard {
            osd,
            shard: shard.unwrap_or(SpgId::NO_SHARD),
        }
    }
}

impl Scrubbing<'_> {
    /// Judges an object and its clones.
    pub(super) fn judge_group(&self, asked: &Asked, keys: &BTreeSet<Bytes>) -> Vec<Judged> {
        keys.iter().map(|key| self.judge_one(asked, key)).collect()
    }

    fn judge_one(&self, asked: &Asked, key: &Bytes) -> Judged {
        let site = self.serving.site;
        let parts = self.serving.store.parts(site.whoami);
        let shape_of = |osd: OsdId| {
            let part = parts.iter().find(|(o, _)| *o == osd).map(|(_, part)| *part);
            site.backend.shape(part.unwrap_or_default())
        };
        let find = |osd: OsdId| {
            let accounts: Option<&Vec<Account>> = asked.accounts.get(&osd);
            accounts.and_then(|all| all.iter().find(|a| a.key == *key))
        };
        let copies: Vec<Copy<'_>> = asked
            .accounts
            .keys()
            .map(|osd| Copy {
                osd: *osd,
                shape: shape_of(*osd),
                account: find(*osd),
            })
            .collect();
        let judgement = judge(&copies, site.whoami, site.cfg.max_object_size);
        let found = judgement.selected.and_then(find).and_then(|a| a.found.as_ref());
        let auth = found.map(|f| (f.info.clone(), f.content.as_ref().and_then(|c| c.omap)));
        let is_misnoted = judgement.is_misnoted();
        let alike = found.filter(|_| judgement.is_clean() || is_misnoted);
        let lacking = alike.and_then(|f| lacking(&copies, f, is_misnoted));
        let object = key::named(key);
        let counts = auth.as_ref().map(|(info, _)| info);
        let member = match counts {
            Some(info) => Some(member(&object, info, None)),
            None => copies
                .iter()
                .find(|c| c.osd == site.whoami)
                .and_then(|own| own_member(&object, own)),
        };
        let is_alone = asked.look.head.is_some() && !judgement.is_clean();
        let told = is_alone.then(|| self.told(&object, &copies, &judgement));
        Judged {
            key: key.clone(),
            judgement,
            auth,
            member,
            lacking,
            told,
        }
    }

    /// Whether what the scrub finds is to be repaired.
    fn is_repair(&self) -> bool {
        let Role::Active(a) = &*self.serving.role else {
            return false;
        };
        matches!(&a.scrub.state, State::Running(run) if run.order.repair)
    }

    /// What clients and the cluster log are told of an inconsistent object.
    fn told(
        &self,
        object: &HObject,
        copies: &[Copy<'_>],
        judgement: &Judgement,
    ) -> (InconsistentObject, Vec<String>) {
        let site = self.serving.site;
        let members: Vec<PgShard> = copies.iter().map(|c| site.shard_of(c.osd)).collect();
        let mut entry = InconsistentObject {
            errors: judgement.differences(),
            object: clones::id_of(object),
            ..InconsistentObject::default()
        };
        let mut auth_info = None;
        for ((copy, shard), member) in copies.iter().zip(&judgement.shards).zip(&members) {
            let is_auth = judgement.selected == Some(copy.osd);
            let info = copy.account.and_then(|a| a.found.as_ref());
            let info = info.and_then(|f| decode_all::<ObjectInfo>(&f.info).ok());
            let reqid = info.as_ref().map_or_else(ReqId::default, |i| self.reqid_of(i));
            if let Some(info) = info.filter(|_| is_auth) {
                entry.version = info.user_version;
                let official = official::object_info(object, &info, reqid);
                auth_info = Some(official::Display(&official).to_string());
            }
            let is_primary = copy.osd == site.whoami;
            entry.insert(
                *member,
                shard_info(object, copy, shard, (is_primary, is_auth), reqid),
            );
        }
        if encode_to_vec(&entry).len() > MOST_BYTES {
            entry.shards.values_mut().for_each(|s| s.attrs.clear());
        }
        let told = Told {
            pgid: site.pgid,
            object,
            copies,
            judgement,
            members: &members,
            primary: copies
                .iter()
                .position(|c| c.osd == site.whoami)
                .unwrap_or_default(),
            auth_info,
            renotes: judgement.is_misnoted() && self.is_repair(),
            most: site.cfg.max_object_size,
        };
        (entry, told.lines())
    }

    /// The last request that changed an object with this info, as far as the log knows. What the PG has
    /// changed itself is shown as a request of this OSD, as in Ceph.
    fn reqid_of(&self, info: &ObjectInfo) -> ReqId {
        let entries = self.serving.copy.log.iter().rev();
        let entry = entries.into_iter().find(|e| e.version == info.version);
        match entry {
            Some(entry) if entry.reqid == ReqId::default() => ReqId {
                name: EntityName::new(EntityType::OSD, i64::from(self.serving.site.whoami)),
                tid: entry.version.version,
                inc: 0,
            },
            Some(entry) => entry.reqid,
            None => ReqId::default(),
        }
    }

    /// Takes the judgements of an object and its clones.
    pub(super) fn take(&mut self, judged: Vec<Judged>, cx: &mut Ctx<'_>) {
        let cfg = self.serving.site.cfg.scrub;
        let pgid = self.serving.site.pgid;
        let Some(run) = self.run() else {
            impossible!("a scrub that takes judgements to be under way"; pg = pgid);
        };
        let name = run.order.name();
        self.note_lacking(&judged, cx);
        let Some(run) = self.run() else {
            impossible!("a scrub that takes judgements to be under way"; pg = pgid);
        };
        let (mut notes, mut lines) = (Vec::new(), Vec::new());
        let mut group = Vec::new();
        for one in judged {
            if let Some((info, omap)) = &one.auth {
                run.counted = run.counted.plus(usage_of(&one.key, info));
                if let Some(omap) = omap {
                    run.totals.omap_keys += omap.keys;
                    run.totals.omap_bytes += omap.bytes;
                    if omap.keys > cfg.large_omap_keys || omap.bytes > cfg.large_omap_bytes {
                        run.totals.large_omaps += 1;
                        lines.push((LogPriority::WARN, large_omap(&one.key, pgid, *omap)));
                    }
                }
            }
            group.extend(one.member.clone());
            if let Some((entry, said)) = &one.told {
                let note = findings::note(findings::OBJECTS, &entry.object, entry);
                run.note_finding(&one, &note);
                notes.push(note);
                lines.extend(said.iter().map(|line| (LogPriority::ERROR, line.clone())));
            }
        }
        for (clone, snap) in self.strays(&group) {
            let object = key::named(&clone);
            let line =
                format!("{name} {pgid} {object} : stands for purged snapshot {snap:x}, will be trimmed");
            lines.push((LogPriority::WARN, line));
            self.serving.trimming().found_stray(clone, snap);
        }
        let Some(run) = self.run() else {
            impossible!("a scrub that takes judgements to be under way"; pg = pgid);
        };
        let wrong = clones::check(pgid, name, &group);
        run.totals.errors.shallow = run.totals.errors.shallow.saturating_add(wrong.count);
        // The head's usage has them.
        run.counted.bytes -= wrong.missing_bytes;
        for entry in &wrong.entries {
            notes.push(findings::note(findings::SNAP_SETS, &entry.object, entry));
        }
        lines.extend(wrong.lines);
        let room = MOST_LISTED.saturating_sub(run.totals.listed);
        let listed = u32::try_from(notes.len()).unwrap_or(u32::MAX);
        run.totals.listed = run.totals.listed.saturating_add(listed);
        if room > 0 {
            for (priority, line) in lines {
                cx.out.push(Output::ClusterLog { priority, line });
            }
            if !notes.is_empty() {
                self.list_findings(false, notes, cx);
            }
        }
    }

    /// The clones of an object that stand for purged snapshots, each with one of these: what trimmed
    /// the snapshots has left them behind.
    fn strays(&self, group: &[Member]) -> Vec<(Bytes, SnapId)> {
        let Some((head, clones)) = group.split_last() else {
            return Vec::new();
        };
        let Info::Known(info) = &head.info else {
            return Vec::new();
        };
        let (snaps, here) = (
            &self.serving.site.pool.snaps,
            &self.serving.copy.info.purged_snaps,
        );
        let is_purged = |s: &&SnapId| snaps.purged.contains(**s) || here.contains(**s);
        let sets = info.snap_set.clones.iter();
        let strays = sets.filter_map(|set| Some((set.id, *set.snaps.iter().find(is_purged)?)));
        let is_there = |id: SnapId| clones.iter().any(|c| c.object.snap == id);
        let head = key::object_key(&head.object);
        strays
            .filter(|(id, _)| is_there(*id))
            .map(|(id, snap)| (key::clone_key(&head, id), snap))
            .collect()
    }

    /// Changes the list of findings, here and on all members.
    pub(super) fn list_findings(&mut self, anew: bool, notes: Vec<FindingNote>, cx: &mut Ctx<'_>) {
        let txn = findings::txn(self.serving.site.pgid, anew, notes.clone());
        let others = self.serving.site.others();
        self.tell(others, &News::Listed { anew, notes }, cx);
        self.serving.store.record(txn, cx);
    }

    /// Has all members note how far the scrub is.
    pub(super) fn note_progress(&mut self, cx: &mut Ctx<'_>) {
        let (usec, pgid) = (cx.usec, self.serving.site.pgid);
        let Some(run) = self.run() else {
            impossible!("a scrub that notes its progress to be under way"; pg = pgid);
        };
        run.noted = usec;
        let progress = Progress {
            deep: run.order.deep,
            requested: run.order.requested,
            began: run.began,
            cursor: run.cursor.clone(),
            totals: run.totals,
        };
        self.serving.copy.info.scrubs.progress = Some(progress);
        self.save_history(cx);
    }

    fn save_history(&mut self, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        self.serving.copy.save_info(pgid, self.serving.store, cx);
        let (others, news) = (self.serving.site.others(), self.noted());
        self.tell(others, &news, cx);
    }

    /// What members are to remember of the PG's scrubs.
    pub(super) fn noted(&self) -> News {
        let info = &self.serving.copy.info;
        News::Noted {
            history: Box::new(info.scrubs.clone()),
            usage: (info.last_update, info.usage),
        }
    }

    /// Ends the scrub: says what was found, has it repaired, and remembers it.
    pub(super) fn finish(&mut self, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let state = self.scrub().map(|scrub| std::mem::take(&mut scrub.state));
        let Some(State::Running(mut run)) = state else {
            impossible!("a scrub that ends to be under way"; pg = pgid);
        };
        invariant!(run.again.is_empty(), "nothing to be left that is to be looked at again"; pg = pgid, left = run.again.len());
        self.release(cx);
        let (name, order) = (run.order.name(), run.order);
        let (missing, inconsistent) = (run.totals.missing, run.totals.inconsistent);
        if missing + inconsistent > 0 {
            let what = format!("{name} {missing} missing, {inconsistent} inconsistent objects");
            self.cluster_log(LogPriority::ERROR, &what, cx);
        }
        let mut fixed = 0;
        if self.check_usage(&run, cx) {
            run.totals.errors.shallow = run.totals.errors.shallow.saturating_add(1);
            if order.repair {
                fixed += 1;
                self.serving.copy.info.usage = run.counted;
            }
        }
        let renotes = run.findings.iter().any(|f| f.renoted > 0);
        let (repaired, is_rest) = self.repair(&mut run, cx);
        fixed += repaired;
        let is_repair = order.repair || repaired > 0;
        let errors = run.totals.errors;
        let total = errors.all();
        let is_mended = is_repair && fixed == total;
        self.say_result(&run, is_repair.then_some(fixed), cx);
        self.remember(&run, is_mended, cx);
        let Some(scrub) = self.scrub() else {
            impossible!("a primary whose scrub ends to serve"; pg = pgid);
        };
        let checks_repair = std::mem::take(&mut scrub.checks_repair);
        // As Ceph: a repair fails that has nothing to repair with, or if errors are left after it.
        let fails = match is_repair {
            true => repaired == 0,
            false => checks_repair,
        };
        scrub.repair_failed = total > 0 && !is_mended && (fails || scrub.repair_failed);
        if repaired > 0 && (!is_mended || renotes) {
            // The errors that are left are counted, or the next ones repaired. Digests are not noted of
            // an object that was written meanwhile.
            scrub.checks_repair = true;
            let next = Order {
                deep: true,
                repair: is_rest && order.repair,
                requested: true,
            };
            scrub.ordered = Some(scrub.ordered.map_or(next, |o| o.and(next)));
        }
    }

    /// Has what was found repaired, as far as it was ordered or may be done unasked. Returns the number
    /// of copies, and whether there are more.
    fn repair(&mut self, run: &mut Run, cx: &mut Ctx<'_>) -> (u32, bool) {
        let most = self.serving.site.cfg.scrub.auto_repair;
        let is_few = |most: u32| run.findings.len() <= usize::try_from(most).unwrap_or(usize::MAX);
        if !run.order.repair && !most.is_some_and(is_few) {
            return (0, false);
        }
        let (mut repaired, mut settled) = (0, Vec::new());
        let findings = std::mem::take(&mut run.findings);
        let is_rest = findings.len() >= MOST_REPAIRED;
        for finding in findings {
            if !run.order.repair && !finding.is_proven {
                continue;
            }
            repaired += finding.renoted;
            for (osd, renews) in finding.bad {
                let is_feigned = self.serving.site.cfg.has_bug(Bug::FeignedRepair);
                if is_feigned
                    || self
                        .serving
                        .repairing()
                        .repair_copy(&finding.key, osd, renews, cx)
                {
                    repaired += 1;
                }
            }
            settled.push(finding.settled);
        }
        if !settled.is_empty() {
            self.list_findings(false, settled, cx);
        }
        (repaired, is_rest)
    }

    /// Says how the scrub has ended. `fixed`: the copies that are repaired, if any were to be.
    fn say_result(&self, run: &Run, fixed: Option<u32>, cx: &mut Ctx<'_>) {
        let total = run.totals.errors.all();
        let mut what = match total {
            0 => format!("{} ok", run.order.name()),
            n => format!("{} {n} errors", run.order.name()),
        };
        let lost = self.serving.copy.info.scrubs.deep_errors;
        if !run.order.deep && lost > 0 {
            what += &format!(" ( {lost} remaining deep scrub error details lost)");
        }
        if let Some(fixed) = fixed {
            what += &format!(", {fixed} fixed");
        }
        let priority = if total > 0 {
            LogPriority::ERROR
        } else {
            LogPriority::DEBUG
        };
        self.cluster_log(priority, &what, cx);
    }

    /// Holds the usage of the objects that were looked at against the PG's. Returns whether it is
    /// wrong.
    fn check_usage(&self, run: &Run, cx: &mut Ctx<'_>) -> bool {
        let (usage, counted) = (self.serving.copy.info.usage, run.counted);
        if run.resumed || counted == usage || self.serving.copy.info.usage_invalid {
            return false;
        }
        // What Spirula does not count, or does not have, is equal.
        let what = format!(
            "{} : stat mismatch, got {}/{} objects, {}/{} clones, {}/{} dirty, 0/0 omap, 0/0 pinned, 0/0 \
             hit_set_archive, {}/{} whiteouts, {}/{} bytes, 0/0 manifest objects, 0/0 hit_set_archive bytes.",
            run.order.name(),
            counted.objects,
            usage.objects,
            counted.clones,
            usage.clones,
            counted.objects,
            usage.objects,
            counted.whiteouts,
            usage.whiteouts,
            counted.bytes,
            usage.bytes
        );
        self.cluster_log(LogPriority::ERROR, &what, cx);
        true
    }

    /// Remembers the scrub, here and on all members.
    fn remember(&mut self, run: &Run, is_mended: bool, cx: &mut Ctx<'_>) {
        let version = self.serving.copy.info.last_update;
        let history = &mut self.serving.copy.info.scrubs;
        let errors = match is_mended {
            true => Default::default(),
            false => run.totals.errors,
        };
        history.progress = None;
        history.listed = true;
        (history.version, history.stamp) = (version, cx.now);
        history.shallow_errors = errors.shallow;
        if run.order.deep {
            (history.deep_version, history.deep_stamp) = (version, cx.now);
            history.deep_errors = errors.deep;
            history.large_omaps = run.totals.large_omaps;
            (history.omap_keys, history.omap_bytes) = (run.totals.omap_keys, run.totals.omap_bytes);
        }
        if history.errors() == 0 {
            history.clean_stamp = cx.now;
        }
        self.save_history(cx);
    }
}

impl Run {
    /// Counts an inconsistent object, and keeps it to be repaired.
    fn note_finding(&mut self, of: &Judged, note: &FindingNote) {
        let errors = of.judgement.count();
        self.totals.errors.add_all(errors);
        let settled = FindingNote {
            finding: None,
            ..note.clone()
        };
        if of.judgement.is_misnoted() && self.order.repair {
            return self.findings.push(Finding {
                key: of.key.clone(),
                bad: Vec::new(),
                renoted: errors.all(),
                is_proven: false,
                settled,
            });
        }
        if of.judgement.auth.is_none() {
            return; // There is nothing to repair it from, and nothing to compare with.
        }
        let bad: Vec<&Shard> = of.judgement.shards.iter().filter(|s| s.is_bad()).collect();
        self.totals.missing += u32::from(bad.iter().any(|s| s.is_missing()));
        let is_there = |s: &&Shard| !s.is_missing();
        self.totals.inconsistent +=
            u32::from(of.judgement.too_large || bad.iter().copied().any(|s| is_there(&s)));
        if bad.is_empty() || self.findings.len() >= MOST_REPAIRED {
            return; // Nothing can be repaired, or another scrub repairs it.
        }
        self.findings.push(Finding {
            key: of.key.clone(),
            bad: bad.iter().map(|s| (s.osd, !s.is_only_unreadable())).collect(),
            renoted: 0,
            is_proven: of.judgement.is_proven,
            settled,
        });
    }
}

/// A head or clone, by an encoded info and, if that does not count, the sizes that it has and should
/// have.
fn member(object: &HObject, info: &Bytes, sizes: Option<(u64, u64)>) -> Member {
    let info = match decode_all::<ObjectInfo>(info) {
        Ok(info) => Info::Known(Box::new(info)),
        Err(_) if info.is_empty() => Info::Missing,
        Err(e) => Info::Corrupted(e.to_string()),
    };
    Member {
        object: object.clone(),
        info,
        sizes,
    }
}

/// A head or clone of which no copy counts, by the primary's copy.
fn own_member(object: &HObject, own: &Copy<'_>) -> Option<Member> {
    let Some(found) = &own.account?.found else {
        return Some(member(object, &Bytes::new(), None));
    };
    let info = decode_all::<ObjectInfo>(&found.info).unwrap_or_default();
    let sizes = (found.size, own.shape.size(info.size));
    Some(member(object, &found.info, Some(sizes)))
}

/// What a client is told of a member's copy.
fn shard_info(
    object: &HObject,
    copy: &Copy<'_>,
    shard: &Shard,
    (primary, selected_oi): (bool, bool),
    reqid: ReqId,
) -> ShardInfo {
    let mut info = ShardInfo {
        errors: shard.errors,
        primary,
        selected_oi,
        ..ShardInfo::default()
    };
    if let Some(found) = copy.account.and_then(|a| a.found.as_ref()) {
        info.attrs = official::attributes(object, found, reqid);
        info.size = found.size;
        let content = found.content.as_ref();
        info.data_digest = content.and_then(|c| c.data);
        info.omap_digest = content.and_then(|c| c.omap).map(|o| o.digest);
    }
    info
}

/// What the cluster log is told of an omap that is larger than it should be.
fn large_omap(key: &Bytes, pgid: spirula_maps::PgId, omap: Omap) -> String {
    let object = key::named(key);
    format!(
        "Large omap object found. Object: {object} PG: {}.{:x} ({pgid}) Key count: {} Size (bytes): {}",
        object.pool, object.hash, omap.keys, omap.bytes
    )
}
