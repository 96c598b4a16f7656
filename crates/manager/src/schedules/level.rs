//! The level of a schedule: everything, a pool, a namespace in it, or an image.

use spirula_maps::PoolId;

use crate::failure::Failure;

/// The names in a level, as users write it: ``, `POOL/`, `POOL/NAMESPACE/`,
/// `POOL/[NAMESPACE/]IMAGE`, `POOL//IMAGE`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LevelNames<'a> {
    pub(crate) pool: Option<&'a str>,
    /// `Some("")` for the namespace without a name.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) image: Option<&'a str>,
}

impl<'a> LevelNames<'a> {
    /// Parses a user's text.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Failure> {
        let broken = || Failure::Value(format!("failed to parse {text}"));
        if text.is_empty() {
            return Ok(Self::default());
        }
        let (pool, rest) = text
            .split_once('/')
            .filter(|(p, _)| !p.is_empty())
            .ok_or_else(broken)?;
        let (namespace, image) = match rest.split_once('/') {
            Some((namespace, image)) => (Some(namespace), image),
            None => (None, rest),
        };
        if image.contains(['/', '@']) {
            return Err(broken());
        }
        let image = Some(image).filter(|i| !i.is_empty());
        Ok(Self {
            pool: Some(pool),
            namespace: namespace.or(image.map(|_| "")),
            image,
        })
    }

    /// Parses the key under which a schedule is stored: a level with ids of pool and image.
    pub(crate) fn parse_key(key: &'a str) -> Option<(PoolId, Self)> {
        let mut parts = key.splitn(3, '/');
        let pool = parts
            .next()
            .filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?;
        let (namespace, image) = (parts.next(), parts.next());
        if image.is_some_and(|i| i.is_empty() || i.contains(['/', '@'])) {
            return None;
        }
        let names = Self {
            pool: Some(pool),
            namespace,
            image,
        };
        Some((pool.parse().ok()?, names))
    }
}

/// Whether a key belongs to a pool, or to something in it.
pub(crate) fn is_in_pool(key: &str, pool: PoolId) -> bool {
    let rest = key.strip_prefix(&pool.to_string());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A level of existing pools and images, by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Level {
    /// The level in listings.
    pub(crate) name: String,
    pub(crate) pool: Option<PoolId>,
    pub(crate) namespace: Option<String>,
    pub(crate) image: Option<String>,
}

impl Level {
    /// A whole pool.
    pub(crate) fn of_pool(pool: PoolId, name: &str) -> Self {
        Self {
            name: format!("{name}/"),
            pool: Some(pool),
            ..Self::default()
        }
    }

    /// The key under which its schedule is stored.
    pub(crate) fn key(&self) -> String {
        key(self.pool, self.namespace.as_deref(), self.image.as_deref())
    }

    pub(crate) fn is_global(&self) -> bool {
        self.pool.is_none()
    }

    /// Whether it is part of another level, or equal to it.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        if other.is_global() {
            return !self.is_global();
        }
        if other.pool != self.pool {
            return false;
        }
        match (&other.namespace, &other.image) {
            (None, _) => self.namespace.is_some(),
            (theirs, _) if *theirs != self.namespace => false,
            (_, None) => self.image.is_some(),
            _ => false,
        }
    }

    /// Whether it covers this place. The default namespace stands for all namespaces, as in Ceph.
    pub(crate) fn covers(&self, pool: PoolId, namespace: &str, image: Option<&str>) -> bool {
        let named = |n: &&String| !n.is_empty();
        self.pool.is_none_or(|p| p == pool)
            && self
                .namespace
                .as_ref()
                .filter(named)
                .is_none_or(|n| n == namespace)
            && self
                .image
                .as_ref()
                .filter(named)
                .is_none_or(|i| Some(i.as_str()) == image)
    }

    /// Whether the two levels overlap.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        fn may_be<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> Option<bool> {
            match (a, b) {
                (Some(a), Some(b)) => (a != b).then_some(false),
                _ => Some(true),
            }
        }
        may_be(&self.pool, &other.pool)
            .or_else(|| may_be(&self.namespace, &other.namespace))
            .or_else(|| may_be(&self.image, &other.image))
            .unwrap_or(true)
    }
}

/// The key of a place: ids with slashes between.
pub(crate) fn key(pool: Option<PoolId>, namespace: Option<&str>, image: Option<&str>) -> String {
    let pool = pool.map(|p| p.to_string());
    let parts = [pool.as_deref(), namespace, image];
    parts.into_iter().map_while(|p| p).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(pool: Option<PoolId>, namespace: Option<&str>, image: Option<&str>) -> Level {
        Level {
            name: String::new(),
            pool,
            namespace: namespace.map(str::to_owned),
            image: image.map(str::to_owned),
        }
    }

    #[test]
    fn levels_are_named_as_in_ceph() {
        let of = |text| LevelNames::parse(text).map(|l| (l.pool, l.namespace, l.image));
        assert_eq!(of(""), Ok((None, None, None)));
        assert_eq!(of("p/"), Ok((Some("p"), None, None)));
        assert_eq!(of("p//"), Ok((Some("p"), Some(""), None)));
        assert_eq!(of("p/n/"), Ok((Some("p"), Some("n"), None)));
        assert_eq!(of("p/i"), Ok((Some("p"), Some(""), Some("i"))));
        assert_eq!(of("p//i"), Ok((Some("p"), Some(""), Some("i"))));
        assert_eq!(of("p/n/i"), Ok((Some("p"), Some("n"), Some("i"))));
        for text in ["p", "/", "/p", "p/n/i/x", "p/i@s"] {
            let want = Failure::Value(format!("failed to parse {text}"));
            assert_eq!(of(text), Err(want));
        }
        let key_of = |text| LevelNames::parse_key(text).map(|(id, l)| (id, l.namespace, l.image));
        assert_eq!(key_of("12"), Some((PoolId::new(12), None, None)));
        assert_eq!(key_of("12//ab"), Some((PoolId::new(12), Some(""), Some("ab"))));
        assert_eq!(key_of("12/n"), Some((PoolId::new(12), Some("n"), None)));
        for text in ["", "x", "/n", "1/n/", "1/n/a/b"] {
            assert_eq!(key_of(text), None, "{text}");
        }
    }

    #[test]
    fn levels_contain_and_meet_each_other() {
        let (global, pool) = (Level::default(), Level::of_pool(PoolId::new(1), "p"));
        let (space, image) = (
            level(Some(PoolId::new(1)), Some("n"), None),
            level(Some(PoolId::new(1)), Some("n"), Some("i")),
        );
        assert!(pool.is_within(&global) && space.is_within(&pool) && image.is_within(&space));
        assert!(image.is_within(&pool) && !pool.is_within(&space) && !image.is_within(&image));
        assert!(!level(Some(PoolId::new(2)), None, None).is_within(&pool));
        assert!(global.meets(&image) && image.meets(&pool) && space.meets(&image));
        assert!(
            !image.meets(&level(Some(PoolId::new(1)), Some("m"), None))
                && !pool.meets(&level(Some(PoolId::new(2)), None, None))
        );
        assert!(
            pool.covers(PoolId::new(1), "x", None)
                && !space.covers(PoolId::new(1), "x", None)
                && image.covers(PoolId::new(1), "n", Some("i"))
        );
        assert_eq!(
            (global.key(), pool.key(), image.key()),
            ("".into(), "1".into(), "1/n/i".into())
        );
    }
}
