//! Specifications of images: `[<pool>/[<namespace>/]]<image>[@<snap>]`.

/// Names in a specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Spec {
    pub(super) pool: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) image: String,
    pub(super) snap: Option<String>,
}

impl Spec {
    /// Parses a specification; `None` for other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (path, snap) = match text.split_once('@') {
            Some((path, snap)) => (path, Some(snap.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (None, None, image),
            [pool, image] => (Some(pool), None, image),
            [pool, namespace, image] => (Some(pool), Some(namespace), image),
            _ => return None,
        };
        let is_empty = |part: &Option<String>| part.as_ref().is_some_and(|p| p.is_empty());
        let spec = Self {
            pool: pool.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            image: image.to_owned(),
            snap,
        };
        let is_good = !spec.image.is_empty()
            && ![&spec.pool, &spec.snap].into_iter().any(is_empty)
            && spec.snap.as_ref().is_none_or(|s| !s.contains(['@', '/']));
        is_good.then_some(spec)
    }

    /// Takes the pool, namespace and snapshot that the specification lacks from the options.
    pub(super) fn or(self, pool: &Option<String>, namespace: &Option<String>, snap: &Option<String>) -> Self {
        let or = |own: Option<String>, other: &Option<String>| own.or_else(|| other.clone());
        Self {
            namespace: match &self.pool {
                Some(_) => or(self.namespace, namespace),
                None => namespace.clone(),
            },
            pool: or(self.pool, pool),
            snap: or(self.snap, snap),
            image: self.image,
        }
    }

    /// The name of an image with its pool and namespace.
    pub(super) fn name(pool: &str, namespace: &str, image: &str) -> String {
        match namespace.is_empty() {
            true => format!("{pool}/{image}"),
            false => format!("{pool}/{namespace}/{image}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_name_pools_namespaces_images_and_snapshots() {
        let spec = Spec::parse("p/n/i@s").unwrap();
        assert_eq!(spec.pool.as_deref(), Some("p"));
        assert_eq!(spec.namespace.as_deref(), Some("n"));
        assert_eq!((spec.image.as_str(), spec.snap.as_deref()), ("i", Some("s")));
        let plain = Spec::parse("i").unwrap();
        assert_eq!((plain.pool, plain.snap), (None, None));
        for bad in ["", "/i", "p/", "i@", "a/b/c/d", "i@s/t", "i@s@t"] {
            assert_eq!(Spec::parse(bad), None, "{bad}");
        }
    }
}
