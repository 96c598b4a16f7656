//! Merges two consecutive diffs into one (Ceph's `src/tools/rbd/action/MergeDiff.cc`).

use std::io::{Read, Write};

use spirula_client::errno::{self, Errno};

use crate::diff_file::{Format, Record, RecordReader, write, write_banner, write_data};
use crate::transfer::PART;
use crate::{Error, Progress, Result};

/// Why two files are not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The second does not begin where the first ends.
    #[error("The first TO snapshot must be equal with the second FROM snapshot, aborting")]
    NoSequel,
    /// A file can't be read or written.
    #[error("{what}")]
    Failed {
        /// The step that failed, and on which file.
        what: &'static str,
        /// The cause.
        source: Error,
    },
    /// A file's parts are not in order.
    #[error("out-of-order offset from {which} diff ({before} > {after})")]
    Disorder {
        /// The file: first or second.
        which: &'static str,
        /// The offset of the part before.
        before: u64,
        /// The offset of the part behind it.
        after: u64,
    },
}

impl MergeError {
    /// The errno that a user sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoSequel => errno::EINVAL,
            Self::Failed { source, .. } => source.errno(),
            Self::Disorder { .. } => errno::EOPNOTSUPP,
        }
    }
}

type Merged<T> = std::result::Result<T, MergeError>;

fn at<T>(what: &'static str, result: Result<T>) -> Merged<T> {
    result.map_err(|source| MergeError::Failed { what, source })
}

/// The records before the parts of a file.
#[derive(Default)]
struct Head {
    from: String,
    to: String,
    size: u64,
}

/// A part of the image that a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    offset: u64,
    len: u64,
    /// Its data follows in the file.
    has_data: bool,
}

/// One of the files.
struct Side<R> {
    which: &'static str,
    unreadable: &'static str,
    records: RecordReader<R>,
    head: Head,
    /// The record behind the head.
    first: Option<Record>,
    /// The rest of the part that was read last.
    part: Part,
    at_end: bool,
    /// The image's size after the other file.
    other_size: u64,
}

impl<R: Read> Side<R> {
    /// Reads the records before the parts.
    fn open(input: R, [which, bad_head, unreadable]: [&'static str; 3]) -> Merged<Self> {
        let mut records = at(bad_head, RecordReader::new(input, Format::V1))?;
        let mut head = Head::default();
        let first = loop {
            match at(bad_head, records.record())? {
                Record::From(name) => head.from = name,
                Record::To(name) => head.to = name,
                Record::Size(size) => head.size = size,
                other => break other,
            }
        };
        Ok(Self {
            which,
            unreadable,
            records,
            head,
            first: Some(first),
            part: Part {
                offset: 0,
                len: 0,
                has_data: false,
            },
            at_end: false,
            other_size: 0,
        })
    }

    /// Reads the next part once the last one is used up. Behind the last part comes the range by
    /// which the other file's image is larger.
    fn advance(&mut self) -> Merged<()> {
        if self.at_end || self.part.len > 0 {
            return Ok(());
        }
        let before = self.part.offset;
        let record = match self.first.take() {
            Some(record) => record,
            None => at(self.unreadable, self.records.record())?,
        };
        let refused = || Err(Error::os("merge", errno::EOPNOTSUPP));
        self.part = match record {
            Record::Write { offset, len } | Record::Zero { offset, len } if len > 0 => Part {
                offset,
                len,
                has_data: matches!(record, Record::Write { .. }),
            },
            Record::End => {
                self.at_end = true;
                Part {
                    offset: self.head.size,
                    len: self.other_size.saturating_sub(self.head.size),
                    has_data: false,
                }
            }
            _ => return at(self.unreadable, refused()),
        };
        match before > self.part.offset {
            true => Err(MergeError::Disorder {
                which: self.which,
                before,
                after: self.part.offset,
            }),
            false => Ok(()),
        }
    }

    /// Uses up the first bytes of the part, and writes them to `out` if there is one.
    fn take(&mut self, len: u64, out: Option<&mut dyn Write>) -> Merged<()> {
        const UNMERGED: &str = "failed to merge diff chunk";
        let Part { offset, has_data, .. } = self.part;
        self.part.offset += len;
        self.part.len -= len;
        let Some(mut out) = out else {
            let skipped = if has_data { self.records.skip(len) } else { Ok(()) };
            return at("failed to skip first diff data", skipped);
        };
        let record = match has_data {
            true => Record::Write { offset, len },
            false => Record::Zero { offset, len },
        };
        at(UNMERGED, write(&mut out, &record, Format::V1))?;
        let mut left = if has_data { len } else { 0 };
        let mut buffer = vec![0; usize::try_from(left.min(PART)).unwrap_or_default()];
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            at(UNMERGED, self.records.data(&mut buffer[..part]))?;
            at(UNMERGED, write_data(&mut out, &buffer[..part]))?;
            left -= part as u64;
        }
        Ok(())
    }
}

