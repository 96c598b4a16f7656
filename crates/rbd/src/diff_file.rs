//! Files with the differences of an image between two snapshots, in both formats (Ceph's
//! `doc/dev/rbd-diff.rst`): records of a tag and numbers, with data behind them.

use std::io::{self, Read, Write};

use spirula_client::errno::{self, Errno};

use crate::{Error, Result};

/// The first bytes of a file of format 1.
pub const BANNER: &str = "rbd diff v1\n";
/// The first bytes of a diff of format 2, which only occurs within the file of a whole image.
pub const BANNER_V2: &str = "rbd diff v2\n";
/// The longest snapshot name that is accepted.
const MAX_NAME: u32 = 4096;

/// The name of a range in messages about a missing end.
const IO_LENGTH: &str = "IO length";

const FROM: u8 = b'f';
const TO: u8 = b't';
const SIZE: u8 = b's';
const WRITE: u8 = b'w';
const ZERO: u8 = b'z';
const END: u8 = b'e';
const PROTECTED: u8 = b'p';

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Records without their length.
    V1,
    /// Records with their length, so that unknown ones can be skipped.
    V2,
}

impl Format {
    fn banner(self) -> &'static str {
        match self {
            Self::V1 => BANNER,
            Self::V2 => BANNER_V2,
        }
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The snapshot that the image must have before the import.
    From(String),
    /// The snapshot that the import takes at the end.
    To(String),
    /// Whether that snapshot is protected.
    Protected(bool),
    /// The image's size after the import.
    Size(u64),
    /// Data for a range of the image follows.
    Write {
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
    },
    /// A range that becomes zeros.
    Zero {
        /// Where it begins.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// An unknown record, whose bytes follow.
    Unknown {
        /// Its tag.
        tag: u8,
        /// The length of its bytes; 0 where the format does not tell.
        len: u64,
    },
    /// The last record of a diff.
    End,
}

/// The error of a failed read or write.
fn failed(e: &io::Error) -> Error {
    Error::os("file of differences", Errno::from(e))
}

/// Fills `buffer` from a file.
fn read(input: &mut impl Read, what: &'static str, buffer: &mut [u8]) -> Result<()> {
    input.read_exact(buffer).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::Cut(what),
        _ => failed(&e),
    })
}

/// Reads a file in either format (`stored.rs`).
pub(crate) fn read_stored(data: &[u8]) {
    for format in [Format::V1, Format::V2] {
        let Ok(mut reader) = RecordReader::new(data, format) else {
            continue;
        };
        while let Ok(record) = reader.record() {
            let skipped = match record {
                Record::End => break,
                Record::Write { len, .. } | Record::Unknown { len, .. } => reader.skip(len),
                _ => Ok(()),
            };
            if skipped.is_err() {
                break;
            }
        }
    }
}

/// Reads a file, record by record.
pub struct RecordReader<R> {
    input: R,
    format: Format,
}

impl<R: Read> RecordReader<R> {
    /// Reads the first line of the file, which names the format.
    ///
    /// # Errors
    /// `EINVAL` where that is something else, `EBADMSG` where it ends before.
    pub fn new(mut input: R, format: Format) -> Result<Self> {
        let mut banner = [0; BANNER.len()];
        read(&mut input, "diff banner", &mut banner)?;
        match banner == format.banner().as_bytes() {
            true => Ok(Self { input, format }),
            false => Err(Error::os("banner", errno::EINVAL)),
        }
    }

    /// Reads exactly as many bytes of data, or of a skipped record, as `buffer` holds.
    ///
    /// # Errors
    /// `EBADMSG` where the file ends before.
    pub fn data(&mut self, buffer: &mut [u8]) -> Result<()> {
        read(&mut self.input, "write data", buffer)
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// As [`RecordReader::data`].
    pub fn skip(&mut self, mut len: u64) -> Result<()> {
        let mut buffer = [0; 4096];
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
            read(&mut self.input, "skipped tag data", &mut buffer[..part])?;
            len -= part as u64;
        }
        Ok(())
    }

