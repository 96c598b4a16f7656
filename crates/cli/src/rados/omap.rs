//! Commands on objects' maps.

use bytes::Bytes;
use spirula_client::errno::Errno;
use spirula_client::{Error, IoCtx};
use spirula_maps::ObjectName;
use spirula_proto::osd_op_data::{OmapKeys, OmapVals};

use super::format::hexdump;
use super::objects::{print, standard_input};
use super::{Done, OnObject, Tool, complain, shown};

/// Keys asked for at a time.
const BATCH: u64 = 1024;

/// A key in listings with values: in hexadecimal too, if a byte of it can't be printed.
fn key_line(key: &[u8]) -> Vec<u8> {
    if key.iter().all(|b| (b' '..=b'~').contains(b)) {
        return [key, b"\n"].concat();
    }
    format!("key ({} bytes):\n{}\n", key.len(), hexdump(key)).into_bytes()
}

/// Writes a value to the command's file, or prints it.
fn give(what: &str, value: &[u8], path: Option<&String>) -> Done {
    let Some(path) = path else {
        return print(format!("{what} ({} bytes) :\n{}\n", value.len(), hexdump(value)).as_bytes());
    };
    eprintln!("Writing to {path}");
    if path == "-" {
        return print(value);
    }
    // The official tool goes on where it can't.
    if let Err(e) = std::fs::write(path, value) {
        eprintln!("failed to open file: {}", Errno::from(&e));
    }
    Ok(())
}

impl Tool {
    /// The key, from a file or else from the first word; and the words behind it.
    fn omap_key<'a>(&self, words: &'a [String]) -> Result<(Bytes, &'a [String]), i32> {
        if let Some(path) = &self.args.omap_key_file {
            return Ok((super::file(path)?.into(), words));
        }
        match words.split_first() {
            Some((key, rest)) => Ok((key.clone().into(), rest)),
            None => Err(self.usage()),
        }
    }

    pub(super) async fn list_omap_keys(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let mut start_after = Bytes::new();
        loop {
            let page = io.omap_keys(&oid, start_after, BATCH).await;
            let page = page.map_err(|e| self.failed("error getting omap key set", &oid, &e))?;
            let lines: Vec<u8> = page
                .keys
                .iter()
                .flat_map(|key| [&key[..], b"\n"].concat())
                .collect();
            print(&lines)?;
            match page.keys.last() {
                Some(last) if page.more => start_after = last.clone(),
                _ => return Ok(()),
            }
        }
    }

    pub(super) async fn list_omap_values(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let mut start_after = Bytes::new();
        loop {
            let page = io.omap_vals(&oid, start_after, Bytes::new(), BATCH).await;
            let page = page.map_err(|e| self.failed("error getting omap keys", &oid, &e))?;
            for (key, value) in &page.vals {
                print(&key_line(key))?;
                give("value", value, None)?;
            }
            match page.vals.last_key_value() {
                Some((last, _)) if page.more => start_after = last.clone(),
                _ => return Ok(()),
            }
        }
    }

    fn key_failed(&self, what: &str, oid: &ObjectName, key: &Bytes, e: &Error) -> i32 {
        self.failed(what, &format!("{}/{}", shown(oid), shown(key)), e)
    }

    pub(super) async fn get_omap_value(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let (key, rest) = self.omap_key(rest)?;
        if rest.len() > 1 {
            return Err(self.usage());
        }
        let values = io.omap_vals_by_keys(&oid, &OmapKeys::from([key.clone()])).await;
        let values = values.map_err(|e| self.key_failed("error getting omap value", &oid, &key, &e))?;
        let Some(value) = values.get(&key) else {
            println!(
                "No such key: {}/{}/{}",
                self.pool_name(),
                shown(&oid),
                shown(&key)
            );
            return Err(1);
        };
        give("value", value, rest.first())
    }

    pub(super) async fn set_omap_value(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let (key, rest) = self.omap_key(rest)?;
        if rest.len() > 1 {
            return Err(self.usage());
        }
        let value = match (&self.args.input_file, rest.first()) {
            (Some(path), _) => std::fs::read(path).map_err(|e| {
                let why = Errno::from(&e);
                complain(1, format!("error reading file {path}: can't open {path}: {why}"))
            })?,
            (None, Some(value)) => value.clone().into_bytes(),
            (None, None) => standard_input()?,
        };
        let values = OmapVals::from([(key.clone(), value.into())]);
        let set = io.omap_set(&oid, &values).await;
        set.map_err(|e| self.key_failed("error setting omap value", &oid, &key, &e))
    }

    pub(super) async fn remove_omap_key(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let (key, rest) = self.omap_key(rest)?;
        if !rest.is_empty() {
            return Err(self.usage());
        }
        let removed = io.omap_rm_keys(&oid, &OmapKeys::from([key.clone()])).await;
        removed.map_err(|e| self.key_failed("error removing omap key", &oid, &key, &e))
    }

    pub(super) async fn clear_omap(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let clear = async |io: &IoCtx, oid: ObjectName| {
            io.omap_clear(&oid).await.map_err(|e| {
                let (pool, object, why) = (self.pool_name(), shown(&oid), e.errno());
                complain(1, format!("error clearing omap keys {pool}/{object}/{why}"))
            })
        };
        clear(io, oid).await?;
        for oid in rest {
            clear(io, oid.into()).await?;
        }
        Ok(())
    }

    pub(super) async fn get_omap_header(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let header = io.omap_header(&oid).await;
        let header = header.map_err(|e| self.failed("error getting omap header", &oid, &e))?;
        give("header", &header, rest.first())
    }

    pub(super) async fn set_omap_header(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(1..)?;
        let header = rest.first().cloned().unwrap_or_default();
        let set = io.omap_set_header(&oid, header).await;
        set.map_err(|e| self.failed("error setting omap value", &oid, &e))
    }
}
