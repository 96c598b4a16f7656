//! One-time passwords of users' devices, by which they confirm requests. Formats: Ceph's
//! `src/cls/otp/cls_otp_types.h`, `cls_otp_ops.h` and `cls_otp.cc`.
//!
//! A check of a password always succeeds, as only then what came of it is kept: the client asks for
//! that afterwards, by a token that it gave the check.

mod seed;
mod totp;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use crate::method::{Nothing, class, stored, to_bytes};
use crate::{Error, Object, Result, omap};

class! { "otp" {
    "otp_set": RD | WR => set;
    "otp_get": RD => get;
    "otp_check": RD | WR => check;
    "otp_get_result": RD => get_result;
    "otp_remove": RD | WR => remove;
    "get_current_time": RD => get_current_time;
} }

/// The omap key of the [`Header`].
const HEADER: &[u8] = b"header";
/// The prefix of the omap keys of devices, before their ids.
const PREFIX: &[u8] = b"otp/";
/// Checks within one step; more are not made.
const CHECKS_PER_STEP: usize = 5;

const UNKNOWN: u8 = 0;
const SUCCESS: u8 = 1;
const FAIL: u8 = 2;

versioned! {
    /// A device.
    #[derive(Eq)]
    pub(crate) struct OtpInfo("otp_info_t", version 1, compat 1) {
        /// 2: the passwords depend on the time (TOTP, RFC 6238). Others are not supported, and not
        /// refused.
        pub(crate) kind: u8 = 2;
        pub(crate) id: Bytes;
        /// The secret that it shares with us, as a text.
        pub(crate) seed: Bytes;
        /// The form of `seed`: 2 is base 32, others are hexadecimal digits.
        pub(crate) seed_type: u8;
        /// The secret.
        pub(crate) seed_bin: Bytes;
        /// Seconds after the epoch at which steps begin to count.
        pub(crate) time_ofs: i32;
        /// Seconds for which one password is good.
        pub(crate) step_size: u32 = 30;
        /// Steps before and behind the present one whose passwords are good too.
        pub(crate) window: u32 = 2;
    }

    /// What came of a check.
    #[derive(Eq)]
    pub(crate) struct Check("otp_check_t", version 1, compat 1) {
        /// By which the client asks for it.
        pub(crate) token: Bytes;
        pub(crate) timestamp: UTime;
        pub(crate) result: u8;
    }

    /// The value of a device's omap key.
    #[derive(Eq)]
    pub(crate) struct Instance("otp_instance", version 1, compat 1) {
        pub(crate) otp: OtpInfo;
        /// The checks of the last step, oldest first.
        pub(crate) last_checks: Vec<Check>;
        /// The step of the last password that was good: no password is good twice.
        pub(crate) last_success: u64;
    }

    /// The value of the omap key `header`.
    #[derive(Eq)]
    pub(crate) struct Header("otp_header", version 1, compat 1) {
        /// The ids of all devices.
        pub(crate) ids: BTreeSet<Bytes>;
    }

    /// Input of `otp_set`.
    #[derive(Eq)]
    pub(crate) struct SetOp("cls_otp_set_otp_op", version 1, compat 1) {
        pub(crate) entries: Vec<OtpInfo>;
    }

    /// Input of `otp_get`.
    #[derive(Eq)]
    pub(crate) struct GetOp("cls_otp_get_otp_op", version 1, compat 1) {
        pub(crate) get_all: bool;
        /// Unless all are wanted, the ids of those that are.
        pub(crate) ids: Vec<Bytes>;
    }

    /// Output of `otp_get`.
    #[derive(Eq)]
    pub(crate) struct GetReply("cls_otp_get_otp_reply", version 1, compat 1) {
        pub(crate) found_entries: Vec<OtpInfo>;
    }

    /// Input of `otp_check` and `otp_get_result`.
    #[derive(Eq)]
    pub(crate) struct CheckOp("cls_otp_check_otp_op", version 1, compat 1) {
        pub(crate) id: Bytes;
        /// The password.
        pub(crate) val: Bytes;
        pub(crate) token: Bytes;
    }

    /// Output of `otp_get_result`.
    #[derive(Eq)]
    pub(crate) struct ResultReply("cls_otp_get_result_reply", version 1, compat 1) {
        pub(crate) result: Check;
    }

    /// Input of `otp_remove`.
    #[derive(Eq)]
    pub(crate) struct RemoveOp("cls_otp_remove_otp_op", version 1, compat 1) {
        pub(crate) ids: Vec<Bytes>;
    }

    /// Input of `get_current_time`.
    #[derive(Eq)]
    pub(crate) struct TimeOp("cls_otp_get_current_time_op", version 1, compat 1) {}

    /// Output of `get_current_time`.
    #[derive(Eq)]
    pub(crate) struct TimeReply("cls_otp_get_current_time_reply", version 1, compat 1) {
        pub(crate) time: UTime;
    }
}

