//! The omap keys of a bucket's index.
//!
//! Those of plain entries are names of objects. All others begin with the byte 0x80, with which no
//! character in UTF-8 begins, so that names are before and behind them.

use bytes::Bytes;

use super::entry::DirEntry;
use super::key::ObjectKey;
use crate::text::until_nul;

/// The first byte of all keys that are not plain.
pub(super) const SPECIAL: u8 = 0x80;
/// The prefix of the index's log.
pub(super) const LOG: &[u8] = b"\x800_";
/// The prefix of instance entries.
pub(super) const INSTANCE: &[u8] = b"\x801000_";
/// The prefix of OLH entries.
pub(super) const OLH: &[u8] = b"\x801001_";
/// What all keys that are not plain are before.
pub(super) const END: &[u8] = b"\x809999_";

/// The instance by which clients name the version without a name.
pub(super) const NULL_INSTANCE: &[u8] = b"null";

/// What is between an object's name and the parts of a key that follow it.
const EPOCH_MARK: &[u8] = b"\0v";
const INSTANCE_MARK: &[u8] = b"\0i";
const DELETE_MARKER_MARK: &[u8] = b"\0d";

/// The key of a version's instance entry.
pub(super) fn instance(key: &ObjectKey) -> Bytes {
    [INSTANCE, &key.name, INSTANCE_MARK, &key.instance]
        .concat()
        .into()
}

/// The key of the delete marker of the version without a name, which does not overwrite the version.
pub(super) fn null_delete_marker(name: &[u8]) -> Bytes {
    [INSTANCE, name, INSTANCE_MARK, DELETE_MARKER_MARK]
        .concat()
        .into()
}

/// The key of an object's plain entry, or of a version's instance entry.
pub(super) fn entry(key: &ObjectKey) -> Bytes {
    match key.instance.is_empty() {
        true => key.name.clone(),
        false => instance(key),
    }
}

/// The key of an object's OLH entry.
pub(super) fn olh(name: &[u8]) -> Bytes {
    [OLH, name].concat().into()
}

/// The key under which a listing finds a version: newer ones first.
pub(super) fn listed_version(entry: &DirEntry) -> Bytes {
    let epoch = descending(entry.versioned_epoch);
    let parts = [
        &entry.key.name[..],
        EPOCH_MARK,
        epoch.as_bytes(),
        INSTANCE_MARK,
        &entry.key.instance,
    ];
    parts.concat().into()
}

/// Digits that sort the other way round than the number: how many they are, descending, and what is
/// missing to the largest of as many.
///
/// From 2³² on these are those of the Ceph that follows 20.2. Earlier ones write the negative number
/// there, which sorts wrongly and which they can't list; but as they count from 2 on, they don't get
/// that far.
fn descending(epoch: u64) -> String {
    match epoch {
        0..0x10 => format!("9{:02}", 0xf - epoch),
        0x10..0x100 => format!("8{:03}", 0xff - epoch),
        0x100..0x1000 => format!("7{:04}", 0xfff - epoch),
        0x1000..0x1_0000 => format!("6{:05}", 0xffff - epoch),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - epoch),
        0x1_0000_0000..0x100_0000_0000 => format!("4{:015}", 0xff_ffff_ffff - epoch),
        0x100_0000_0000..0x1_0000_0000_0000 => format!("3{:018}", 0xffff_ffff_ffff - epoch),
        _ => format!("2{:020}", u64::MAX - epoch),
    }
}

/// The object's name in the key of a plain entry; `None` where the key is none.
pub(super) fn listed_name(key: &[u8]) -> Option<&[u8]> {
    let name = until_nul(key);
    let parts = key.get(name.len() + 1..).unwrap_or_default();
    let is_epoch = |p: &[u8]| p.len() >= 2 && p.iter().all(u8::is_ascii_digit);
    let is_good = |p: &[u8]| p.strip_prefix(b"v").is_none_or(is_epoch);
    let is_plain = name.len() == key.len();
    (is_plain || (!parts.is_empty() && parts.split(|b| *b == 0).all(is_good))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_epochs_sort_first() {
        let epochs = [
            0,
            2,
            0xf,
            0x10,
            0xff,
            0x100,
            0xfff,
            0x1000,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            0x1_0000_0000,
            0xff_ffff_ffff,
            0x100_0000_0000,
            0xffff_ffff_ffff,
            1 << 48,
            u64::MAX,
        ];
        let texts: Vec<String> = epochs.into_iter().map(descending).collect();
        assert_eq!(
            (&texts[0][..], &texts[2][..], &texts[3][..]),
            ("915", "900", "8239")
        );
        assert_eq!(texts.last().unwrap(), "200000000000000000000");
        assert!(texts.is_sorted_by(|a, b| a > b), "{texts:?}");
        for text in &texts {
            let key = [b"name\0v", text.as_bytes(), b"\0iversion"].concat();
            assert_eq!(listed_name(&key), Some(&b"name"[..]));
        }
    }

    #[test]
    fn keys_that_are_no_plain_ones_have_no_name() {
        for bad in [&b"a\0"[..], b"a\0v", b"a\0vx\0ii", b"a\0v9-1"] {
            assert_eq!(listed_name(bad), None, "{bad:?}");
        }
        for good in [&b""[..], b"a", b"\xc3\xa9"] {
            assert_eq!(listed_name(good), Some(good));
        }
    }
}
