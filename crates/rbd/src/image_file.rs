//! Whole images as files, with their snapshots: the second format of Ceph's `rbd export`
//! (`src/tools/rbd/action/Export.cc`). Layout, features and metadata come first; then a diff for
//! each snapshot and one for the image as it is.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use spirula_classes::rbd::{Features, Striping};
use spirula_client::errno;

use crate::diff::DiffOptions;
use crate::diff_file::{Format, write_data};
use crate::image::Image;
use crate::progress::Meter;
use crate::site::Options;
use crate::{CreateOptions, Error, Progress, Result};

const BANNER: &[u8; 13] = b"rbd image v2\n";
const DIFFS_BANNER: &[u8; 19] = b"rbd image diffs v2\n";
/// The longest record of the head that is accepted.
const MAX_RECORD: u64 = 1 << 20;
/// Bytes of all metadata of an image.
const MAX_METADATA: u64 = 64 << 20;

const ORDER: u8 = b'O';
const FEATURES: u8 = b'T';
const STRIPE_UNIT: u8 = b'U';
const STRIPE_COUNT: u8 = b'C';
const METADATA: u8 = b'M';
const END: u8 = b'E';

/// The head of a file: properties of its image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageHead {
    /// The size of its objects as a power of two.
    pub order: Option<u64>,
    /// The image's features.
    pub features: Option<Features>,
    /// The stripe unit in bytes.
    pub stripe_unit: Option<u64>,
    /// The stripe count: objects of an object set.
    pub stripe_count: Option<u64>,
    /// The image's metadata.
    pub metadata: BTreeMap<String, String>,
    /// The number of diffs that follow.
    pub diffs: u64,
}

