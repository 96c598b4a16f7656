//! Commands on objects' attributes.

use spirula_client::Error;
use spirula_maps::ObjectName;

use super::objects::{print, standard_input};
use super::{Done, OnObject, Tool};

impl Tool {
    fn attribute_failed(&self, what: &str, oid: &ObjectName, name: &str, e: &Error) -> i32 {
        let object = super::shown(oid);
        self.failed(what, &format!("{object}/{name}"), e)
    }

    pub(super) async fn set_xattr(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..=2)?;
        let (name, value) = match rest {
            [name, value] => (name, value.clone().into_bytes()),
            [name] => (name, standard_input()?),
            _ => return Err(self.usage()),
        };
        let set = store.setxattr(&oid, name, &value).await;
        set.map_err(|e| self.attribute_failed("error setting xattr", &oid, name, &e))
    }

    pub(super) async fn get_xattr(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let Some(name) = rest.first() else {
            return Err(self.usage());
        };
        let value = store.getxattr(&oid, name).await;
        print(&value.map_err(|e| self.attribute_failed("error getting xattr", &oid, name, &e))?)
    }

    pub(super) async fn remove_xattr(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let Some(name) = rest.first() else {
            return Err(self.usage());
        };
        let removed = store.rmxattr(&oid, name).await;
        removed.map_err(|e| self.attribute_failed("error removing xattr", &oid, name, &e))
    }

    pub(super) async fn list_xattrs(&self) -> Done {
        let OnObject { store, oid, .. } = self.object_command(0..)?;
        let all = store.getxattrs(&oid).await;
        let all = all.map_err(|e| self.failed("error getting xattr set", &oid, &e))?;
        let names: Vec<u8> = all.keys().flat_map(|name| [&name[..], b"\n"].concat()).collect();
        print(&names)
    }
}
