//! The file format of `export` and `import` (Ceph's `src/tools/RadosDump.h`).
//!
//! A fixed head, then sections: a header with type and size, the content, and, behind content, a
//! footer with a magic number. An object is a section that names it, some with its data, attributes
//! and omap, and one that ends it. `ceph-objectstore-tool` writes PGs in the same format, with
//! other first and last sections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use bytes::Bytes;
use spirula_client::errno::Errno;
use spirula_client::{Listed, errno};
use spirula_denc::{Error, Reader, Result, Writer};
use spirula_maps::{HObject, snap};
use spirula_proto::osd_op_data::attr::ObjectInfo;

/// `0xffce` twice.
const MAGIC: u32 = 0xffce_ffce;
/// The second half of a header's type, and of a footer's magic number.
const SHORT_MAGIC: u32 = 0xffce;
const END_MAGIC: u32 = 0xecff_ffce;
/// The version that is written, and the newest that is read.
const VERSION: u32 = 2;
const HEADER_SIZE: usize = 18;
const FOOTER_SIZE: usize = 10;
/// The largest section that is accepted: an object's data comes in pieces of 4 MiB, a page of its
/// omap has 512 values.
const SECTION_MAX: u64 = 1 << 30;

/// The type of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    pub(super) const PG_BEGIN: Self = Self(1);
    pub(super) const PG_END: Self = Self(2);
    pub(super) const OBJECT_BEGIN: Self = Self(3);
    pub(super) const OBJECT_END: Self = Self(4);
    pub(super) const DATA: Self = Self(5);
    pub(super) const ATTRS: Self = Self(6);
    pub(super) const OMAP_HEADER: Self = Self(7);
    pub(super) const OMAP: Self = Self(8);
    pub(super) const PG_METADATA: Self = Self(9);
    pub(super) const POOL_BEGIN: Self = Self(10);
    pub(super) const POOL_END: Self = Self(11);

    /// Whether this version of the format has the type.
    pub(super) fn is_known(self) -> bool {
        self.0 <= Self::POOL_END.0
    }
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("Unexpected EOF")]
    Eof,
    #[error("Bad footer magic")]
    Footer,
    #[error("Invalid magic number: 0x{0:x} vs. 0x{MAGIC:x}")]
    Magic(u32),
    #[error("Can't handle export format version={0}")]
    Version(u32),
    #[error("malformed section: {0}")]
    Malformed(#[from] Error),
}

impl ReadError {
    /// The errno that the import ends with.
    pub(super) fn errno(&self) -> Errno {
        match self {
            Self::Version(_) => errno::EINVAL,
            // The official tool's errno for such files.
            _ => errno::EFAULT,
        }
    }
}

/// A section as it was read.
pub(super) struct Section {
    pub(super) kind: Kind,
    pub(super) content: Bytes,
}

/// Reads a file.
pub(super) struct DumpReader {
    source: Box<dyn Read>,
    header_size: usize,
    footer_size: usize,
}

impl DumpReader {
    /// Reads the head.
    pub(super) fn new(mut source: Box<dyn Read>) -> std::result::Result<Self, ReadError> {
        let mut head = [0; 16];
        source.read_exact(&mut head).map_err(|_| ReadError::Eof)?;
        let mut r = Reader::new(&head);
        let (magic, version) = (r.u32()?, r.u32()?);
        if magic != MAGIC {
            return Err(ReadError::Magic(magic));
        }
        if version > VERSION {
            return Err(ReadError::Version(version));
        }
        let mut size = |least: usize| {
            let size = r.u32()?;
            let size = usize::try_from(size).ok().filter(|s| (least..4096).contains(s));
            size.ok_or(Error::Invalid("size of headers or footers"))
        };
        Ok(Self {
            header_size: size(HEADER_SIZE)?,
            footer_size: size(FOOTER_SIZE)?,
            source,
        })
    }

    fn bytes(&mut self, len: usize) -> std::result::Result<Vec<u8>, ReadError> {
        // The buffer grows with the data that arrives, whatever the header claims.
        let mut data = Vec::new();
        let wanted = len as u64;
        match (&mut self.source).take(wanted).read_to_end(&mut data) {
            Ok(n) if n == len => Ok(data),
            _ => Err(ReadError::Eof),
        }
    }

