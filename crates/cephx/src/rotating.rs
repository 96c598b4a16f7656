//! Rotating secrets: what tickets are sealed with (`RotatingSecrets` in Ceph's `src/auth/Auth.h`,
//! `KeyServer::_rotate_secret` in `src/auth/cephx/CephxKeyServer.cc`).
//!
//! Each service has three generations: the previous one, under which valid tickets may still exist,
//! the current one, under which tickets are made, and the next one, which services fetch before it
//! is used.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::{Decode, Encode, EntityType, Error, Reader, Result, UTime, Writer};

use crate::env::Env;
use crate::key::{CryptoKey, KeyType};
use crate::wire::version_byte;

/// Generations kept for each service.
const GENERATIONS: usize = 3;
/// The services that have secrets.
const SERVICES: [EntityType; 5] = [
    EntityType::AUTH,
    EntityType::MON,
    EntityType::OSD,
    EntityType::MDS,
    EntityType::MGR,
];

/// The lifetimes of tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketLifetimes {
    /// A ticket of the monitors' own service (`auth_mon_ticket_ttl`).
    pub auth: Duration,
    /// A ticket of any other service (`auth_service_ticket_ttl`).
    pub service: Duration,
}

impl Default for TicketLifetimes {
    /// The official defaults: 72 hours and one hour.
    fn default() -> Self {
        Self {
            auth: Duration::from_secs(72 * 3600),
            service: Duration::from_secs(3600),
        }
    }
}

impl TicketLifetimes {
    /// The lifetime of a service's tickets; never zero, as no ticket would ever be valid then.
    pub fn of(&self, service: EntityType) -> Duration {
        let ttl = if service == EntityType::AUTH {
            self.auth
        } else {
            self.service
        };
        ttl.max(Duration::from_secs(1))
    }
}

version_byte! {
    /// A secret and the end of its life (`ExpiringCryptoKey`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ExpiringKey = 1 {
        /// The secret.
        key: CryptoKey,
        /// When it is no longer used.
        expiration: UTime,
    }

    /// The secrets of one service by id (`RotatingSecrets`).
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct RotatingSecrets = 1 {
        /// The generations.
        secrets: BTreeMap<u64, ExpiringKey>,
        /// The highest id given out.
        max_id: u64,
    }
}

impl RotatingSecrets {
    /// The current generation.
    fn current(&self) -> Option<(u64, &ExpiringKey)> {
        let second = self.secrets.iter().nth(1).or_else(|| self.secrets.iter().next());
        second.map(|(id, secret)| (*id, secret))
    }

    /// Whether a generation is missing, or the current one is over at `cutoff`.
    pub fn needs_new(&self, cutoff: UTime) -> bool {
        self.secrets.len() < GENERATIONS || self.current().is_none_or(|(_, s)| s.expiration <= cutoff)
    }

    /// Adds the generations that are due. Returns whether there were any.
    fn rotate(&mut self, ttl: Duration, kind: KeyType, env: &Env<'_>) -> crate::Result<bool> {
        let mut added = false;
        // Three new generations replace all there are; a clock at the end of time must not add for
        // ever.
        for _ in 0..GENERATIONS {
            if !self.needs_new(env.now) {
                break;
            }
            let start = match self.secrets.last_key_value() {
                None => env.now,
                Some((_, newest)) => env.now.plus(ttl).max(newest.expiration),
            };
            // Only damaged secrets count so far that there is no next id.
            self.max_id = self.max_id.checked_add(1).ok_or(crate::Error::NotReady)?;
            let secret = ExpiringKey {
                key: CryptoKey::generate(kind, env)?,
                expiration: start.plus(ttl),
            };
            self.secrets.insert(self.max_id, secret);
            while self.secrets.len() > GENERATIONS {
                self.secrets.pop_first();
            }
            added = true;
        }
        Ok(added)
    }
}

/// The secret for sealing new tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentSecret {
    /// Its id.
    pub id: u64,
    /// The secret.
    pub key: CryptoKey,
    /// How long a ticket sealed with it may live.
    pub ttl: Duration,
}

