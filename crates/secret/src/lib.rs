//! One rule for what is secret: it is wiped when dropped, and wherever it would be printed
//! (`Debug`, logs, histories of commands) stands [`HIDDEN`].
//!
//! A type with a secret holds it as [`Secret`] and derives `Debug`. Where the secret is one value
//! among others, as an option of a configuration file or an argument of a command, [`Named`] and
//! [`HIDDEN`] take its place.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// What stands in place of a secret.
pub const HIDDEN: &str = "…";

/// Options that hold a secret (`src/common/options/global.yaml.in`), by name. Which arguments of a
/// command are secret depends on the command: their list is with the monitors' audit log.
const OPTIONS: [&str; 1] = ["key"];

/// A secret.
#[derive(Clone, Default)]
pub struct Secret<T: Zeroize>(Zeroizing<T>);

impl<T: Zeroize> From<T> for Secret<T> {
    fn from(secret: T) -> Self {
        Self(Zeroizing::new(secret))
    }
}

impl<T: Zeroize> From<Zeroizing<T>> for Secret<T> {
    fn from(secret: Zeroizing<T>) -> Self {
        Self(secret)
    }
}

impl<T: Zeroize> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// In a time that does not tell where they differ.
impl<T: Zeroize + AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl<T: Zeroize + AsRef<[u8]>> Eq for Secret<T> {}

/// Values by their names, for `Debug`: without those of options that hold a secret.
pub struct Named<'a, M>(pub &'a M);

impl<'a, M, K, V> fmt::Debug for Named<'a, M>
where
    &'a M: IntoIterator<Item = (K, V)>,
    K: Borrow<String> + fmt::Debug,
    V: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.0 {
            map.key(&name);
            match OPTIONS.contains(&name.borrow().as_str()) {
                true => map.value(&format_args!("{HIDDEN}")),
                false => map.value(&value),
            };
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "printed")]
        struct Key {
            bytes: Secret<Vec<u8>>,
        }
        let key = Key {
            bytes: vec![1, 2, 3].into(),
        };
        assert_eq!(format!("{key:?}"), "Key { bytes: … }");
        let same = [Secret::from(vec![1u8]), vec![1].into(), vec![2].into()];
        assert!(same[0] == same[1] && same[0] != same[2]);
    }

    #[test]
    fn of_options_only_the_secret_one_is_hidden() {
        let options: BTreeMap<String, String> = [("key", "AQB=="), ("keyring", "/etc/k")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let shown = format!("{:?}", Named(&options));
        assert_eq!(shown, r#"{"key": …, "keyring": "/etc/k"}"#);
    }
}
