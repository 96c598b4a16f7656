//! CALL: methods of object classes, which see the object through the same ops as clients do.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_classes::{Caller, Error, Flags, Object, Page, Return, Stat};
use spirula_denc::{Decode, Encode, Reader, UTime, encode_to_vec};
use spirula_errno::*;
use spirula_proto::osd::{ExtentArgs, OpArgs, OpCode, OpFlags, OsdOpIn, XattrArgs};
use spirula_proto::osd_op_data::{
    ListWatchersResponse, OmapGetKeys, OmapGetVals, OmapKeys, OmapKeysReply, OmapRange, OmapVals,
    OmapValsReply, WatchItem, Xattrs,
};
use xxhash_rust::xxh64::xxh64;

use super::{Exec, OpResult, Stop, fail};
use crate::pg::op::{Note, OsdOp};

impl Exec<'_> {
    pub(super) fn call(&mut self, op: &mut OsdOp) -> OpResult {
        // Ops that can't be called were refused before anything was executed.
        let call = op.call.clone().ok_or(Stop::Failed(EINVAL))?;
        let method = call.method.ok_or(Stop::Failed(EOPNOTSUPP))?;
        self.draft.user_modify |= method.flags.contains(Flags::WR);
        let version = self.before.state.info.version;
        let mut view = View {
            exec: self,
            reads: false,
            writes: false,
            noted: call.noted.filter(|n| n.version == version).map(|n| n.bytes),
            note: None,
        };
        view.exec.before.in_call = true;
        let result = method.call(&mut view, &call.input);
        let (reads, writes, note) = (view.reads, view.writes, view.note);
        self.before.in_call = false;
        if let (Some(bytes), Some(call)) = (note, &mut op.call) {
            call.noted = Some(Note { version, bytes });
            self.calls.noted = true;
        }
        let Return { code, data } = match result {
            Err(Error::NotFetched) => return Err(Stop::Unfetched),
            // A method that does something that it is not marked for fails, even if it ignores the
            // error.
            _ if reads && !method.flags.contains(Flags::RD) => return fail(EIO),
            _ if writes && !method.flags.contains(Flags::WR) => return fail(EIO),
            // Clients would send the request again for ever.
            Err(Error::Errno(EAGAIN)) => return fail(EIO),
            Err(Error::Errno(e)) => return fail(e),
            Ok(r) => r,
        };
        op.set_length(data.len() as u64);
        op.outdata.push(data);
        match Errno::of_result(code) {
            Some(errno) => Err(Stop::Failed(errno)),
            None => Ok(code),
        }
    }
}

/// The object as a method sees it.
struct View<'v, 'a> {
    exec: &'v mut Exec<'a>,
    reads: bool,
    writes: bool,
    /// The method's note of an earlier run, and that of this one.
    noted: Option<Bytes>,
    note: Option<Bytes>,
}

impl View<'_, '_> {
    /// Executes an op as if the client had sent it, and returns its output.
    fn run(&mut self, code: OpCode, flags: OpFlags, args: OpArgs, indata: Bytes) -> Result<Bytes, Error> {
        self.exec.draft.user_modify |= code.is_modify();
        let op = spirula_proto::osd::OsdOp::new(code, args).with_flags(flags);
        let mut op = OsdOp::from(OsdOpIn {
            op,
            data: indata.into(),
        });
        match self.exec.one(&mut op) {
            Ok(_) => {
                self.exec.calls.steps += 1;
                Ok(op.outdata.to_bytes())
            }
            Err(Stop::Failed(e)) => Err(Error::Errno(e)),
            Err(Stop::Unfetched) => Err(Error::NotFetched),
        }
    }

    fn read_op(&mut self, code: OpCode, args: OpArgs, indata: Bytes) -> Result<Bytes, Error> {
        self.reads = true;
        self.run(code, OpFlags::default(), args, indata)
    }

    fn omap_read<T: Decode>(&mut self, code: OpCode, input: &impl Encode) -> Result<T, Error> {
        decoded(&self.read_op(code, OpArgs::None, encode_to_vec(input).into())?)
    }

    fn write_op(&mut self, code: OpCode, args: OpArgs, indata: Bytes) -> Result<(), Error> {
        self.writes = true;
        self.run(code, OpFlags::default(), args, indata).map(drop)
    }

    fn omap_write(&mut self, code: OpCode, input: &impl Encode) -> Result<(), Error> {
        self.write_op(code, OpArgs::None, encode_to_vec(input).into())
    }
}

fn decoded<T: Decode>(output: &Bytes) -> Result<T, Error> {
    Reader::new(output).get().map_err(|_| Error::EIO)
}

fn extent(offset: u64, length: u64) -> OpArgs {
    OpArgs::Extent(ExtentArgs {
        offset,
        length,
        ..ExtentArgs::default()
    })
}

/// Arguments and data of an op on an attribute.
fn attribute(name: &[u8], value: &[u8]) -> Result<(OpArgs, Bytes), Error> {
    let len = |b: &[u8]| u32::try_from(b.len()).map_err(|_| Error::EINVAL);
    let args = XattrArgs {
        name_len: len(name)?,
        value_len: len(value)?,
        ..XattrArgs::default()
    };
    Ok((OpArgs::Xattr(args), [name, value].concat().into()))
}

impl Object for View<'_, '_> {
    fn caller(&self) -> Caller {
        self.exec.calls.request.caller
    }

    fn now(&self) -> UTime {
        self.exec.calls.request.now
    }

