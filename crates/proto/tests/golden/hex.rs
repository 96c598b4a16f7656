//! The recorded samples.

use bytes::Bytes;
use spirula_proto::{MsgHeader2, MsgType, RawMessage};

/// Parses hexadecimal digits; `-` is empty.
pub(crate) fn bytes(text: &str) -> Bytes {
    if text == "-" {
        return Bytes::new();
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split_whitespace().collect())
}

/// All recorded messages by name.
pub(crate) fn messages() -> Vec<(&'static str, RawMessage)> {
    rows(include_str!("../../testdata/messages.txt"))
        .map(|f| {
            let [name, kind, version, compat, front, middle, data] = f.try_into().unwrap();
            let header = MsgHeader2 {
                kind: MsgType(kind.parse().unwrap()),
                version: version.parse().unwrap(),
                compat_version: compat.parse().unwrap(),
                ..MsgHeader2::default()
            };
            (
                name,
                RawMessage {
                    header,
                    front: bytes(front),
                    middle: bytes(middle),
                    data: bytes(data).into(),
                },
            )
        })
        .collect()
}

/// The recorded message called `name`.
pub(crate) fn message(name: &str) -> RawMessage {
    messages().into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// All recorded structures by type.
pub(crate) fn structures() -> Vec<(&'static str, Bytes)> {
    rows(include_str!("../../testdata/structures.txt"))
        .map(|f| (f[0], bytes(f[1])))
        .collect()
}

/// Input or output of a listing of what a scrub found.
pub(crate) struct Scrub {
    /// The damage that was done before.
    pub(crate) damage: &'static str,
    /// `obj` or `snapset`.
    pub(crate) list: &'static str,
    /// The structure.
    pub(crate) kind: &'static str,
    /// The structure's encoding.
    pub(crate) bytes: Bytes,
}

/// All recorded listings of what scrubs found.
pub(crate) fn scrubs() -> Vec<Scrub> {
    rows(include_str!("../../testdata/scrub.txt"))
        .map(|f| Scrub {
            damage: f[0],
            list: f[1],
            kind: f[2],
            bytes: bytes(f[3]),
        })
        .collect()
}
