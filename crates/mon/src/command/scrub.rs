//! `pg scrub`, `osd scrub`, `osd pool scrub` and their like: the primaries of PGs are told to scrub
//! them. Nothing of it is kept here.

use std::collections::{BTreeMap, BTreeSet};

use spirula_maps::{OsdId, PgId, SpgId};
use spirula_proto::Payload;
use spirula_proto::osd::MOsdScrub2;

use super::osd_id::joined;
use super::{Call, Done, Reply, commands, errno, now, parse_osd, refuse};
use crate::core::{Effect, SessionId, Turn, View};

commands! {
    "pg scrub pgid:Pgid" "pg" "rw" of_pg, "compare the copies of a placement group";
    "pg deep-scrub pgid:Pgid" "pg" "rw" of_pg, "compare the copies of a placement group, and read all data";
    "pg repair pgid:Pgid" "pg" "rw" of_pg, "scrub a placement group deeply and repair what is damaged";
    "osd scrub who:String" "osd" "rw" of_osds, "scrub the placement groups that an OSD leads, or all";
    "osd deep-scrub who:String" "osd" "rw" of_osds,
        "scrub the placement groups that an OSD leads, or all, deeply";
    "osd repair who:String" "osd" "rw" of_osds, "repair the placement groups that an OSD leads, or all";
    "osd pool scrub who:Poolname..." "osd" "rw" of_pools, "scrub the placement groups of pools";
    "osd pool deep-scrub who:Poolname..." "osd" "rw" of_pools, "scrub the placement groups of pools deeply";
    "osd pool repair who:Poolname..." "osd" "rw" of_pools, "repair the placement groups of pools";
}

/// The kind of scrub that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scrub {
    Shallow,
    Deep,
    Repair,
}

impl Scrub {
    /// The kind that a command wants: its last word.
    fn wanted(call: &Call<'_>) -> Self {
        match call.args.prefix().rsplit(' ').next() {
            Some("repair") => Self::Repair,
            Some("deep-scrub") => Self::Deep,
            _ => Self::Shallow,
        }
    }

    /// The kind's name in commands and answers.
    fn name(self) -> &'static str {
        match self {
            Self::Shallow => "scrub",
            Self::Deep => "deep-scrub",
            Self::Repair => "repair",
        }
    }

    /// Tells the OSD that has this session to scrub these PGs.
    fn tell(self, m: &mut Turn<'_>, session: SessionId, pgs: Vec<SpgId>) {
        let order = MOsdScrub2 {
            fsid: m.view.me.fsid,
            epoch: m.view.state.osd.map.epoch,
            pgs,
            repair: self == Self::Repair,
            deep: self == Self::Deep,
        };
        m.effect(Effect::Send(session, order.to_message()));
    }
}

fn of_pg(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let scrub = Scrub::wanted(call);
    let name = call.args.str("pgid")?;
    let Ok(pg) = name.parse::<PgId>() else {
        return refuse(errno::EINVAL, format!("invalid pgid '{name}'"));
    };
    let map = &m.view.state.osd.map;
    if !map.has_pg(pg) {
        return refuse(errno::ENOENT, format!("pg {pg} does not exist"));
    }
    let Some((primary, spg)) = map.primary_shard(pg) else {
        return refuse(errno::EAGAIN, format!("pg {pg} has no primary osd"));
    };
    let Some(session) = m.view.osd_session(primary) else {
        let text = format!("pg {pg} primary osd.{primary} is not currently connected");
        return refuse(errno::EAGAIN, text);
    };
    scrub.tell(m, session, vec![spg]);
    let text = format!("instructing pg {spg} on osd.{primary} to {}", scrub.name());
    now(Reply::status(text))
}

/// The OSDs that a command names.
fn named_osds(m: &View, call: &Call<'_>) -> Result<BTreeSet<OsdId>, Reply> {
    let (who, map) = (call.args.str("who")?, &m.state.osd.map);
    if ["*", "all", "any"].contains(&who.as_str()) {
        return Ok(map.osds().filter(|o| map.is_up(*o)).collect());
    }
    match parse_osd(&who) {
        Err(why) => refuse(errno::EINVAL, format!("{}invalid osd '{who}'", why.text)),
        Ok(osd) if !map.is_up(osd) => refuse(errno::EAGAIN, format!("osd.{osd} is not up")),
        Ok(osd) => Ok([osd].into()),
    }
}

/// The PGs that each of these OSDs leads.
fn led_by(m: &View, osds: &BTreeSet<OsdId>) -> BTreeMap<OsdId, Vec<SpgId>> {
    let mut led: BTreeMap<OsdId, Vec<SpgId>> = BTreeMap::new();
    for (pg, stat) in &m.state.stats.pgs {
        // An OSD leads nothing that it does not have.
        if stat.acting.osds().any(|o| osds.contains(&o))
            && let Some((primary, spg)) = m.state.osd.map.primary_shard(*pg)
        {
            led.entry(primary).or_default().push(spg);
        }
    }
    led
}

fn of_osds(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let scrub = Scrub::wanted(call);
    let osds = named_osds(m.view, call)?;
    let mut led = led_by(m.view, &osds);
    let (mut told, mut missed) = (Vec::new(), Vec::new());
    for osd in &osds {
        match m.view.osd_session(*osd) {
            None => missed.push(*osd),
            Some(session) => {
                scrub.tell(m, session, led.remove(osd).unwrap_or_default());
                told.push(*osd);
            }
        }
    }
    let name = scrub.name();
    // As in Ceph, the text alone tells that no OSD could be told.
    if told.is_empty() {
        let text = format!(
            "failed to instruct osd(s) {} to {name} (not connected)",
            joined(&missed)
        );
        return now(Reply::status(text));
    }
    let mut text = format!("instructed osd(s) {} to {name}", joined(&told));
    if !missed.is_empty() {
        text.push_str(&format!("; osd(s) {} were not connected", joined(&missed)));
    }
    now(Reply::status(text))
}

fn of_pools(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let scrub = Scrub::wanted(call);
    let names = call.args.list("who");
    if names.is_empty() {
        return refuse(errno::EINVAL, "must specify one or more pool names");
    }
    let map = &m.view.state.osd.map;
    let mut by_primary: BTreeMap<OsdId, Vec<SpgId>> = BTreeMap::new();
    let mut has_primaries = true;
    for name in names {
        let Some((id, pool)) = map.pool_id(&name).and_then(|id| Some((id, map.pool(id)?))) else {
            return refuse(errno::ENOENT, format!("unrecognized pool '{name}'"));
        };
        for pg in (0..pool.pg_num).map(|seed| PgId::new(id, seed)) {
            match map.primary_shard(pg) {
                Some((primary, spg)) => by_primary.entry(primary).or_default().push(spg),
                // As in Ceph, erasure-coded PGs without a primary are passed over.
                None => has_primaries &= pool.is_erasure(),
            }
        }
    }
    if !has_primaries {
        // Ceph's number for no OSD.
        return refuse(errno::EAGAIN, "osd.-1 is not currently connected");
    }
    let mut orders = Vec::new();
    for (osd, pgs) in by_primary {
        match m.view.osd_session(osd) {
            Some(session) => orders.push((session, pgs)),
            None => return refuse(errno::EAGAIN, format!("osd.{osd} is not currently connected")),
        }
    }
    for (session, pgs) in orders {
        scrub.tell(m, session, pgs);
    }
    now(Reply::default())
}