/// The secrets of all services, which the monitors keep and replicate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceSecrets {
    /// Grows by one with each rotation.
    pub version: u64,
    services: BTreeMap<u32, RotatingSecrets>,
}

impl ServiceSecrets {
    /// The secrets after a rotation that is due at `env.now`, else `None`. The caller replicates
    /// the result before using it: tickets under a secret that a crash forgets would be useless.
    /// New secrets are of type `kind` (`auth_service_cipher`).
    ///
    /// # Errors
    /// [`crate::Error::NoRandomness`].
    pub fn rotated(
        &self,
        lifetimes: &TicketLifetimes,
        kind: KeyType,
        env: &Env<'_>,
    ) -> crate::Result<Option<Self>> {
        let mut next = self.clone();
        let mut added = false;
        for service in SERVICES {
            let secrets = next.services.entry(u32::from(service.0)).or_default();
            added |= secrets.rotate(lifetimes.of(service), kind, env)?;
        }
        next.version += 1;
        Ok(added.then_some(next))
    }

    /// All secrets with their services, for listings.
    pub fn iter(&self) -> impl Iterator<Item = (EntityType, &RotatingSecrets)> {
        let known = |s: u32| u8::try_from(s).ok().map(EntityType);
        self.services
            .iter()
            .filter_map(move |(service, secrets)| Some((known(*service)?, secrets)))
    }

    /// The secret to seal a ticket of `service` with, `None` before the first rotation.
    pub fn current(
        &self,
        service: EntityType,
        lifetimes: &TicketLifetimes,
        now: UTime,
    ) -> Option<CurrentSecret> {
        let secrets = self.of(service)?;
        let (mut id, mut secret) = secrets.current()?;
        let (newest_id, newest) = secrets.secrets.last_key_value()?;
        if secret.expiration < now {
            // The rotation is late: the next generation is already known to the services.
            (id, secret) = (*newest_id, newest);
        }
        // A lifetime that was just raised must not outlive the newest secret.
        let ttl = lifetimes.of(service).min(newest.expiration.since(now));
        Some(CurrentSecret {
            id,
            key: secret.key.clone(),
            ttl,
        })
    }

    /// The secret of this id.
    pub fn secret(&self, service: EntityType, id: u64) -> Option<&CryptoKey> {
        self.of(service)?.secrets.get(&id).map(|s| &s.key)
    }

    /// All secrets of a service, for the daemons that are that service.
    pub fn of(&self, service: EntityType) -> Option<&RotatingSecrets> {
        self.services.get(&u32::from(service.0))
    }
}

/// The official layout of the rotating part of `KeyServerData`.
impl Encode for ServiceSecrets {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.version);
        w.put(&self.services);
    }
}

impl Decode for ServiceSecrets {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        let version = r.u64()?;
        let services: BTreeMap<u32, RotatingSecrets> = r.get()?;
        if services.keys().any(|s| *s > u32::from(u8::MAX)) {
            return Err(Error::Invalid("service"));
        }
        Ok(Self { version, services })
    }
}

/// The secrets of one service among those of all, for a service within a monitor.
#[derive(Debug, Clone, Copy)]
pub struct ServiceKeys<'a> {
    /// All secrets.
    pub secrets: &'a ServiceSecrets,
    /// The service.
    pub service: EntityType,
}

impl crate::authorizer::TicketKeys for ServiceKeys<'_> {
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey> {
        let known = service == self.service;
        self.secrets.secret(service, secret_id).filter(|_| known).cloned()
    }
}

/// The secrets of its own service that a daemon has fetched, to open tickets.
#[derive(Debug, Clone)]
pub struct RotatingKeys {
    service: EntityType,
    secrets: RotatingSecrets,
}

/// How long after the end of the current secrets the official daemons fetch new ones at the latest.
const RENEW_DELAY: Duration = Duration::from_secs(30);

impl RotatingKeys {
    /// No secrets yet.
    pub fn new(service: EntityType) -> Self {
        Self {
            service,
            secrets: RotatingSecrets::default(),
        }
    }

