//! Images as users name them.

use crate::failure::Failure;

/// `[POOL/[NAMESPACE/]]IMAGE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    pub(crate) pool: String,
    pub(crate) namespace: String,
    /// The image's name; its id in the trash.
    pub(crate) image: String,
}

impl ImageSpec {
    /// Parses a specification. `default_pool` applies if it names none.
    pub(crate) fn parse(text: &str, default_pool: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = text.split('/').collect();
        let (pool, namespace, image) = match *parts.as_slice() {
            [image] => (default_pool, "", image),
            [pool, image] => (pool, "", image),
            [pool, namespace, image] if !namespace.is_empty() => (pool, namespace, image),
            _ => ("", "", ""),
        };
        if pool.is_empty() || image.is_empty() || image.contains('@') {
            return Err(Failure::Value(format!("Invalid image spec: {text}")));
        }
        Ok(Self {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            image: image.to_owned(),
        })
    }
}

impl std::fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_with_or_without_pool_and_namespace() {
        for (text, shown) in [
            ("i", "rbd/i"),
            ("p/i", "p/i"),
            ("p/n/i", "p/n/i"),
            ("p@q/i", "p@q/i"),
        ] {
            assert_eq!(ImageSpec::parse(text, "rbd").unwrap().to_string(), shown);
        }
        for text in ["", "p/", "/i", "p//i", "p/n/i/x", "p/i@s", "p/n/"] {
            let want = Failure::Value(format!("Invalid image spec: {text}"));
            assert_eq!(ImageSpec::parse(text, "rbd"), Err(want));
        }
    }
}