    fn number(&mut self, what: &'static str) -> Result<u64> {
        let mut bytes = [0; 8];
        read(&mut self.input, what, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn name(&mut self, what: &'static str) -> Result<String> {
        let mut len = [0; 4];
        read(&mut self.input, what, &mut len)?;
        let len = u32::from_le_bytes(len);
        if len > MAX_NAME {
            return Err(Error::os("name", errno::ERANGE));
        }
        let mut name = vec![0; len as usize];
        read(&mut self.input, what, &mut name)?;
        String::from_utf8(name).map_err(|_| Error::os("name", errno::EINVAL))
    }

    /// The next record. The data of a [`Record::Write`] has to be read, or skipped, before it.
    ///
    /// # Errors
    /// `EBADMSG` where the file ends amid it, `ERANGE` for a name that is too long.
    pub fn record(&mut self) -> Result<Record> {
        let mut tag = [0];
        read(&mut self.input, "tag", &mut tag)?;
        let [tag] = tag;
        let len = match (tag, self.format) {
            (END, _) => return Ok(Record::End),
            (_, Format::V1) => 0,
            (_, Format::V2) => self.number("tag length")?,
        };
        Ok(match tag {
            FROM => Record::From(self.name("start snap name")?),
            TO => Record::To(self.name("end snap name")?),
            SIZE => Record::Size(self.number("image size")?),
            PROTECTED if self.format == Format::V2 => {
                let mut flag = [0];
                read(&mut self.input, "snap protection status", &mut flag)?;
                Record::Protected(flag != [0])
            }
            WRITE => Record::Write {
                offset: self.number(IO_LENGTH)?,
                len: self.number(IO_LENGTH)?,
            },
            ZERO => Record::Zero {
                offset: self.number(IO_LENGTH)?,
                len: self.number(IO_LENGTH)?,
            },
            tag => Record::Unknown { tag, len },
        })
    }
}

/// The bytes of a record as they are in a file, without data.
pub fn encode(record: &Record, format: Format) -> Vec<u8> {
    let named = |tag: u8, name: &str| {
        let len = (name.len() as u32).to_le_bytes();
        (tag, [&len, name.as_bytes()].concat(), 0)
    };
    let ranged = |tag: u8, offset: u64, len: u64| (tag, [offset.to_le_bytes(), len.to_le_bytes()].concat());
    let (tag, body, data) = match record {
        Record::From(name) => named(FROM, name),
        Record::To(name) => named(TO, name),
        // Of a byte Ceph says that it is eight.
        Record::Protected(protected) => (PROTECTED, vec![u8::from(*protected)], 7),
        Record::Size(size) => (SIZE, size.to_le_bytes().to_vec(), 0),
        Record::Write { offset, len } => {
            let (tag, body) = ranged(WRITE, *offset, *len);
            (tag, body, *len)
        }
        Record::Zero { offset, len } => {
            let (tag, body) = ranged(ZERO, *offset, *len);
            (tag, body, 0)
        }
        Record::Unknown { tag, .. } => (*tag, Vec::new(), 0),
        Record::End => return vec![END],
    };
    let mut bytes = vec![tag];
    if format == Format::V2 {
        bytes.extend((body.len() as u64 + data).to_le_bytes());
    }
    bytes.extend(body);
    bytes
}

/// Writes the first line of a file.
///
/// # Errors
/// Where it can't be written.
pub fn write_banner(out: &mut impl Write, format: Format) -> Result<()> {
    out.write_all(format.banner().as_bytes()).map_err(|e| failed(&e))
}

/// Writes a record.
///
/// # Errors
/// Where it can't be written.
pub fn write(out: &mut impl Write, record: &Record, format: Format) -> Result<()> {
    write_data(out, &encode(record, format))
}

/// Writes the data of a record.
///
/// # Errors
/// Where it can't be written.
pub fn write_data(out: &mut impl Write, data: &[u8]) -> Result<()> {
    out.write_all(data).map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        vec![
            Record::From("one".to_owned()),
            Record::To("zwei".to_owned()),
            Record::Size(7),
            Record::Write { offset: 1, len: 3 },
            Record::Zero { offset: 4, len: 2 },
            Record::End,
        ]
    }

    fn file(format: Format, records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        write_banner(&mut out, format).unwrap();
        for record in records {
            write(&mut out, record, format).unwrap();
            if let Record::Write { len, .. } = record {
                write_data(&mut out, &vec![b'x'; *len as usize]).unwrap();
            }
        }
        out
    }

    #[test]
    fn what_is_written_is_read() {
        for format in [Format::V1, Format::V2] {
            let mut written = records();
            if format == Format::V2 {
                written.insert(2, Record::Protected(true));
            }
            let file = file(format, &written);
            let mut reader = RecordReader::new(&file[..], format).unwrap();
            for record in &written {
                assert_eq!(reader.record().unwrap(), *record);
                if let Record::Write { len, .. } = record {
                    reader.skip(*len).unwrap();
                }
            }
        }
    }

    /// As the document of the format has it.
    #[test]
    fn the_first_format_is_that_of_ceph() {
        let wanted = b"rbd diff v1\nf\x03\0\0\0onet\x04\0\0\0zweis\x07\0\0\0\0\0\0\0w\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0xxx\
            z\x04\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0e";
        assert_eq!(file(Format::V1, &records()), wanted);
    }

    #[test]
    fn what_is_cut_or_makes_no_sense_is_refused() {
        let whole = file(Format::V1, &records());
        for len in 0..whole.len() {
            let read = RecordReader::new(&whole[..len], Format::V1).and_then(|mut reader| {
                loop {
                    match reader.record()? {
                        Record::End => return Ok(()),
                        Record::Write { len, .. } => reader.skip(len)?,
                        _ => {}
                    }
                }
            });
            let e = read.unwrap_err();
            assert!(e.is(errno::EBADMSG), "{len}");
            let what = match len {
                ..=11 => "diff banner",
                12 | 20 | 29 | 38 | 58 => "tag",
                13..=19 => "start snap name",
                21..=28 => "end snap name",
                30..=37 => "image size",
                39..=54 | 59..=74 => IO_LENGTH,
                55..=57 => "skipped tag data",
                _ => "tag",
            };
            assert_eq!(e.to_string(), format!("failed to decode {what}"), "{len}");
        }
        assert!(RecordReader::new(&whole[..], Format::V2).is_err());
        let long = [b"rbd diff v1\nf".as_slice(), &u32::MAX.to_le_bytes()].concat();
        let mut reader = RecordReader::new(&long[..], Format::V1).unwrap();
        assert!(reader.record().unwrap_err().is(errno::ERANGE));
    }
}