    /// Adopts the monitor's answer.
    pub fn set(&mut self, secrets: RotatingSecrets) {
        self.secrets = secrets;
    }

    /// Whether no secrets are there at all.
    pub fn is_empty(&self) -> bool {
        self.secrets.secrets.is_empty()
    }

    /// Whether it is time to fetch secrets (`MonClient::_check_auth_rotating`).
    pub fn needs_renewal(&self, lifetimes: &TicketLifetimes, now: UTime) -> bool {
        let delay = RENEW_DELAY.min(lifetimes.of(self.service) / 4);
        self.secrets
            .needs_new(UTime::from(now.to_duration().saturating_sub(delay)))
    }
}

impl crate::authorizer::TicketKeys for RotatingKeys {
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey> {
        let known = service == self.service;
        self.secrets
            .secrets
            .get(&secret_id)
            .filter(|_| known)
            .map(|s| s.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::{decode_all, encode_to_vec};

    const T0: u32 = 1_700_000_000;
    const HOUR: u32 = 3600;
    const KIND: KeyType = KeyType::Aes256k;

    fn at(sec: u32) -> Env<'static> {
        Env::system(UTime::from_secs(sec))
    }

    #[test]
    fn three_generations_end_an_hour_apart_and_rotate_when_the_current_one_ends() {
        let lifetimes = TicketLifetimes::default();
        let first = ServiceSecrets::default()
            .rotated(&lifetimes, KIND, &at(T0))
            .unwrap()
            .unwrap();
        let ends = |s: &ServiceSecrets| -> Vec<(u64, u32)> {
            s.of(EntityType::OSD)
                .unwrap()
                .secrets
                .iter()
                .map(|(id, k)| (*id, k.expiration.sec))
                .collect()
        };
        assert_eq!(
            ends(&first),
            [(1, T0 + HOUR), (2, T0 + 2 * HOUR), (3, T0 + 3 * HOUR)]
        );
        assert_eq!(
            first.rotated(&lifetimes, KIND, &at(T0 + 2 * HOUR - 1)).unwrap(),
            None
        );
        let second = first
            .rotated(&lifetimes, KIND, &at(T0 + 2 * HOUR))
            .unwrap()
            .unwrap();
        assert_eq!(
            ends(&second),
            [(2, T0 + 2 * HOUR), (3, T0 + 3 * HOUR), (4, T0 + 4 * HOUR)]
        );
        assert_eq!(second.version, 2);
        // The monitors' own service rotates by its own, longer lifetime.
        assert_eq!(first.of(EntityType::AUTH), second.of(EntityType::AUTH));
        assert_eq!(decode_all::<ServiceSecrets>(&encode_to_vec(&second)), Ok(second));
    }

    #[test]
    fn tickets_are_sealed_with_the_current_generation_or_the_next_when_late() {
        let lifetimes = TicketLifetimes::default();
        let s = ServiceSecrets::default()
            .rotated(&lifetimes, KIND, &at(T0))
            .unwrap()
            .unwrap();
        let current = |sec| {
            let c = s
                .current(EntityType::OSD, &lifetimes, UTime::from_secs(sec))
                .unwrap();
            (c.id, c.ttl.as_secs())
        };
        assert_eq!(current(T0), (2, 3600));
        assert_eq!(current(T0 + 2 * HOUR + 1), (3, 3599));
        assert_eq!(current(T0 + 9 * HOUR), (3, 0));
        assert_eq!(
            s.current(EntityType::CLIENT, &lifetimes, UTime::from_secs(T0)),
            None
        );
    }

    #[test]
    fn a_clock_at_the_end_of_time_ends_the_rotation() {
        let end = Env::system(UTime {
            sec: u32::MAX,
            nsec: 999_999_999,
        });
        let s = ServiceSecrets::default()
            .rotated(&TicketLifetimes::default(), KIND, &end)
            .unwrap()
            .unwrap();
        assert!(
            s.rotated(&TicketLifetimes::default(), KIND, &end)
                .unwrap()
                .is_some()
        );
    }
}
