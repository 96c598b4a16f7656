//! The connection modes that are offered and accepted: the six `ms_*_mode` options.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use spirula_denc::EntityType;

use crate::config::ConMode;

/// The modes that the options name, each list in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeLists {
    /// `ms_cluster_mode`: OSDs and managers among each other, and towards monitors.
    pub cluster: Vec<ConMode>,
    /// `ms_service_mode`: the modes that OSDs and managers accept from clients.
    pub service: Vec<ConMode>,
    /// `ms_client_mode`: the modes that clients ask OSDs and managers for.
    pub client: Vec<ConMode>,
    /// `ms_mon_cluster_mode`: among monitors.
    pub mon_cluster: Vec<ConMode>,
    /// `ms_mon_service_mode`: the modes that monitors accept from all others.
    pub mon_service: Vec<ConMode>,
    /// `ms_mon_client_mode`: the modes that clients ask monitors for.
    pub mon_client: Vec<ConMode>,
}

impl Default for ModeLists {
    /// Ceph's defaults: monitors prefer secure mode, all others crc.
    fn default() -> Self {
        let crc = vec![ConMode::CRC, ConMode::SECURE];
        let secure = vec![ConMode::SECURE, ConMode::CRC];
        Self {
            cluster: crc.clone(),
            service: crc.clone(),
            client: crc,
            mon_cluster: secure.clone(),
            mon_service: secure.clone(),
            mon_client: secure,
        }
    }
}

impl ModeLists {
    /// The same modes everywhere.
    pub fn only(modes: &[ConMode]) -> Self {
        let mut lists = Self::default();
        for (_, list) in lists.by_option() {
            *list = modes.to_vec();
        }
        lists
    }

    /// The modes of the options. `get` returns an option's text, `None` if it is not set.
    ///
    /// # Errors
    /// The name and the text of an option that is no list of modes.
    pub fn from_options(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut lists = Self::default();
        for (option, list) in lists.by_option() {
            if let Some(text) = get(option) {
                *list = ConMode::parse_list(&text)
                    .ok_or_else(|| format!("{option} = {text}: not a list of crc and secure"))?;
            }
        }
        Ok(lists)
    }

    fn by_option(&mut self) -> [(&'static str, &mut Vec<ConMode>); 6] {
        [
            ("ms_cluster_mode", &mut self.cluster),
            ("ms_service_mode", &mut self.service),
            ("ms_client_mode", &mut self.client),
            ("ms_mon_cluster_mode", &mut self.mon_cluster),
            ("ms_mon_service_mode", &mut self.mon_service),
            ("ms_mon_client_mode", &mut self.mon_client),
        ]
    }

    /// The modes of connections between an entity of type `own` and one of type `peer`, whichever
    /// dials (`AuthRegistry` of Ceph).
    pub fn between(&self, own: EntityType, peer: EntityType) -> &[ConMode] {
        let is_daemon = [EntityType::MON, EntityType::MGR, EntityType::MDS, EntityType::OSD].contains(&peer);
        match (own, peer) {
            (EntityType::CLIENT, EntityType::MON) => &self.mon_client,
            (EntityType::CLIENT, _) => &self.client,
            (EntityType::MON, EntityType::MON) => &self.mon_cluster,
            (EntityType::MON, _) => &self.mon_service,
            _ if is_daemon => &self.cluster,
            _ => &self.service,
        }
    }
}

/// A connection in use, as seen by [`Modes`].
pub(crate) trait InMode {
    /// Ends the connection unless these modes allow it.
    fn end_unless(&self, lists: &ModeLists);
}

#[derive(Default)]
struct State {
    lists: ModeLists,
    connections: Vec<Weak<dyn InMode>>,
    /// The number of connections at which ended ones are next removed.
    prune_at: usize,
}

/// The modes of an endpoint, which may change while it runs: clones share them. Connections in a
/// mode that is not allowed any more end.
#[derive(Clone, Default)]
pub struct Modes(Rc<RefCell<State>>);

impl From<ModeLists> for Modes {
    fn from(lists: ModeLists) -> Self {
        let modes = Self::default();
        modes.0.borrow_mut().lists = lists;
        modes
    }
}

impl Modes {
    /// The modes between entities of these types, in order of preference.
    pub fn between(&self, own: EntityType, peer: EntityType) -> Vec<ConMode> {
        self.0.borrow().lists.between(own, peer).to_vec()
    }

    /// Changes the modes.
    pub fn set(&self, lists: ModeLists) {
        let connections = {
            let mut state = self.0.borrow_mut();
            if state.lists == lists {
                return; // Nothing changes.
            }
            state.lists = lists.clone();
            state.connections.clone()
        };
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.end_unless(&lists);
        }
    }

    /// Follows a new connection for as long as it lives.
    pub(crate) fn follow(&self, connection: Weak<dyn InMode>) {
        let mut state = self.0.borrow_mut();
        if state.connections.len() >= state.prune_at {
            state.connections.retain(|c| c.strong_count() > 0);
            state.prune_at = 64.max(state.connections.len() * 2);
        }
        state.connections.push(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `AuthRegistry::get_supported_methods` of Ceph 16.2 has it.
    #[test]
    fn each_pair_of_types_has_its_option() {
        let mut lists = ModeLists::only(&[ConMode::CRC]);
        let (mon, osd, mgr, client) = (
            EntityType::MON,
            EntityType::OSD,
            EntityType::MGR,
            EntityType::CLIENT,
        );
        let all = [mon, osd, mgr, client].map(|a| [mon, osd, mgr, client].map(|b| (a, b)));
        let secured = |lists: &ModeLists| -> Vec<String> {
            let secure = |(a, b): &&(EntityType, EntityType)| lists.between(*a, *b) == [ConMode::SECURE];
            all.iter()
                .flatten()
                .filter(secure)
                .map(|(a, b)| format!("{}-{}", a.name(), b.name()))
                .collect()
        };
        assert!(secured(&lists).is_empty());
        for (option, pairs) in [
            (
                "ms_cluster_mode",
                "osd-mon osd-osd osd-mgr mgr-mon mgr-osd mgr-mgr",
            ),
            ("ms_service_mode", "osd-client mgr-client"),
            ("ms_client_mode", "client-osd client-mgr client-client"),
            ("ms_mon_cluster_mode", "mon-mon"),
            ("ms_mon_service_mode", "mon-osd mon-mgr mon-client"),
            ("ms_mon_client_mode", "client-mon"),
        ] {
            let get = |name: &str| Some(if name == option { "secure" } else { "crc" }.to_owned());
            lists = ModeLists::from_options(get).unwrap();
            assert_eq!(secured(&lists).join(" "), pairs, "{option}");
        }
        assert_eq!(ModeLists::from_options(|_| None), Ok(ModeLists::default()));
        assert!(ModeLists::from_options(|_| Some("secur".to_owned())).is_err());
    }
}
