//! Names in an account, of its users for instance: an omap key each, and their number in the omap
//! header. Formats: Ceph's `src/cls/user/cls_user_types.h` and `cls_user_ops.h`, of releases from
//! Squid on.

use bytes::Bytes;
use spirula_denc::versioned;

use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// Keys that one listing reads at most.
const MAX_LIST: u32 = 1000;

versioned! {
    /// What has a name in the account: a user, a group, a role or a topic.
    #[derive(Eq)]
    pub(super) struct Resource("cls_user_account_resource", version 1, compat 1) {
        /// The name as the client wrote it.
        pub(super) name: Bytes;
        /// A path by which listings select.
        pub(super) path: Bytes;
        /// Known to the client only.
        pub(super) metadata: Bytes;
    }

    /// The omap header.
    #[derive(Eq)]
    pub(super) struct Header("cls_user_account_header", version 1, compat 1) {
        /// The number of names.
        pub(super) count: u32;
    }

    /// Input of `account_resource_add`.
    #[derive(Eq)]
    pub(super) struct AddOp("cls_user_account_resource_add_op", version 1, compat 1) {
        pub(super) entry: Resource;
        /// Whether the name must be new.
        pub(super) exclusive: bool;
        /// The number of names that there may be.
        pub(super) limit: u32;
    }

    /// Input of `account_resource_get` and `account_resource_rm`.
    #[derive(Eq)]
    pub(super) struct NameOp("cls_user_account_resource_get_op", version 1, compat 1) {
        pub(super) name: Bytes;
    }

    /// Output of `account_resource_get`.
    #[derive(Eq)]
    pub(super) struct GetReply("cls_user_account_resource_get_ret", version 1, compat 1) {
        pub(super) entry: Resource;
    }

    /// Input of `account_resource_list`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_user_account_resource_list_op", version 1, compat 1) {
        /// The key after which to begin.
        pub(super) marker: Bytes;
        /// The start of the paths that are wanted.
        pub(super) path_prefix: Bytes;
        /// Keys to read, of whatever path.
        pub(super) max_entries: u32;
    }

    /// Output of `account_resource_list`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_user_account_resource_list_ret", version 1, compat 1) {
        pub(super) entries: Vec<Resource>;
        /// Whether more keys follow.
        pub(super) truncated: bool;
        /// The last key that was read.
        pub(super) marker: Bytes;
    }
}

/// The key of a name: names that differ in the case of ASCII letters only are the same.
fn key(name: &[u8]) -> Bytes {
    name.to_ascii_lowercase().into()
}

fn read_header(object: &mut dyn Object) -> Result<Header> {
    let bytes = object.omap_header()?;
    match bytes.is_empty() {
        true => Ok(Header::default()),
        false => stored(&bytes),
    }
}

fn write_header(object: &mut dyn Object, header: &Header) -> Result<()> {
    object.omap_set_header(to_bytes(header))
}

/// Adds a name, or replaces what has it; EUSERS where there are as many names as there may be.
pub(super) fn add(object: &mut dyn Object, op: AddOp) -> Result<Nothing> {
    let key = key(&op.entry.name);
    if omap::find(object, &key)?.is_none() {
        let mut header = read_header(object)?;
        if header.count >= op.limit {
            return Err(Error::EUSERS);
        }
        header.count += 1;
        write_header(object, &header)?;
    } else if op.exclusive {
        return Err(Error::EEXIST);
    }
    omap::set(object, key, to_bytes(&op.entry)).map(|()| Nothing)
}

pub(super) fn get(object: &mut dyn Object, op: NameOp) -> Result<GetReply> {
    let entry = stored(&omap::get(object, &key(&op.name))?)?;
    Ok(GetReply { entry })
}

pub(super) fn remove(object: &mut dyn Object, op: NameOp) -> Result<Nothing> {
    let key = key(&op.name);
    omap::get(object, &key)?;
    omap::remove(object, key)?;
    let mut header = read_header(object)?;
    header.count = header.count.saturating_sub(1);
    write_header(object, &header).map(|()| Nothing)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let page = object.omap_vals(&op.marker, b"", op.max_entries.min(MAX_LIST).into())?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    for (key, value) in page.items {
        let entry: Resource = stored(&value)?;
        if entry.path.starts_with(&op.path_prefix) {
            reply.entries.push(entry);
        }
        reply.marker = key;
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;
    use crate::testing::World;

    /// Results as the source of Ceph's Squid tells them: older releases lack these methods.
    #[test]
    fn names_are_counted_and_known_in_any_case() {
        let mut world = World::default();
        let add = |world: &mut World, name: &'static str, path: &'static str, exclusive| {
            let entry = Resource {
                name: name.into(),
                path: path.into(),
                metadata: "m".into(),
            };
            let op = AddOp {
                entry,
                exclusive,
                limit: 2,
            };
            world.call("user", "account_resource_add", &encode_to_vec(&op)).0
        };
        let by_name = |world: &mut World, method, name: &'static str| {
            let op = NameOp { name: name.into() };
            world.call("user", method, &encode_to_vec(&op))
        };
        let list = |world: &mut World, marker: &'static str, path_prefix: &'static str, max_entries| {
            let op = ListOp {
                marker: marker.into(),
                path_prefix: path_prefix.into(),
                max_entries,
            };
            let (code, out) = world.call("user", "account_resource_list", &encode_to_vec(&op));
            assert_eq!(code, 0);
            let reply: ListReply = decode_all(&out).unwrap();
            let names: Vec<Bytes> = reply.entries.into_iter().map(|e| e.name).collect();
            (names, reply.truncated, reply.marker)
        };
        assert_eq!(by_name(&mut world, "account_resource_rm", "Ann").0, -2);
        assert_eq!(add(&mut world, "Ann", "/a/", true), 0);
        assert_eq!(add(&mut world, "ann", "/a/", true), -17);
        assert_eq!(add(&mut world, "bob", "/b/", true), 0);
        assert_eq!(add(&mut world, "carl", "/c/", false), -87);
        assert_eq!(add(&mut world, "ANN", "/z/", false), 0);
        assert_eq!(world.state.header, [1, 1, 4, 0, 0, 0, 2, 0, 0, 0][..]);
        let (code, out) = by_name(&mut world, "account_resource_get", "aNN");
        assert_eq!(
            (code, decode_all::<GetReply>(&out).unwrap().entry.name),
            (0, "ANN".into())
        );
        assert_eq!(
            list(&mut world, "", "", 9),
            (vec!["ANN".into(), "bob".into()], false, "bob".into())
        );
        assert_eq!(list(&mut world, "", "/b", 1), (vec![], true, "ann".into()));
        assert_eq!(
            list(&mut world, "ann", "/b", 1),
            (vec!["bob".into()], false, "bob".into())
        );
        assert_eq!(by_name(&mut world, "account_resource_rm", "BOB").0, 0);
        assert_eq!(by_name(&mut world, "account_resource_get", "bob").0, -2);
        assert_eq!(world.state.header, [1, 1, 4, 0, 0, 0, 1, 0, 0, 0][..]);
        world.state.omap.insert("bad".into(), "bad".into());
        assert_eq!(by_name(&mut world, "account_resource_get", "bad").0, -5);
        let all = encode_to_vec(&ListOp {
            max_entries: 9,
            ..ListOp::default()
        });
        assert_eq!(world.call("user", "account_resource_list", &all).0, -5);
    }
}