    /// The next section.
    pub(super) fn next(&mut self) -> std::result::Result<Section, ReadError> {
        let header = self.bytes(self.header_size)?;
        let (kind, size) = Reader::new(&header).section("header", 1, |_, r| Ok((r.u32()?, r.u64()?)))?;
        let kind = Kind(kind.to_le_bytes()[3]);
        if size > SECTION_MAX {
            return Err(Error::Invalid("section size").into());
        }
        let content = self.bytes(usize::try_from(size).unwrap_or(usize::MAX))?;
        if size > 0 {
            let footer = self.bytes(self.footer_size)?;
            let magic = Reader::new(&footer).section("footer", 1, |_, r| r.u32())?;
            if magic != END_MAGIC {
                return Err(ReadError::Footer);
            }
        }
        Ok(Section {
            kind,
            content: content.into(),
        })
    }
}

/// The fields of a section.
fn parse<T>(content: &[u8], fields: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
    // Fields that newer writers append are skipped.
    Reader::new(content).section("section of a dump", 3, |_, r| fields(r))
}

/// The object that a section begins.
pub(super) fn object(content: &[u8]) -> Result<HObject> {
    parse(content, |r| r.get())
}

/// A piece of an object's data: its offset and bytes.
pub(super) fn data(content: &Bytes) -> Result<(u64, Bytes)> {
    parse(content, |r| {
        let (offset, len) = (r.u64()?, r.u64()?);
        let data = r.blob()?;
        if data.len() as u64 != len {
            return Err(Error::Invalid("data length"));
        }
        Ok((offset, content.slice_ref(data)))
    })
}

/// Attributes, or values of an object's map.
pub(super) fn values(content: &[u8]) -> Result<BTreeMap<Bytes, Bytes>> {
    parse(content, |r| r.get())
}

/// The header of an object's map.
pub(super) fn header(content: &[u8]) -> Result<Bytes> {
    parse(content, |r| r.get())
}

/// The PG of a PG's dump.
pub(super) fn pg_begin(content: &[u8]) -> Result<String> {
    parse(content, |r| r.get::<spirula_maps::PgId>()).map(|pg| pg.to_string())
}

/// Writes a file.
pub(super) struct DumpWriter<W>(W);

impl<W: Write> DumpWriter<W> {
    /// Writes the head and begins a pool.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut w = Writer::new();
        w.u32(MAGIC);
        w.u32(VERSION);
        w.u32(HEADER_SIZE as u32);
        w.u32(FOOTER_SIZE as u32);
        let mut dump = Self(out);
        dump.0.write_all(w.as_slice())?;
        dump.mark(Kind::POOL_BEGIN)?;
        Ok(dump)
    }

    fn header(&mut self, kind: Kind, size: usize) -> io::Result<()> {
        let mut w = Writer::with_capacity(HEADER_SIZE);
        let doubled = u32::from(kind.0) << 24 | u32::from(kind.0) << 16 | SHORT_MAGIC;
        w.section(1, 1, |w| {
            w.u32(doubled);
            w.u64(size as u64);
        });
        self.0.write_all(w.as_slice())
    }

    /// A section without content.
    pub(super) fn mark(&mut self, kind: Kind) -> io::Result<()> {
        self.header(kind, 0)
    }

    fn section(&mut self, kind: Kind, content: &[u8], rest: &[u8]) -> io::Result<()> {
        self.header(kind, content.len() + rest.len())?;
        self.0.write_all(content)?;
        self.0.write_all(rest)?;
        let mut w = Writer::with_capacity(FOOTER_SIZE);
        w.section(1, 1, |w| w.u32(END_MAGIC));
        self.0.write_all(w.as_slice())
    }

    fn plain(&mut self, kind: Kind, fields: impl FnOnce(&mut Writer)) -> io::Result<()> {
        let mut w = Writer::new();
        w.section(1, 1, fields);
        self.section(kind, w.as_slice(), &[])
    }

    /// Begins an object. Pool, hash and the object's information are left blank, as the official
    /// tool leaves them.
    pub(super) fn begin_object(&mut self, listed: &Listed) -> io::Result<()> {
        let object = HObject::new(
            BLANK_POOL,
            listed.nspace.clone(),
            listed.locator.clone(),
            listed.oid.clone(),
            snap::NOSNAP,
            0,
        );
        let mut w = Writer::new();
        w.section(3, 1, |w| {
            w.put(&object);
            // Generation and shard: none.
            w.u64(u64::MAX);
            w.i8(-1);
            w.put(&ObjectInfo::default());
        });
        self.section(Kind::OBJECT_BEGIN, w.as_slice(), &[])
    }

    /// A piece of data.
    pub(super) fn data(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        let mut w = Writer::new();
        w.u8(1);
        w.u8(1);
        // The section's length: two numbers, the length of the data, the data.
        w.u32(u32::try_from(20 + len).map_err(io::Error::other)?);
        w.u64(offset);
        w.u64(len);
        w.count(data.len());
        self.section(Kind::DATA, w.as_slice(), data)
    }

    /// Attributes, or values of the map.
    pub(super) fn values(&mut self, kind: Kind, values: &BTreeMap<Bytes, Bytes>) -> io::Result<()> {
        self.plain(kind, |w| w.put(values))
    }

    /// The header of the map.
    pub(super) fn omap_header(&mut self, header: &[u8]) -> io::Result<()> {
        self.plain(Kind::OMAP_HEADER, |w| w.blob(header))
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.mark(Kind::POOL_END)?;
        self.0.flush()?;
        Ok(self.0)
    }
}