fn key(id: &[u8]) -> Bytes {
    [PREFIX, id].concat().into()
}

fn find(object: &mut dyn Object, id: &[u8]) -> Result<Option<Instance>> {
    omap::find(object, &key(id))?.as_ref().map(stored).transpose()
}

/// The device of that id; ENOENT where there is none.
fn require(object: &mut dyn Object, id: &[u8]) -> Result<Instance> {
    find(object, id)?.ok_or(Error::ENOENT)
}

fn write(object: &mut dyn Object, instance: &Instance) -> Result<()> {
    omap::set(object, key(&instance.otp.id), to_bytes(instance))
}

fn read_header(object: &mut dyn Object) -> Result<Header> {
    match omap::find(object, HEADER)? {
        Some(bytes) if !bytes.is_empty() => stored(&bytes),
        _ => Ok(Header::default()),
    }
}

fn write_header(object: &mut dyn Object, header: &Header) -> Result<()> {
    omap::set(object, HEADER, to_bytes(header))
}

/// Sets devices; of one that was there, what came of its checks stays.
fn set(object: &mut dyn Object, op: SetOp) -> Result<Nothing> {
    let mut header = read_header(object)?;
    for mut otp in op.entries {
        let old = find(object, &otp.id)?.unwrap_or_default();
        otp.seed_bin = seed::parse(&otp.seed, otp.seed_type).ok_or(Error::EINVAL)?;
        header.ids.insert(otp.id.clone());
        write(object, &Instance { otp, ..old })?;
    }
    write_header(object, &header).map(|()| Nothing)
}

fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let mut header = read_header(object)?;
    let gone: BTreeSet<Bytes> = op.ids.into_iter().filter(|id| header.ids.remove(id)).collect();
    if !gone.is_empty() {
        object.omap_remove(&gone.iter().map(|id| key(id)).collect())?;
        write_header(object, &header)?;
    }
    Ok(Nothing)
}

/// Those of the wanted devices that exist.
fn get(object: &mut dyn Object, op: GetOp) -> Result<GetReply> {
    let header = read_header(object)?;
    let ids: Vec<Bytes> = match op.get_all {
        true => header.ids.into_iter().collect(),
        false => op.ids.into_iter().filter(|id| header.ids.contains(id)).collect(),
    };
    let mut reply = GetReply::default();
    for id in ids {
        reply.found_entries.push(require(object, &id)?.otp);
    }
    Ok(reply)
}

impl Instance {
    /// Forgets checks that are older than a step.
    fn trim(&mut self, now: UTime) {
        let step = Duration::from_secs(self.otp.step_size.into());
        let old = self
            .last_checks
            .iter()
            .take_while(|c| c.timestamp.plus(step) < now);
        let old = old.count();
        self.last_checks.drain(..old);
    }

    /// Whether a password is good now; its step counts as used then.
    fn verify(&mut self, password: &[u8], now: UTime) -> bool {
        let Some(step) = totp::matching_step(&self.otp, password, now.sec) else {
            return false;
        };
        if step <= self.last_success {
            return false;
        }
        self.last_success = step;
        true
    }
}

fn check(object: &mut dyn Object, op: CheckOp) -> Result<Nothing> {
    let mut instance = require(object, &op.id)?;
    let timestamp = object.now();
    instance.trim(timestamp);
    if instance.last_checks.len() < CHECKS_PER_STEP {
        let is_good = instance.verify(&op.val, timestamp);
        instance.last_checks.push(Check {
            token: op.token,
            timestamp,
            result: if is_good { SUCCESS } else { FAIL },
        });
        write(object, &instance)?;
    }
    Ok(Nothing)
}

fn get_result(object: &mut dyn Object, op: CheckOp) -> Result<ResultReply> {
    let mut instance = require(object, &op.id)?;
    let timestamp = object.now();
    instance.trim(timestamp);
    let found = instance.last_checks.into_iter().rfind(|c| c.token == op.token);
    let result = found.unwrap_or(Check {
        token: op.token,
        timestamp,
        result: UNKNOWN,
    });
    Ok(ResultReply { result })
}

fn get_current_time(object: &mut dyn Object, _: TimeOp) -> Result<TimeReply> {
    Ok(TimeReply { time: object.now() })
}
