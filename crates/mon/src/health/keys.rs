//! Keys of types with known weaknesses. In Ceph they warn in every upgraded cluster; here only once
//! the administrator has decided for the stronger type: `aes` is the type that clients of all
//! releases know, and no ticket is sealed with it.

use spirula_cephx::{AuthName, EntityAuth, KeyServer, KeyType};
use spirula_denc::EntityType;

use super::{Check, Checks, error, warn};
use crate::core::View;

impl View {
    pub(super) fn insecure_keys(&self, out: &mut Checks) {
        let ciphers = self.state.auth.ciphers();
        if ciphers.service().is_insecure() {
            // Not the tickets here, but their session keys, also those of entities with keys of the
            // stronger type.
            let summary = "Monitors are configured to issue insecure service tickets".to_owned();
            out.insert("AUTH_INSECURE_SERVICE_TICKETS", error(summary, 1, Vec::new()));
        }
        if ciphers.preferred().is_insecure() {
            return;
        }
        let (clients, services): (Vec<_>, Vec<_>) = self
            .state
            .auth
            .entities()
            .iter()
            // Monitors do not log in with theirs: they prove it to each other with a MAC.
            .filter(|(name, e)| e.key.kind().is_insecure() && **name != AuthName::monitors())
            .partition(|(name, _)| name.kind == EntityType::CLIENT);
        if let Some(check) = entities("client", &clients) {
            out.insert("AUTH_INSECURE_CLIENT_KEY_TYPE", check);
        }
        if let Some(check) = entities("service", &services) {
            out.insert("AUTH_INSECURE_SERVICE_KEY_TYPE", check);
        }
        let allowed: Vec<KeyType> = ciphers
            .allowed()
            .iter()
            .copied()
            .filter(|k| k.is_insecure())
            .collect();
        if !allowed.is_empty() {
            let detail = allowed
                .iter()
                .map(|k| format!("insecure cipher {k} allowed for auth"));
            let summary = "Monitors are configured to allow auth using insecure key types".to_owned();
            out.insert("AUTH_INSECURE_KEYS_ALLOWED", warn(summary, 1, detail.collect()));
            if self.values.flag("mon_auth_allow_insecure_key") {
                let summary = "Monitors are configured to allow creation of insecure key types".to_owned();
                out.insert("AUTH_INSECURE_KEYS_CREATABLE", warn(summary, 1, Vec::new()));
            }
        }
        if let Some(check) = self.insecure_secrets() {
            out.insert("AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE", check);
        }
    }

    /// Secrets from before the services' type was changed, until they have rotated away.
    fn insecure_secrets(&self) -> Option<Check> {
        let mut detail = Vec::new();
        for (service, secrets) in self.state.auth.service_secrets().iter() {
            let kinds = secrets.secrets.values().map(|s| s.key.kind());
            if let Some(kind) = kinds.min().filter(|k| k.is_insecure()) {
                let service = service.name();
                detail.push(format!(
                    "rotating service keys for {service} using insecure key type: {kind}"
                ));
            }
        }
        let n = detail.len();
        let summary = format!("{n} rotating auth service keys using insecure key types");
        (n > 0).then(|| warn(summary, n, detail))
    }
}

fn entities(what: &str, found: &[(&AuthName, &EntityAuth)]) -> Option<Check> {
    let line = |(name, e): &(&AuthName, &EntityAuth)| {
        format!("entity {name} using insecure key type: {}", e.key.kind())
    };
    let summary = format!("{} auth {what} entities with insecure key types", found.len());
    (!found.is_empty()).then(|| warn(summary, found.len(), found.iter().map(line).collect()))
}
