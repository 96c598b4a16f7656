//! TMAPUP: changes a map of keys and values that is an object's data. Only the directories of
//! images of RBD's first format are such maps. The data is a header, then the map, sorted by key;
//! commands follow each other, with the codes of `CEPH_OSD_TMAP_*` in Ceph's `src/include/rados.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Reader, encode_to_vec};
use spirula_errno::*;

use super::{Changing, OpResult, Stop, fail};
use crate::pg::op::OsdOp;

/// Replaces the header; only as the first command.
const HEADER: u8 = b'h';
/// Sets a key.
const SET: u8 = b's';
/// Sets a key that does not exist.
const CREATE: u8 = b'c';
/// Removes a key.
const REMOVE: u8 = b'r';
/// Removes a key if it exists.
const REMOVE_ANY: u8 = b'R';

type Map = (Bytes, BTreeMap<Bytes, Bytes>);

fn invalid(_: spirula_denc::Error) -> Stop {
    Stop::Failed(EINVAL)
}

/// The map after the commands.
fn updated(old: &[u8], commands: &[u8]) -> Result<Map, Stop> {
    let (mut header, mut values): Map = match old.is_empty() {
        true => Map::default(),
        false => Reader::new(old).get().map_err(invalid)?,
    };
    let mut r = Reader::new(commands);
    while !r.is_empty() {
        let is_first = r.position() == 0;
        let command = r.u8().map_err(invalid)?;
        let key: Bytes = r.get().map_err(invalid)?;
        match command {
            HEADER if is_first => header = key,
            CREATE if values.contains_key(&key) => return fail(EEXIST),
            SET | CREATE => drop(values.insert(key, r.get().map_err(invalid)?)),
            REMOVE if !values.contains_key(&key) => return fail(ENOENT),
            REMOVE | REMOVE_ANY => drop(values.remove(&key)),
            _ => return fail(EINVAL),
        }
    }
    Ok((header, values))
}

impl Changing<'_, '_> {
    pub(super) fn tmap_update(&mut self, op: &OsdOp) -> OpResult {
        if op.indata.is_empty() {
            return Ok(0);
        }
        let pieces = self.before.data(0, u64::MAX, false)?;
        let old_len: usize = pieces.iter().map(|(_, b)| b.len()).sum();
        self.work.spend((old_len + op.indata.len()) as u64 * 4)?;
        let old = pieces.iter().map(|(_, b)| &b[..]).collect::<Vec<_>>().concat();
        let map = updated(&old, &op.indata)?;
        self.replace_data(encode_to_vec(&map).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(code: u8, key: &str, value: Option<&str>) -> Vec<u8> {
        let mut out = vec![code];
        out.extend(encode_to_vec(key));
        out.extend(value.map(encode_to_vec).unwrap_or_default());
        out
    }

    fn result(old: &[u8], commands: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
        match updated(old, &commands.concat()) {
            Ok(map) => Ok(encode_to_vec(&map)),
            Err(Stop::Failed(e)) => Err(e),
            Err(Stop::Unfetched) => panic!("nothing is fetched here"),
        }
    }

    #[test]
    fn commands_change_the_map() {
        let set = |key| command(SET, key, Some("v"));
        let one = result(b"", &[command(HEADER, "h", None), set("b"), set("a")]).unwrap();
        assert_eq!(
            one,
            b"\x01\0\0\0h\x02\0\0\0\x01\0\0\0a\x01\0\0\0v\x01\0\0\0b\x01\0\0\0v"
        );
        let two = result(
            &one,
            &[command(REMOVE, "a", None), command(CREATE, "c", Some(""))],
        )
        .unwrap();
        assert_eq!(
            two,
            b"\x01\0\0\0h\x02\0\0\0\x01\0\0\0b\x01\0\0\0v\x01\0\0\0c\0\0\0\0"
        );
        assert_eq!(result(&two, &[command(REMOVE_ANY, "a", None)]), Ok(two.clone()));
        assert_eq!(result(&two, &[command(REMOVE, "a", None)]), Err(ENOENT));
        assert_eq!(result(&two, &[command(CREATE, "b", Some("v"))]), Err(EEXIST));
        assert_eq!(result(&two, &[set("d"), command(HEADER, "h", None)]), Err(EINVAL));
        assert_eq!(result(&two, &[command(SET, "d", None)]), Err(EINVAL));
        assert_eq!(result(b"rubbish", &[set("d")]), Err(EINVAL));
        assert_eq!(result(b"", &[]), Ok(vec![0; 8]));
    }
}