fn number(tag: u8, value: u64) -> Vec<u8> {
    [&[tag][..], &8u64.to_le_bytes(), &value.to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

impl ImageHead {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = BANNER.to_vec();
        let numbers = [
            (ORDER, self.order),
            (FEATURES, self.features.map(|f| f.0)),
            (STRIPE_UNIT, self.stripe_unit),
            (STRIPE_COUNT, self.stripe_count),
        ];
        for (tag, value) in numbers {
            bytes.extend(value.map(|v| number(tag, v)).unwrap_or_default());
        }
        for (key, value) in &self.metadata {
            let pair = [text(key), text(value)].concat();
            bytes.push(METADATA);
            bytes.extend((pair.len() as u64).to_le_bytes());
            bytes.extend(pair);
        }
        bytes.push(END);
        bytes.extend(DIFFS_BANNER);
        bytes.extend(self.diffs.to_le_bytes());
        bytes
    }

    /// The options of an image that is imported from the file. Options that the user gives override
    /// the file's.
    pub fn options(&self, given: &CreateOptions) -> CreateOptions {
        let order = self.order.and_then(|o| u8::try_from(o).ok());
        let striping = self.stripe_unit.zip(self.stripe_count);
        CreateOptions {
            order: given.order.or(order),
            features: given.features.or(self.features).map(crate::create::creatable),
            striping: given
                .striping
                .or(striping.map(|(unit, count)| Striping { unit, count })),
            ..given.clone()
        }
    }
}

fn read<const N: usize>(input: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let cut = |_| Error::os("image file", errno::EBADMSG);
    input.read_exact(&mut bytes).map_err(cut)?;
    Ok(bytes)
}

fn read_text(bytes: &mut &[u8]) -> Result<String> {
    let len = u32::from_le_bytes(read(bytes)?) as usize;
    let invalid = || Error::os("image file", errno::EINVAL);
    let text = bytes.split_off(..len).ok_or_else(invalid)?;
    String::from_utf8(text.to_vec()).map_err(|_| invalid())
}

/// Reads the head of a file.
///
/// # Errors
/// `EINVAL` where it is no such file, `EBADMSG` where it is cut.
pub fn read_image_head(input: &mut impl Read) -> Result<ImageHead> {
    let invalid = || Error::os("image file", errno::EINVAL);
    if read::<{ BANNER.len() }>(input)? != *BANNER {
        return Err(invalid());
    }
    let (mut head, mut noted) = (ImageHead::default(), 0);
    loop {
        let [tag] = read(input)?;
        if tag == END {
            break;
        }
        let len = u64::from_le_bytes(read(input)?);
        if len > MAX_RECORD {
            return Err(invalid());
        }
        let mut record = vec![0; len as usize];
        let cut = |_| Error::os("image file", errno::EBADMSG);
        input.read_exact(&mut record).map_err(cut)?;
        let mut rest = &record[..];
        match tag {
            ORDER => head.order = Some(u64::from_le_bytes(read(&mut rest)?)),
            FEATURES => head.features = Some(Features(u64::from_le_bytes(read(&mut rest)?))),
            STRIPE_UNIT => head.stripe_unit = Some(u64::from_le_bytes(read(&mut rest)?)),
            STRIPE_COUNT => head.stripe_count = Some(u64::from_le_bytes(read(&mut rest)?)),
            METADATA => {
                noted += len;
                if noted > MAX_METADATA {
                    return Err(invalid());
                }
                let key = read_text(&mut rest)?;
                head.metadata.insert(key, read_text(&mut rest)?);
            }
            // One of another version.
            _ => {}
        }
    }
    if read::<{ DIFFS_BANNER.len() }>(input)? != *DIFFS_BANNER {
        return Err(invalid());
    }
    head.diffs = u64::from_le_bytes(read(input)?);
    Ok(head)
}

impl Image {
    /// Writes the image with its users' snapshots.
    ///
    /// # Errors
    /// Where it can't be read, or `out` can't be written; `ECANCELED` where the progress' listener
    /// ends it.
    pub async fn export_all(&self, out: &mut impl Write, progress: &Progress) -> Result<()> {
        self.refresh().await?;
        let (header, layout) = (self.header(), self.fixed().layout);
        let snapshots: Vec<&str> = header.user_snapshots().map(|s| s.name.as_str()).collect();
        let diffs = snapshots.len() as u64 + 1;
        let head = ImageHead {
            order: Some(self.fixed().order.into()),
            features: Some(header.features),
            stripe_unit: Some(layout.stripe_unit.into()),
            stripe_count: Some(layout.stripe_count.into()),
            metadata: self.metadata_list().await?,
            diffs,
        };
        write_data(out, &head.encode())?;
        let meter = Meter::new(progress, diffs);
        let mut from = None;
        for (n, snapshot) in (0..).zip(snapshots.iter().map(|s| Some(*s)).chain([None])) {
            let options = Options {
                read_only: true,
                snapshot: snapshot.map(str::to_owned),
                ..Options::default()
            };
            let image = Self::open_by_id(self.pool(), &self.name(), &self.fixed().id, options).await?;
            let since = DiffOptions {
                from: from.take(),
                ..DiffOptions::default()
            };
            image
                .export_diff(&since, Format::V2, out, &Progress::untold())
                .await?;
            meter.reached(if snapshot.is_none() { diffs } else { n })?;
            from = snapshot.map(str::to_owned);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ImageHead {
        ImageHead {
            order: Some(22),
            features: Some(Features(61)),
            stripe_unit: Some(4 << 20),
            stripe_count: Some(1),
            metadata: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
            diffs: 3,
        }
    }

    /// The bytes as Ceph 16.2.15 writes them.
    #[test]
    fn heads_are_those_of_ceph() {
        let bytes = head().encode();
        let number =
            |tag: u8, value: u64| [&[tag, 8, 0, 0, 0, 0, 0, 0, 0][..], &value.to_le_bytes()].concat();
        let wanted = [
            b"rbd image v2\n".to_vec(),
            number(b'O', 22),
            number(b'T', 61),
            number(b'U', 4 << 20),
            number(b'C', 1),
            b"M\x10\0\0\0\0\0\0\0\x03\0\0\0key\x05\0\0\0value".to_vec(),
            b"Erbd image diffs v2\n\x03\0\0\0\0\0\0\0".to_vec(),
        ]
        .concat();
        assert_eq!(bytes, wanted);
        assert_eq!(read_image_head(&mut &bytes[..]).unwrap(), head());
    }

    #[test]
    fn what_is_cut_or_something_else_is_refused() {
        let bytes = head().encode();
        for len in 0..bytes.len() {
            assert!(read_image_head(&mut &bytes[..len]).is_err(), "{len}");
        }
        assert!(
            read_image_head(&mut &b"rbd diff v1\n\0\0\0\0\0\0\0\0\0\0"[..])
                .unwrap_err()
                .is(errno::EINVAL)
        );
        let huge = [b"rbd image v2\nM".as_slice(), &u64::MAX.to_le_bytes()].concat();
        assert!(read_image_head(&mut &huge[..]).unwrap_err().is(errno::EINVAL));
    }
}