/// The pool of objects that are in none.
const BLANK_POOL: i64 = i64::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool with four objects, exported by `rados export` 16.2.15: empty, with a locator, in a
    /// namespace, and with attributes and an omap.
    const RECORDED: &[u8] = include_bytes!("../../tests/data/pool.export");

    fn read(bytes: &'static [u8]) -> std::result::Result<Vec<Section>, ReadError> {
        let mut source = DumpReader::new(Box::new(bytes))?;
        let mut sections = Vec::new();
        loop {
            let section = source.next()?;
            let last = section.kind == Kind::POOL_END;
            sections.push(section);
            if last {
                return Ok(sections);
            }
        }
    }

    fn written(sections: &[Section]) -> Vec<u8> {
        let mut out = DumpWriter::new(Vec::new()).unwrap();
        for section in &sections[1..sections.len() - 1] {
            let content = &section.content;
            match section.kind {
                Kind::OBJECT_BEGIN => {
                    let object = object(content).unwrap();
                    let listed = Listed {
                        nspace: object.nspace,
                        oid: object.oid,
                        locator: object.key,
                    };
                    out.begin_object(&listed).unwrap();
                }
                Kind::DATA => {
                    let (offset, bytes) = data(content).unwrap();
                    out.data(offset, &bytes).unwrap();
                }
                Kind::ATTRS | Kind::OMAP => out.values(section.kind, &values(content).unwrap()).unwrap(),
                Kind::OMAP_HEADER => out.omap_header(&header(content).unwrap()).unwrap(),
                kind => out.mark(kind).unwrap(),
            }
        }
        out.finish().unwrap()
    }

    #[test]
    fn the_official_tools_file_is_read_and_written_byte_for_byte() {
        let sections = read(RECORDED).unwrap();
        let names: Vec<String> = sections
            .iter()
            .filter(|s| s.kind == Kind::OBJECT_BEGIN)
            .map(|s| object(&s.content).unwrap().to_string())
            .collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[0], "-9223372036854775808:00000000:::empty:head");
        assert_eq!(names[1], "-9223372036854775808:00000000::key:located:head");
        let maps = sections.iter().filter(|s| s.kind == Kind::OMAP);
        let map: Vec<_> = maps.flat_map(|s| values(&s.content).unwrap()).collect();
        assert_eq!(
            map,
            [
                (Bytes::from("k1"), Bytes::from("v1")),
                (Bytes::from("k2"), Bytes::new())
            ]
        );
        assert_eq!(written(&sections), RECORDED);
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        for end in 0..RECORDED.len() {
            assert!(matches!(read(&RECORDED[..end]), Err(ReadError::Eof)), "{end}");
        }
        let damaged = |at: usize, byte: u8| -> &'static [u8] {
            let mut bytes = RECORDED.to_vec();
            bytes[at] = byte;
            Vec::leak(bytes)
        };
        assert!(matches!(read(damaged(0, 0)), Err(ReadError::Magic(_))));
        assert!(matches!(read(damaged(4, 3)), Err(ReadError::Version(3))));
        assert!(matches!(read(damaged(8, 1)), Err(ReadError::Malformed(_))));
        let footer = RECORDED
            .windows(4)
            .position(|w| w == END_MAGIC.to_le_bytes())
            .unwrap();
        assert!(matches!(read(damaged(footer, 0)), Err(ReadError::Footer)));
        // A length of 2^63 is not believed.
        assert!(matches!(read(damaged(51, 0x80)), Err(ReadError::Malformed(_))));
    }
}