/// Merges the first diff and the one that follows it. The parts of each file must be in order.
///
/// # Errors
/// [`MergeError`].
pub fn merge_diff(
    first: impl Read,
    second: impl Read,
    out: &mut impl Write,
    progress: &Progress,
) -> Merged<()> {
    let mut first = Side::open(
        first,
        [
            "first",
            "failed to parse first diff header",
            "failed to read first diff data chunk header",
        ],
    )?;
    let mut second = Side::open(
        second,
        [
            "second",
            "failed to parse second diff header",
            "failed to read second diff data chunk header",
        ],
    )?;
    if first.head.to != second.head.from {
        return Err(MergeError::NoSequel);
    }
    first.other_size = second.head.size;
    second.other_size = first.head.size;
    let named =
        |name: &str, record: fn(String) -> Record| (!name.is_empty()).then(|| record(name.to_owned()));
    let records = [
        named(&first.head.from, Record::From),
        named(&second.head.to, Record::To),
        Some(Record::Size(second.head.size)),
    ];
    let mut bytes = Vec::new();
    at(
        "failed to write merged diff header",
        write_banner(&mut bytes, Format::V1),
    )?;
    for record in records.iter().flatten() {
        bytes.extend(crate::diff_file::encode(record, Format::V1));
    }
    at("failed to write merged diff header", write_data(out, &bytes))?;
    let total = first.head.size.max(second.head.size).saturating_mul(2);
    let meter = crate::progress::Meter::new(progress, total);
    loop {
        at(
            "merge",
            meter.reached(first.part.offset.saturating_add(second.part.offset)),
        )?;
        first.advance()?;
        second.advance()?;
        let (a, b) = (first.part, second.part);
        if a.len > 0 && a.offset < b.offset {
            first.take(a.len.min(b.offset - a.offset), Some(out))?;
        } else if a.len > 0 && a.offset < b.offset + b.len {
            first.take(a.len.min(b.offset + b.len - a.offset), None)?;
        } else if b.len > 0 {
            // The range that the image loses at its end is in no part.
            let lost = second.at_end;
            second.take(b.len, (!lost).then_some(out as &mut dyn Write))?;
        } else if a.len > 0 {
            // It is behind the end of its own image.
            first.take(a.len, None)?;
        } else if first.at_end && second.at_end {
            break;
        }
    }
    at("failed to merge diff chunk", write(out, &Record::End, Format::V1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records behind the head: tag, offset and data or length.
    fn file(from: &str, to: &str, size: u64, parts: &[(char, u64, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        write_banner(&mut out, Format::V1).unwrap();
        let named =
            |name: &str, record: fn(String) -> Record| (!name.is_empty()).then(|| record(name.to_owned()));
        let head = [
            named(from, Record::From),
            named(to, Record::To),
            Some(Record::Size(size)),
        ];
        for record in head.into_iter().flatten() {
            write(&mut out, &record, Format::V1).unwrap();
        }
        for (tag, offset, data) in parts {
            let (offset, len) = (*offset, data.len() as u64);
            if *tag == 'w' {
                write(&mut out, &Record::Write { offset, len }, Format::V1).unwrap();
                write_data(&mut out, data.as_bytes()).unwrap();
            } else {
                write(&mut out, &Record::Zero { offset, len }, Format::V1).unwrap();
            }
        }
        write(&mut out, &Record::End, Format::V1).unwrap();
        out
    }

    fn merged(first: &[u8], second: &[u8]) -> Merged<Vec<u8>> {
        let mut out = Vec::new();
        merge_diff(first, second, &mut out, &Progress::untold()).map(|()| out)
    }

    #[test]
    fn the_second_counts_where_both_tell_of_something() {
        let first = file(
            "",
            "b",
            30,
            &[('w', 0, "aaaaaaaa"), ('z', 10, "zz"), ('w', 20, "aaaa")],
        );
        let second = file(
            "b",
            "c",
            30,
            &[('w', 2, "bb"), ('w', 9, "bbbb"), ('z', 22, "zzzz")],
        );
        let wanted = file(
            "",
            "c",
            30,
            &[
                ('w', 0, "aa"),
                ('w', 2, "bb"),
                ('w', 4, "aaaa"),
                ('w', 9, "bbbb"),
                ('w', 20, "aa"),
                ('z', 22, "zzzz"),
            ],
        );
        assert_eq!(merged(&first, &second).unwrap(), wanted);
    }

    #[test]
    fn what_an_image_loses_is_left_out_and_what_it_gains_is_zeros() {
        let large = file("a", "b", 30, &[('w', 10, "aaaa"), ('w', 25, "aa")]);
        let small = file("b", "c", 20, &[]);
        assert_eq!(
            merged(&large, &small).unwrap(),
            file("a", "c", 20, &[('w', 10, "aaaa")])
        );
        let first = file("a", "b", 20, &[]);
        let second = file("b", "", 24, &[('w', 21, "b")]);
        assert_eq!(
            merged(&first, &second).unwrap(),
            file("a", "", 24, &[('z', 20, "z"), ('w', 21, "b"), ('z', 22, "zz")])
        );
    }

    #[test]
    fn what_does_not_follow_or_is_not_in_order_is_refused() {
        let first = file("", "b", 30, &[('w', 5, "a"), ('w', 0, "a")]);
        let second = file("b", "c", 30, &[]);
        assert!(matches!(merged(&second, &first), Err(MergeError::NoSequel)));
        assert!(matches!(
            merged(&first, &second),
            Err(MergeError::Disorder { .. })
        ));
        let cut = &second[..second.len() - 1];
        let sequel = file("c", "d", 30, &[]);
        assert_eq!(merged(cut, &sequel).unwrap_err().errno(), errno::EBADMSG);
    }
}
