//! Looks for rot in the store's index, a piece a second, once in each interval of deep scrubs and
//! while scrubs are permitted; and says what it finds.
//!
//! Damage that others must make good needs a new start ([`super::mend`], [`super::refill`]). The daemon
//! begins that once the monitors say that every PG can do without this OSD; until then it serves on
//! with what can be read.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_denc::{Micros, UTime, decode_all, encode_to_vec, versioned};
use spirula_maps::OsdMapFlags;
use spirula_proto::internal::report::{DamagedStore, Needed, OsdReport, StoreDamaged};
use spirula_proto::mon::LogPriority;
use spirula_store::{Checked, IndexDamage, IndexPage, Store, StoreError};

use super::OsdError;
use super::life::Life;
use super::maps::Maps;
use super::mons::Mons;
use super::refill;
use super::setup::Setup;
use super::store_io::StoreIo;
use crate::core::DAEMON_SLOT;
use crate::pg::scrub::schedule::Permit;
use crate::pg::txn::{MetaOp, Txn};
use crate::pg::{Claim, Token};

/// The record of the last check and of the one under way.
const RECORD: &[u8] = b"Mi";
/// Pieces after which it is noted how far a check is.
const NOTE_EVERY: u32 = 64;
/// How often the monitors are told of damage.
const TELL: Micros = Micros::from_secs(10);
/// How often it is said that the OSD serves on with damage.
const SAY: Micros = Micros::from_secs(60);
/// The most damaged pages that are looked at together. A store with more is beyond repair.
const MOST: usize = 4096;

versioned! {
    /// When the index was checked.
    pub struct CheckTimes("index check", version 1, compat 1) {
        /// When the last whole check began.
        pub last: UTime;
        /// When the one under way began; zero for none.
        pub begun: UTime;
        /// Where it goes on.
        pub at: u64;
    }
}

/// What news of a check the store has.
#[derive(Debug)]
pub(super) enum IndexNews {
    Checked(Checked),
    Judged(Result<IndexDamage, StoreError>),
}

/// The check of the store's index.
#[derive(Debug, Default)]
pub(super) struct IndexCheck {
    times: CheckTimes,
    /// Pages of the index, as far as they are known.
    pages: u64,
    /// Whether an operator has ordered it: it does not wait for permission, nor rest.
    is_ordered: bool,
    /// Whether the store has something to answer.
    is_busy: bool,
    /// Whether a page is looked at out of turn.
    is_out_of_turn: bool,
    /// Pieces since the last note.
    pieces: u32,
    /// Whole checks since the start.
    checks: u64,
    /// Damaged pages that are not judged yet.
    unjudged: Vec<IndexPage>,
    /// Damaged pages that are needed.
    damaged: BTreeSet<u64>,
    /// What is damaged, in words; empty if nothing is.
    damage: String,
    /// Whether it takes a new, empty store.
    is_ruined: bool,
    /// The number of the last question to the monitors, and when it was asked.
    asked: (u64, Micros),
    said: Option<Micros>,
}

impl IndexCheck {
    /// The check as the store remembers it.
    pub(super) fn load(store: &mut Store) -> Result<Self, OsdError> {
        let times = match store.meta_get(RECORD)? {
            Some(record) => decode_all(&record).map_err(|source| OsdError::Damaged {
                what: "the record of index checks".to_owned(),
                source,
            })?,
            None => CheckTimes::default(),
        };
        Ok(Self {
            times,
            ..Self::default()
        })
    }

    /// The number of whole checks since the start.
    pub(super) fn checks(&self) -> u64 {
        self.checks
    }

    /// Has the index checked now, from the beginning, unless that is under way.
    pub(super) fn order(&mut self) {
        if !std::mem::replace(&mut self.is_ordered, true) {
            self.times.begun = UTime::ZERO;
        }
    }

    /// How far it is, for `check_index`.
    pub(super) fn to_json(&self) -> Value {
        let is_under_way = !self.times.begun.is_zero() || self.is_ordered;
        json!({
            "under_way": is_under_way,
            "page": self.times.at,
            "pages": self.pages,
            "last_check": self.times.last.to_string(),
            "damage": self.damage,
        })
    }

    fn is_due(&self, setup: &Setup, maps: &Maps, permit: Permit) -> bool {
        if self.is_ordered {
            return true;
        }
        if !permit.week.is_open() {
            return false;
        }
        if !self.times.begun.is_zero() {
            return true;
        }
        let interval = Duration::try_from_secs_f64(setup.values.float("osd_deep_scrub_interval"));
        permit.load
            && !maps.map().flags.contains(OsdMapFlags::NODEEP_SCRUB)
            && setup.now().since(self.times.last) >= interval.unwrap_or(Duration::MAX)
    }
}

/// Checks the index.
pub(super) struct Checking<'a> {
    pub(super) setup: &'a Setup,
    pub(super) maps: &'a Maps,
    pub(super) io: &'a mut StoreIo,
    pub(super) check: &'a mut IndexCheck,
    pub(super) mons: &'a mut Mons,
    pub(super) life: &'a mut Life,
}

