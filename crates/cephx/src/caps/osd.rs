//! Capabilities at the OSDs (`OSDCap` of Ceph's `src/osd/OSDCap.cc`).
//!
//! ```text
//! caps    := grant *([,;] grant)
//! grant   := "allow" spec match [network CIDR] | "allow" match spec [network CIDR]
//!          | "profile" NAME [pool=P] [namespace=N] [network CIDR]
//! match   := [namespace=N] tag APP KEY=VALUE | [pool=P] [namespace=N] [object_prefix X]
//! spec    := "*" | "all" | [r][w][x] [class-read] [class-write] | class NAME [METHOD]
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use spirula_denc::flags;

use super::CapsError;
use super::cursor::{Cursor, grants, is_c_space};
use super::network::Network;

/// A pool's applications with their keys and values, as the OSDMap has them.
pub type ApplicationMetadata = BTreeMap<String, BTreeMap<String, String>>;

flags! {
    /// The rights of a grant.
    struct Rights(u8), joined " " {
        /// Read.
        R = 1, "r";
        /// Write.
        W = 2, "w";
        /// Call class methods that read.
        CLASS_R = 3, "class-read";
        /// Call class methods that write.
        CLASS_W = 4, "class-write";
    }
}

impl Rights {
    /// `x`.
    const X: Self = Self::CLASS_R.with(Self::CLASS_W);
    /// `*`.
    const ANY: Self = Self(0xff);
}

/// A call of an object class's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCall<'a> {
    /// The class.
    pub class: &'a str,
    /// The method.
    pub method: &'a str,
    /// Whether the method reads.
    pub read: bool,
    /// Whether the method writes.
    pub write: bool,
    /// Whether `x`, `class-read` and `class-write` cover the class (`osd_class_default_list`, by
    /// default all).
    pub default_allowed: bool,
}

/// A request on an object that needs permission.
#[derive(Debug, Clone, Copy)]
pub struct OsdRequest<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The object's namespace.
    pub namespace: &'a [u8],
    /// The applications of the pool.
    pub application: &'a ApplicationMetadata,
    /// The locator key where the object has one, else the object's name; empty for operations on a
    /// whole PG.
    pub object: &'a [u8],
    /// Whether the request reads, other than in class methods.
    pub read: bool,
    /// Whether the request writes, other than in class methods.
    pub write: bool,
    /// The class methods that the request calls.
    pub classes: &'a [ClassCall<'a>],
    /// The address from which it comes.
    pub addr: Option<IpAddr>,
}

/// The text of a name, or of its beginning if the text ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(String);

impl Pattern {
    fn matches(&self, name: &[u8]) -> bool {
        let text = self.0.as_bytes();
        match text.strip_suffix(b"*") {
            Some(prefix) if name.starts_with(prefix) => true,
            _ => text == name,
        }
    }
}

/// A key and a value of an application, `*` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

impl Tag {
    fn matches(&self, metadata: &ApplicationMetadata) -> bool {
        let Some(pairs) = metadata.get(&self.application) else {
            return false;
        };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", value) => pairs.values().any(|v| v == value),
            (key, value) => pairs.get(key).is_some_and(|v| value == "*" || v == value),
        }
    }
}

/// The objects of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Scope {
    pool: Option<String>,
    namespace: Option<Pattern>,
    /// Boxed, as few have one: a short text may hold many scopes.
    tag: Option<Box<Tag>>,
    object_prefix: Option<Cow<'static, str>>,
}

impl Scope {
    fn matches(&self, req: &OsdRequest<'_>) -> bool {
        self.pool.as_ref().is_none_or(|p| p == req.pool)
            && self.namespace.as_ref().is_none_or(|n| n.matches(req.namespace))
            && self.tag.as_ref().is_none_or(|t| t.matches(req.application))
            && self
                .object_prefix
                .as_ref()
                .is_none_or(|p| req.object.starts_with(p.as_bytes()))
    }
}

/// The permissions of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spec {
    Rights(Rights),
    Class {
        class: Cow<'static, str>,
        method: Option<Cow<'static, str>>,
    },
}

impl Spec {
    fn rights(&self) -> Rights {
        match self {
            Self::Rights(rights) => *rights,
            Self::Class { .. } => Rights::empty(),
        }
    }

