//! Commands on objects' maps.

use bytes::Bytes;
use spirula_client::{Error, IoCtx};
use spirula_denc::{Decode, Encode, Reader, encode_to_vec};
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{OmapGetKeys, OmapKeys, OmapKeysReply, OmapVals};

use super::objects::{print, standard_input};
use super::{Done, Tool, complain, shown};
use crate::ceph::common::errno::{describe, of};

/// Keys asked for at a time.
const BATCH: u64 = 512;

async fn operate(io: &IoCtx, oid: &str, code: OpCode, input: &impl Encode) -> Result<Bytes, Error> {
    let op = OsdOpIn::new(code, OpArgs::None, encode_to_vec(input));
    let mut reply = io.operate("omap", oid, vec![op]).await?;
    Ok(reply.outs.pop().map(|(_, out)| out).unwrap_or_default())
}

async fn ask<T: Decode>(io: &IoCtx, oid: &str, code: OpCode, input: &impl Encode) -> Result<T, Error> {
    let out = operate(io, oid, code, input).await?;
    Ok(Reader::new(&out).get()?)
}

impl Tool {
    pub(super) async fn list_omap_keys(&self) -> Done {
        let (io, words) = self.object_command(1)?;
        let mut start_after = Bytes::new();
        loop {
            let input = OmapGetKeys {
                start_after: start_after.clone(),
                max: BATCH,
            };
            let page: Result<OmapKeysReply, Error> = ask(io, &words[0], OpCode::OMAPGETKEYS, &input).await;
            let page = page.map_err(|e| self.failed("error getting omap key set", &words[0], &e))?;
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

    pub(super) async fn get_omap_value(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let (oid, key) = (&words[0], Bytes::from(words[1].clone()));
        let keys = OmapKeys::from([key.clone()]);
        let values: Result<OmapVals, Error> = ask(io, oid, OpCode::OMAPGETVALSBYKEYS, &keys).await;
        let values = values
            .map_err(|e| self.failed("error getting omap value", &format!("{oid}/{}", words[1]), &e))?;
        let Some(value) = values.get(&key) else {
            println!("No such key: {}/{oid}/{}", self.pool_name(), words[1]);
            return Err(1);
        };
        if let Some(path) = words.get(2) {
            eprintln!("Writing to {path}");
        }
        match words.get(2).map(String::as_str) {
            None | Some("-") => print(value),
            Some(path) => std::fs::write(path, value)
                .map_err(|e| complain(1, format!("failed to open file: {}", describe(of(&e))))),
        }
    }

    pub(super) async fn set_omap_value(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let value = match words.get(2) {
            Some(value) => value.clone().into_bytes(),
            None => standard_input()?,
        };
        let values = OmapVals::from([(words[1].clone().into(), value.into())]);
        let set = operate(io, &words[0], OpCode::OMAPSETVALS, &values).await;
        let object = format!("{}/{}", shown(&words[0]), words[1]);
        set.map(drop)
            .map_err(|e| self.failed("error setting omap value", &object, &e))
    }

    pub(super) async fn remove_omap_key(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let keys = OmapKeys::from([words[1].clone().into()]);
        let removed = operate(io, &words[0], OpCode::OMAPRMKEYS, &keys).await;
        let object = format!("{}/{}", shown(&words[0]), words[1]);
        removed
            .map(drop)
            .map_err(|e| self.failed("error removing omap key", &object, &e))
    }
}