impl Checking<'_> {
    /// Goes on, a second later.
    pub(super) fn tick(&mut self, permit: Permit) -> Result<(), StoreError> {
        if !self.check.is_busy
            && let Some(page) = self.io.damaged.pop_first()
            && !self.check.damaged.contains(&page)
        {
            self.check.is_out_of_turn = true;
            self.piece(page)?;
        }
        if !self.check.is_busy && self.check.is_due(self.setup, self.maps, permit) {
            self.next()?;
        }
        if !self.check.damage.is_empty() {
            self.tell();
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(), StoreError> {
        if self.check.times.begun.is_zero() {
            self.check.times.begun = self.setup.now();
            self.check.times.at = 0;
            tracing::info!("the store's index is checked");
        }
        self.piece(self.check.times.at)
    }

    fn piece(&mut self, page: u64) -> Result<(), StoreError> {
        self.check.is_busy = true;
        self.io.store.check_index(page, spirula_store::Token(0))
    }

    /// Takes what the store has found.
    pub(super) fn take(&mut self, news: IndexNews) -> Result<(), StoreError> {
        self.check.is_busy = false;
        match news {
            IndexNews::Checked(piece) => self.checked(piece),
            IndexNews::Judged(Ok(damage)) => {
                self.judged(&damage);
                Ok(())
            }
            IndexNews::Judged(Err(error)) => {
                self.check.unjudged.clear();
                self.damaged(error.to_string(), true);
                Ok(())
            }
        }
    }

    fn checked(&mut self, piece: Checked) -> Result<(), StoreError> {
        let id = self.setup.id();
        if piece.mended > 0 {
            let line = format!(
                "osd.{id}: {} damaged parts of the store's index were written anew",
                piece.mended
            );
            self.log(LogPriority::WARN, line);
        }
        self.check.pages = piece.pages;
        let room = MOST.saturating_sub(self.check.unjudged.len());
        self.check.unjudged.extend(piece.damaged.into_iter().take(room));
        if !std::mem::take(&mut self.check.is_out_of_turn) {
            self.went_on(piece.next)?;
        }
        if !self.check.unjudged.is_empty() {
            let pages = self.check.unjudged.clone();
            self.check.is_busy = true;
            return self.io.store.judge_index(pages, spirula_store::Token(0));
        }
        match self.check.is_ordered {
            true => self.next(),
            false => Ok(()),
        }
    }

    /// Notes how far the check is.
    fn went_on(&mut self, next: Option<u64>) -> Result<(), StoreError> {
        let check = &mut *self.check;
        // An order that came meanwhile begins anew.
        if check.times.begun.is_zero() {
            return Ok(());
        }
        check.pieces += 1;
        match next {
            Some(at) => check.times.at = at,
            None => {
                check.times = CheckTimes {
                    last: check.times.begun,
                    ..CheckTimes::default()
                };
                check.is_ordered = false;
                check.checks += 1;
                tracing::info!("the store's index was checked: {} pages", check.pages);
            }
        }
        if next.is_some() && check.pieces < NOTE_EVERY {
            return Ok(());
        }
        check.pieces = 0;
        let record = encode_to_vec(&check.times).into();
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![MetaOp::Put(Bytes::from_static(RECORD), record)],
        };
        let now = self.setup.usec();
        self.io.submit(Token::new(DAEMON_SLOT, 0), txn, Claim::All, now)
    }

    fn judged(&mut self, damage: &IndexDamage) {
        let pages = std::mem::take(&mut self.check.unjudged);
        if damage.is_harmless() {
            tracing::warn!("{} damaged pages of the index were not in use", damage.unused);
            return; // Nothing is lost.
        }
        self.check.damaged.extend(pages.iter().map(IndexPage::number));
        self.damaged(damage.to_string(), !damage.ruins.is_empty());
    }

    /// Notes damage that others must make good.
    fn damaged(&mut self, words: String, is_ruin: bool) {
        let id = self.setup.id();
        let line = format!("osd.{id}: the index of its store is damaged: {words}");
        self.log(LogPriority::ERROR, line);
        let check = &mut *self.check;
        check.is_ruined |= is_ruin;
        check.damage = match check.damaged.len() {
            0 | 1 => "the index of its store is damaged".to_owned(),
            n => format!("{n} pages of the index of its store are damaged"),
        };
        check.asked.1 = Micros::ZERO;
        self.tell();
    }

    fn log(&mut self, priority: LogPriority, line: String) {
        tracing::error!("{line}");
        self.mons.cluster_log(self.setup, priority, line);
    }

    /// Tells the monitors of the damage, and asks whether this OSD may stop.
    fn tell(&mut self) {
        if self.check.is_ordered {
            return; // An ordered check is soon at its end: all that it finds is mended at once.
        }
        let now = self.setup.usec();
        let (number, at) = self.check.asked;
        if !self.mons.knows_damage() || number > 0 && now < at + TELL {
            return; // It is asked again soon.
        }
        self.check.asked = (number + 1, now);
        self.mons.report(OsdReport::StoreDamaged(StoreDamaged {
            number: number + 1,
            state: DamagedStore::SERVES,
            damage: self.check.damage.clone(),
        }));
    }

    /// Handles the monitors' answer.
    pub(super) fn needed(&mut self, answer: &Needed) {
        let check = &mut *self.check;
        if check.damage.is_empty() || answer.number != check.asked.0 || self.life.has_failed() {
            return; // It is late.
        }
        let may_stop = self.setup.values.flag(refill::OPTION);
        if answer.count == 0 && may_stop {
            let pages = check.damaged.iter().copied().collect();
            return self.life.fail(self.setup.id(), OsdError::Mend { pages });
        }
        let now = self.setup.usec();
        if check.said.is_some_and(|at| now < at + SAY) {
            return; // It was said.
        }
        check.said = Some(now);
        let why = match may_stop {
            false => format!("{} is off", refill::OPTION),
            true if answer.pgs.is_empty() => "another OSD is being mended".to_owned(),
            true => format!("pgs can't do without this OSD: {}", refill::named(answer)),
        };
        tracing::error!("{}: it serves on with what can be read, as {why}", check.damage);
    }
}