    fn allows_call(&self, call: &ClassCall<'_>) -> bool {
        match self {
            Self::Rights(rights) => {
                let read = !call.read || rights.contains(Rights::CLASS_R);
                let write = !call.write || rights.contains(Rights::CLASS_W);
                call.default_allowed && read && write
            }
            Self::Class { class, method } => {
                // A call that neither reads nor writes takes no right beyond the default list.
                let harmless = call.default_allowed && !call.read && !call.write;
                harmless || (class == call.class && method.as_ref().is_none_or(|m| m == call.method))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    /// Its rules; a profile has several.
    rules: Vec<(Scope, Spec)>,
    network: Option<Network>,
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        let all =
            |(scope, spec): &(Scope, Spec)| *scope == Scope::default() && *spec == Spec::Rights(Rights::ANY);
        self.network.is_none() && self.rules.iter().any(all)
    }
}

/// Whether one rule allows the request, together with the class calls that earlier ones allowed.
fn allows(scope: &Scope, spec: &Spec, req: &OsdRequest<'_>, calls_allowed: &mut [bool]) -> bool {
    let rights = spec.rights();
    let read = !req.read || rights.contains(Rights::R);
    let write = !req.write || rights.contains(Rights::W);
    if !read || !write || !scope.matches(req) {
        return false;
    }
    if rights == Rights::ANY {
        return true;
    }
    for (call, allowed) in req.classes.iter().zip(calls_allowed.iter_mut()) {
        *allowed |= spec.allows_call(call);
    }
    calls_allowed.iter().all(|a| *a)
}

/// An entity's capabilities at the OSDs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdCap {
    grants: Vec<Grant>,
    /// Spares requests of the usual administrator and daemon the walk through the grants.
    allow_all: bool,
}

impl OsdCap {
    /// Parses capability text.
    ///
    /// # Errors
    /// [`CapsError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        let grants = grants("osd", text, |_| false, is_c_space, grant)?;
        Ok(Self {
            allow_all: grants.iter().any(Grant::is_allow_all),
            grants,
        })
    }

    /// Whether some grant is limited to a network.
    pub fn is_bound_to_networks(&self) -> bool {
        self.grants.iter().any(|g| g.network.is_some())
    }

    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Whether everything is allowed, from everywhere.
    pub fn is_allow_all(&self) -> bool {
        self.allow_all
    }

    /// Whether some grant allows writing in all pools, or in just this one (to any of its objects).
    /// Grants by application tag or network don't count. Managing a pool's snapshots needs this
    /// beside monitor capabilities.
    pub fn may_write_in(&self, pool: Option<&str>) -> bool {
        self.grants
            .iter()
            .flat_map(|g| &g.rules)
            .filter(|(_, spec)| spec.rights().contains(Rights::W))
            .any(|(scope, _)| *scope == Scope::default() || (pool.is_some() && scope.pool.as_deref() == pool))
    }

    /// Whether the request is allowed. One grant must allow the read, one the write, and one each
    /// class call; different calls of a request may be allowed by different grants.
    pub fn is_capable(&self, req: &OsdRequest<'_>) -> bool {
        if self.allow_all {
            return true;
        }
        let mut calls_allowed = vec![false; req.classes.len()];
        self.grants
            .iter()
            .filter(|g| g.network.as_ref().is_none_or(|n| n.contains(req.addr)))
            .flat_map(|g| &g.rules)
            .any(|(scope, spec)| allows(scope, spec, req, &mut calls_allowed))
    }
}

fn grant(c: &mut Cursor<'_>) -> Option<Grant> {
    let blank = |x| x == ' ' || x == '\t';
    c.take_while(blank);
    let spec_first = |c: &mut Cursor<'_>| {
        c.literal("allow")?;
        let spec = spec(c)?;
        Some(vec![(scope(c), spec)])
    };
    let scope_first = |c: &mut Cursor<'_>| {
        c.literal("allow")?;
        let scope = scope(c);
        Some(vec![(scope, spec(c)?)])
    };
    let rules = c
        .attempt(spec_first)
        .or_else(|| c.attempt(scope_first))
        .or_else(|| c.attempt(profile))?;
    let network = c.network(is_c_space);
    c.take_while(blank);
    Some(Grant { rules, network })
}

fn spec(c: &mut Cursor<'_>) -> Option<Spec> {
    if let Some(rights) = rwx(c) {
        return Some(Spec::Rights(rights));
    }
    let class = named(c, "class", false, Cursor::string)?.into();
    let method = c.attempt(|c| c.some(is_c_space).and_then(|_| c.string()));
    let method = method.map(Cow::from);
    Some(Spec::Class { class, method })
}

fn rwx(c: &mut Cursor<'_>) -> Option<Rights> {
    let all = c.attempt(|c| {
        c.some(is_c_space)?;
        c.literal("*").or_else(|| c.literal("all"))
    });
    if all.is_some() {
        return Some(Rights::ANY);
    }
    let flags = |c: &mut Cursor<'_>, flags: &[(&str, Rights)]| {
        let found = flags.iter().filter(|(word, _)| c.literal(word).is_some());
        Some(found.fold(Rights::empty(), |acc, (_, right)| acc.with(*right))).filter(|r| !r.is_empty())
    };
    let letters = c.attempt(|c| {
        c.some(is_c_space)?;
        flags(c, &[("r", Rights::R), ("w", Rights::W), ("x", Rights::X)])
    });
    let mut word =
        |word, right| c.attempt(|c| c.some(is_c_space).and_then(|_| c.literal(word)).map(|()| right));
    let class_read = word("class-read", Rights::CLASS_R);
    let class_write = word("class-write", Rights::CLASS_W);
    [letters, class_read, class_write]
        .into_iter()
        .flatten()
        .reduce(Rights::with)
}

