//! Small replicated services: values by key, each in a version of its own encoding.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, encode_to_vec};

use super::state::{Service, Source};
use super::stored;
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

/// A value that a service keeps.
pub(crate) trait Kept: Encode + Decode {
    /// The service's name in the store.
    const SERVICE: &'static str;
    /// The name of a value in errors.
    const WHAT: &'static str;
}

/// The committed values of a service.
#[derive(Debug)]
pub(crate) struct Keyed<V>(BTreeMap<String, V>);

impl<V> Default for Keyed<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: Kept> Service for Keyed<V> {
    const NAMES: &'static [&'static str] = &[V::SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        Self::read(from.kv.as_ref())
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        match value {
            Some(v) => self.0.insert(key.to_owned(), stored(V::WHAT, v)?),
            None => self.0.remove(key),
        };
        Ok(())
    }
}

impl<V: Kept> Keyed<V> {
    /// The values in a store.
    pub(crate) fn read(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let mut all = Self::default();
        for (k, v) in kv.scan(V::SERVICE)? {
            all.apply(V::SERVICE, &k, Some(&v))?;
        }
        Ok(all)
    }

    pub(crate) fn set(key: &str, value: &V, txn: &mut Txn) {
        txn.put(V::SERVICE, key, encode_to_vec(value));
    }

    pub(crate) fn remove(key: &str, txn: &mut Txn) {
        txn.remove(V::SERVICE, key);
    }

    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.0.iter()
    }
}
