//! `lock list|get|break|info`.

use std::time::Duration;

use serde_json::json;
use spirula_client::{Error, LockRequest, LockType, errno};
use spirula_denc::{EntityName, EntityType};
use spirula_text::{Format, addr_legacy};

use super::objects::print;
use super::{BAD_NUMBER, Done, OnObject, Tool, format, last_words, number};

fn failed(what: &str, e: &Error) -> i32 {
    eprintln!("ERROR: {what}: {}", e.errno());
    last_words(e.errno())
}

/// An entity by name and number: `client.4117`.
fn entity(text: &str) -> Option<EntityName> {
    let (kind, number) = text.split_once('.')?;
    Some(EntityName::new(
        EntityType::from_name(kind)?,
        number.parse().ok()?,
    ))
}

impl Tool {
    /// The type that the options name.
    fn lock_type(&self) -> Result<LockType, i32> {
        match self.args.lock_type.as_deref() {
            None | Some("exclusive") => Ok(LockType::EXCLUSIVE),
            Some("shared") => Ok(LockType::SHARED),
            Some(_) => {
                eprintln!("unknown lock type was specified, aborting");
                Err(last_words(errno::EINVAL))
            }
        }
    }

    /// JSON unless another format is wanted.
    fn lock_format(&self) -> Format {
        match (self.format, self.args.pretty_format) {
            (Format::Plain, true) => Format::JsonPretty,
            (format, _) => format.or_json(),
        }
    }

    pub(super) async fn lock(&self) -> Done {
        let (_, words) = self.pool_command(2)?;
        let [command, oid, rest @ ..] = words else {
            return Err(self.usage());
        };
        // The object's name from a file stands before the command here.
        let (command, oid) = match &self.obj_name {
            Some(name) => (oid, name.clone()),
            None => (command, oid.into()),
        };
        let io = self.io.clone().ok_or(1)?;
        let on = OnObject {
            store: super::Store::new(&io, false),
            io: &io,
            oid,
            rest,
        };
        let duration = number("lock-duration", self.args.lock_duration.as_deref()).map_err(|code| {
            if code == BAD_NUMBER {
                last_words(errno::EINVAL)
            } else {
                code
            }
        })?;
        let kind = self.lock_type()?;
        match (command.as_str(), on.rest) {
            ("list", _) => self.list_locks(&on).await,
            ("info", [name, ..]) => self.lock_info(&on, name).await,
            ("get", [name, ..]) => {
                let lock = LockRequest {
                    name: name.clone(),
                    kind,
                    cookie: self.args.lock_cookie.clone(),
                    tag: self.args.lock_tag.clone(),
                    description: self.args.lock_description.clone(),
                    duration: Duration::from_secs(duration.unwrap_or(0)),
                    flags: 0,
                };
                let locked = on.io.lock(&on.oid, &lock).await;
                locked.map_err(|e| failed("failed locking", &e))
            }
            ("break", [name, locker, ..]) => self.break_lock(&on, name, locker).await,
            _ => Err(self.usage()),
        }
    }

    async fn list_locks(&self, on: &OnObject<'_>) -> Done {
        let names = on.io.locks(&on.oid).await;
        let names = names.map_err(|e| failed("rados_list_locks()", &e))?;
        let locks: Vec<_> = names.into_iter().map(|name| json!({"name": name})).collect();
        let object = json!({"objname": format::text(on.oid.as_bytes()), "locks": locks});
        print(&format::render(self.lock_format(), &object, "object", ""))
    }

    async fn lock_info(&self, on: &OnObject<'_>, name: &str) -> Done {
        let info = on.io.lock_info(&on.oid, name).await;
        let info = info.map_err(|e| failed("rados_lock_get_lock_info()", &e))?;
        let lockers: Vec<_> = info
            .lockers
            .iter()
            .map(|l| {
                json!({
                    "name": l.name.to_string(),
                    "cookie": l.cookie,
                    "description": l.description,
                    "expiration": l.expiration.to_string(),
                    "addr": addr_legacy(&l.addr),
                })
            })
            .collect();
        let lock = json!({"name": name, "type": info.kind.name(), "tag": info.tag, "lockers": lockers});
        print(&format::render(self.lock_format(), &lock, "lock", ""))
    }

    async fn break_lock(&self, on: &OnObject<'_>, name: &str, locker: &str) -> Done {
        let Some(client) = entity(locker) else {
            eprintln!("ERROR: failed to parse locker name ({locker})");
            return Err(last_words(errno::EINVAL));
        };
        let broken = on
            .io
            .break_lock(&on.oid, name, client, &self.args.lock_cookie)
            .await;
        broken.map_err(|e| failed("failed breaking lock", &e))
    }
}