/// ` KEYWORD VALUE`, also with `=` before the value.
fn named<'a>(
    c: &mut Cursor<'a>,
    keyword: &str,
    with_equals: bool,
    value: impl FnOnce(&mut Cursor<'a>) -> Option<String>,
) -> Option<String> {
    c.attempt(|c| {
        c.some(is_c_space)?;
        c.literal(keyword)?;
        if with_equals {
            c.equals_or(is_c_space)?
        } else {
            c.some(is_c_space).map(drop)?
        }
        value(c)
    })
}

fn pool(c: &mut Cursor<'_>) -> Option<String> {
    named(c, "pool", true, Cursor::string)
}

fn namespace(c: &mut Cursor<'_>) -> Option<Pattern> {
    let text = named(c, "namespace", true, |c| {
        let mut text = c.string_or_empty()?;
        if c.literal("*").is_some() {
            text.push('*');
        }
        Some(text)
    })?;
    Some(Pattern(text))
}

fn tag(c: &mut Cursor<'_>) -> Option<Tag> {
    let word = |c: &mut Cursor<'_>| {
        let wildcard = c.literal("*").or_else(|| c.literal("all"));
        wildcard.map(|()| "*".to_owned()).or_else(|| c.string())
    };
    c.attempt(|c| {
        let application = named(c, "tag", false, Cursor::string)?;
        c.some(is_c_space)?;
        let key = word(c)?;
        c.take_while(is_c_space);
        c.literal("=")?;
        c.take_while(is_c_space);
        Some(Tag {
            application,
            key,
            value: word(c)?,
        })
    })
}

/// Parses a scope; an empty one covers every object.
fn scope(c: &mut Cursor<'_>) -> Scope {
    let tagged = c.attempt(|c| {
        let namespace = namespace(c);
        Some(Scope {
            namespace,
            tag: Some(Box::new(tag(c)?)),
            ..Scope::default()
        })
    });
    tagged.unwrap_or_else(|| Scope {
        pool: pool(c),
        namespace: namespace(c),
        tag: None,
        object_prefix: named(c, "object_prefix", false, Cursor::string).map(Cow::from),
    })
}

fn profile(c: &mut Cursor<'_>) -> Option<Vec<(Scope, Spec)>> {
    let (name, scope) = named_profile(c)?;
    Some(expand(&name, &scope))
}

/// Parses the name of a profile and its scope.
fn named_profile(c: &mut Cursor<'_>) -> Option<(String, Scope)> {
    c.literal("profile")?;
    c.equals_or(is_c_space)?;
    let name = c.string()?;
    let pool = pool(c);
    let namespace = namespace(c);
    let scope = Scope {
        pool,
        namespace,
        ..Scope::default()
    };
    Some((name, scope))
}

/// Whether the text is nothing but profiles for images: `profile rbd…`, several.
pub(super) fn is_rbd_profiles(text: &str) -> bool {
    let rbd = |c: &mut Cursor<'_>| {
        c.take_while(is_c_space);
        let (name, _) = named_profile(c)?;
        c.network(is_c_space);
        c.take_while(is_c_space);
        name.starts_with("rbd").then_some(())
    };
    grants("osd", text, |_| false, is_c_space, rbd).is_ok()
}

/// The rules of a profile. An unknown profile allows nothing.
fn expand(profile: &str, scope: &Scope) -> Vec<(Scope, Spec)> {
    let prefixed = |scope: &Scope, prefix: &'static str| Scope {
        object_prefix: Some(prefix.into()),
        ..scope.clone()
    };
    let method = |method: &'static str| Spec::Class {
        class: "rbd".into(),
        method: Some(method.into()),
    };
    // The pool's directory of namespaces is in its default namespace.
    let default_namespace = Scope {
        namespace: Some(Pattern(String::new())),
        ..scope.clone()
    };
    let lists_namespaces = (prefixed(&default_namespace, "rbd_info"), method("metadata_list"));
    let anywhere = Scope::default();
    match profile {
        "read-only" => vec![(scope.clone(), Spec::Rights(Rights::R))],
        "read-write" => vec![(scope.clone(), Spec::Rights(Rights::R.with(Rights::W)))],
        "rbd" => vec![
            (prefixed(&anywhere, "rbd_info"), Spec::Rights(Rights::R)),
            (prefixed(&anywhere, "rbd_children"), Spec::Rights(Rights::CLASS_R)),
            (
                prefixed(&anywhere, "rbd_mirroring"),
                Spec::Rights(Rights::CLASS_R),
            ),
            lists_namespaces,
            (
                scope.clone(),
                Spec::Rights(Rights::R.with(Rights::W).with(Rights::X)),
            ),
        ],
        "rbd-read-only" => vec![
            lists_namespaces,
            (scope.clone(), Spec::Rights(Rights::R.with(Rights::CLASS_R))),
            (prefixed(scope, "rbd_header."), method("child_attach")),
            (prefixed(scope, "rbd_header."), method("child_detach")),
        ],
        _ => Vec::new(),
    }
}
