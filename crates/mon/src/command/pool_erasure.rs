//! Erasure-coded pools: what of their creation and of their settings is their own.

use spirula_maps::{PgPool, PoolFlags, PoolType};

use super::crush::edit;
use super::erasure_profile;
use super::pool::check_rule;
use super::{Reply, errno, refuse};
use crate::core::{Turn, View};
use crate::erasure::{self, Code, MAX_CHUNKS, Profile};

/// What is asked for of a new pool.
#[derive(Debug)]
pub(crate) struct NewErasure {
    /// The name of its profile.
    profile: String,
    /// The name of its rule, which is made where it does not exist.
    rule: String,
}

impl NewErasure {
    /// With the names that are given, or else the official ones.
    pub(super) fn new(profile: Option<String>, rule: Option<String>, pool: &str) -> Self {
        let profile = profile.unwrap_or_else(|| "default".to_owned());
        let own = match profile.as_str() {
            "default" => "erasure-code",
            _ => pool,
        };
        Self {
            rule: rule.unwrap_or_else(|| own.to_owned()),
            profile,
        }
    }
}

/// A new pool of one PG. Its rule and the default profile become part of the next map, where they
/// are not there.
pub(super) fn pool(m: &mut Turn<'_>, new: &NewErasure) -> Result<PgPool, Reply> {
    let mut profile = erasure_profile::find(m, &new.profile).unwrap_or_default();
    let code = erasure::read(&mut profile)?;
    check_served(&code)?;
    let too_many = || Reply::error(errno::EOPNOTSUPP, "too many rules");
    let rule = match m.view.state.osd.map.crush.map().rule_id(&new.rule) {
        Some(number) => {
            check_rule(m.view, number, PoolType::ERASURE, size(code.chunks))?;
            number
        }
        None => edit(m, |crush| code.add_rule(crush, &new.rule, &profile))?,
    };
    let rule = u8::try_from(rule).map_err(|_| too_many())?;
    let unit = match profile.get("stripe_unit") {
        Some(text) => spirula_conf::amount::iec(text).unwrap_or(0),
        None => m.view.values.uint("osd_pool_erasure_code_stripe_unit"),
    };
    let mut pool = PgPool::replicated(size(code.chunks), size(code.min_size()), 1, rule);
    pool.kind = PoolType::ERASURE;
    // From the beginning: clients keep what they have been told once.
    pool.flags.insert(PoolFlags::EC_OVERWRITES);
    pool.erasure_code_profile.clone_from(&new.profile);
    pool.stripe_width = code.stripe_width(unit)?;
    pool.fast_read = m.view.values.flag("osd_pool_default_ec_fast_read");
    Ok(pool)
}

/// A number of members, as pools have it.
fn size(members: u32) -> u8 {
    u8::try_from(members).unwrap_or(u8::MAX)
}

/// Refuses codes that pools cannot have.
fn check_served(code: &Code) -> Result<(), Reply> {
    if code.chunks > MAX_CHUNKS {
        return refuse(
            errno::EOPNOTSUPP,
            format!(
                "pools of {} chunks are not supported: the kernel's clients know at most {MAX_CHUNKS} OSDs of a placement group",
                code.chunks
            ),
        );
    }
    if code.is_local() {
        return refuse(
            errno::EOPNOTSUPP,
            "pools of the erasure code plugin lrc are not supported: repair from the chunks nearby is not built",
        );
    }
    Ok(())
}

/// The least `min_size` of a pool: as many as hold the data.
pub(super) fn least_min_size(m: &View, p: &PgPool) -> Result<u8, Reply> {
    let profiles = &m.state.osd.map.erasure_code_profiles;
    let mut profile: Profile = profiles.get(&p.erasure_code_profile).cloned().unwrap_or_default();
    let code = erasure::read(&mut profile).map_err(|e| {
        let text = format!("prepare_command_pool_set get_erasure_code failed: {}", e.status);
        e.with_status(text)
    })?;
    Ok(size(code.data))
}
