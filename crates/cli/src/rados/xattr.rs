//! Commands on objects' attributes.

use spirula_client::Error;

use super::objects::{print, standard_input};
use super::{Done, Tool};

impl Tool {
    fn attribute_failed(&self, what: &str, oid: &str, name: &str, e: &Error) -> i32 {
        let object = super::shown(oid);
        self.failed(what, &format!("{object}/{name}"), e)
    }

    pub(super) async fn set_xattr(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let value = match words {
            [_, _] => standard_input()?,
            [_, _, value] => value.clone().into_bytes(),
            _ => return Err(self.usage()),
        };
        let set = io.setxattr(&words[0], &words[1], &value).await;
        set.map_err(|e| self.attribute_failed("error setting xattr", &words[0], &words[1], &e))
    }

    pub(super) async fn get_xattr(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let value = io.getxattr(&words[0], &words[1]).await;
        print(&value.map_err(|e| self.attribute_failed("error getting xattr", &words[0], &words[1], &e))?)
    }

    pub(super) async fn remove_xattr(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let removed = io.rmxattr(&words[0], &words[1]).await;
        removed.map_err(|e| self.attribute_failed("error removing xattr", &words[0], &words[1], &e))
    }

    pub(super) async fn list_xattrs(&self) -> Done {
        let (io, words) = self.object_command(1)?;
        let all = io.getxattrs(&words[0]).await;
        let all = all.map_err(|e| self.failed("error getting xattr set", &words[0], &e))?;
        let names: Vec<u8> = all.keys().flat_map(|name| [&name[..], b"\n"].concat()).collect();
        print(&names)
    }
}