    fn random(&mut self, out: &mut [u8]) {
        // Requests differ in their ids, and the calls of one in how many came before.
        for chunk in out.chunks_mut(8) {
            self.exec.calls.drawn += 1;
            let seed = encode_to_vec(&self.exec.calls.request.reqid);
            let bytes = xxh64(&seed, self.exec.calls.drawn).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn subop_version(&self) -> String {
        format!(
            "{}.{}",
            self.exec.calls.request.last_user_version, self.exec.calls.steps
        )
    }

    fn current_version(&self) -> u64 {
        self.exec.calls.request.last_user_version
    }

    fn noted(&self) -> Option<Bytes> {
        self.noted.clone()
    }

    fn note(&mut self, note: Bytes) {
        self.note = Some(note);
    }

    fn stat(&mut self) -> Result<Stat, Error> {
        let out = self.run(OpCode::STAT, OpFlags::default(), OpArgs::None, Bytes::new())?;
        let (size, mtime) = decoded(&out)?;
        Ok(Stat { size, mtime })
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        match self.exec.before.note_call_bytes(bytes) {
            Ok(()) => Ok(()),
            Err(Stop::Failed(e)) => Err(Error::Errno(e)),
            Err(Stop::Unfetched) => Err(Error::NotFetched),
        }
    }

    fn snapset_seq(&mut self) -> Result<u64, Error> {
        let known = &self.exec.before.state.info.snap_set;
        match self.exec.draft.exists || !known.clones.is_empty() {
            true => Ok(known.seq),
            false => Err(Error::ENOENT),
        }
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Error> {
        self.read_op(OpCode::SYNC_READ, extent(offset, length), Bytes::new())
    }

    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Error> {
        let (args, data) = attribute(name, b"")?;
        self.read_op(OpCode::GETXATTR, args, data)
    }

    fn getxattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Error> {
        let out = self.read_op(OpCode::GETXATTRS, OpArgs::None, Bytes::new())?;
        decoded::<Xattrs>(&out)
    }

    fn omap_vals(&mut self, after: &[u8], prefix: &[u8], max: u64) -> Result<Page<(Bytes, Bytes)>, Error> {
        let input = OmapGetVals {
            start_after: Bytes::copy_from_slice(after),
            max,
            prefix: Bytes::copy_from_slice(prefix),
        };
        let reply: OmapValsReply = self.omap_read(OpCode::OMAPGETVALS, &input)?;
        Ok(Page {
            items: reply.vals.into_iter().collect(),
            more: reply.more,
        })
    }

    fn omap_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>, Error> {
        let input = OmapGetKeys {
            start_after: Bytes::copy_from_slice(after),
            max,
        };
        let reply: OmapKeysReply = self.omap_read(OpCode::OMAPGETKEYS, &input)?;
        Ok(Page {
            items: reply.keys.into_iter().collect(),
            more: reply.more,
        })
    }

    fn omap_by_keys(&mut self, keys: &BTreeSet<Bytes>) -> Result<BTreeMap<Bytes, Bytes>, Error> {
        self.omap_read::<OmapVals>(OpCode::OMAPGETVALSBYKEYS, keys)
    }

    fn watchers(&mut self) -> Result<Vec<Caller>, Error> {
        let out = self.read_op(OpCode::LIST_WATCHERS, OpArgs::None, Bytes::new())?;
        let list: ListWatchersResponse = decoded(&out)?;
        let caller = |w: WatchItem| Caller {
            name: w.name,
            addr: w.addr,
        };
        Ok(list.entries.into_iter().map(caller).collect())
    }

    fn omap_header(&mut self) -> Result<Bytes, Error> {
        self.read_op(OpCode::OMAPGETHEADER, OpArgs::None, Bytes::new())
    }

    fn create(&mut self, exclusive: bool) -> Result<(), Error> {
        self.writes = true;
        let flags = if exclusive {
            OpFlags::EXCL
        } else {
            OpFlags::default()
        };
        self.run(OpCode::CREATE, flags, OpArgs::None, Bytes::new())
            .map(drop)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.write_op(OpCode::WRITE, extent(offset, data.len() as u64), data)
    }

    fn write_full(&mut self, data: Bytes) -> Result<(), Error> {
        self.write_op(OpCode::WRITEFULL, extent(0, data.len() as u64), data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Error> {
        self.write_op(OpCode::ZERO, extent(offset, length), Bytes::new())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Error> {
        self.write_op(OpCode::TRUNCATE, extent(size, 0), Bytes::new())
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.write_op(OpCode::DELETE, OpArgs::None, Bytes::new())
    }

    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Error> {
        let (args, data) = attribute(name, &value)?;
        self.write_op(OpCode::SETXATTR, args, data)
    }

    fn rmxattr(&mut self, name: &[u8]) -> Result<(), Error> {
        let (args, data) = attribute(name, b"")?;
        self.write_op(OpCode::RMXATTR, args, data)
    }

    fn omap_set(&mut self, values: &BTreeMap<Bytes, Bytes>) -> Result<(), Error> {
        self.omap_write(OpCode::OMAPSETVALS, values)
    }

    fn omap_remove(&mut self, keys: &BTreeSet<Bytes>) -> Result<(), Error> {
        let keys: &OmapKeys = keys;
        self.omap_write(OpCode::OMAPRMKEYS, keys)
    }

    fn omap_remove_range(&mut self, begin: &[u8], end: &[u8]) -> Result<(), Error> {
        let range = OmapRange {
            begin: Bytes::copy_from_slice(begin),
            end: Bytes::copy_from_slice(end),
        };
        self.omap_write(OpCode::OMAPRMKEYRANGE, &range)
    }

    fn omap_clear(&mut self) -> Result<(), Error> {
        self.write_op(OpCode::OMAPCLEAR, OpArgs::None, Bytes::new())
    }

    fn omap_set_header(&mut self, header: Bytes) -> Result<(), Error> {
        self.write_op(OpCode::OMAPSETHEADER, OpArgs::None, header)
    }
}
