//! Names of users.

use bytes::Bytes;

/// A user (`rgw_user` of Ceph's `src/rgw/rgw_basic_types.h`), as text `ID`, `TENANT$ID` or
/// `TENANT$NAMESPACE$ID`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct User {
    tenant: Bytes,
    namespace: Bytes,
    id: Bytes,
}

impl User {
    pub(super) fn parse(text: &Bytes) -> Self {
        let cut = |text: &Bytes| {
            let at = text.iter().position(|b| *b == b'$')?;
            Some((text.slice(..at), text.slice(at + 1..)))
        };
        let Some((tenant, rest)) = cut(text) else {
            return Self {
                id: text.clone(),
                ..Self::default()
            };
        };
        let (namespace, id) = cut(&rest).unwrap_or((Bytes::new(), rest));
        Self {
            tenant,
            namespace,
            id,
        }
    }

    /// Whether it is no user.
    pub(super) fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Its text, the shortest there is.
    pub(super) fn to_bytes(&self) -> Bytes {
        match (self.tenant.is_empty(), self.namespace.is_empty()) {
            (true, true) => self.id.clone(),
            (false, true) => [&self.tenant[..], &self.id].join(&b'$').into(),
            (_, false) => [&self.tenant[..], &self.namespace, &self.id].join(&b'$').into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_their_shortest_form() {
        for (text, short) in [
            ("", ""),
            ("id", "id"),
            ("$id", "id"),
            ("$$id", "id"),
            ("t$id", "t$id"),
            ("t$$id", "t$id"),
            ("$ns$id", "$ns$id"),
            ("t$ns$id", "t$ns$id"),
            ("t$ns$i$d", "t$ns$i$d"),
            ("t$", "t$"),
        ] {
            let user = User::parse(&text.into());
            assert_eq!(user.to_bytes(), short);
            assert_eq!(user.is_empty(), short.is_empty() || short.ends_with('$'));
        }
    }
}
