//! A bucket in the list of its owner's buckets: `cls_user_bucket` and `cls_user_bucket_entry` of
//! Ceph's `src/cls/user/cls_user_types.h`.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, at_least, versioned};

/// A bucket's names, and where its data is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) name: Bytes,
    /// The id that the bucket had first.
    pub(super) marker: Bytes,
    /// The id of its present instance.
    pub(super) bucket_id: Bytes,
    /// The placement rule; if empty, the pools are given.
    pub(super) placement_id: Bytes,
    pub(super) data_pool: Bytes,
    pub(super) index_pool: Bytes,
    pub(super) data_extra_pool: Bytes,
}

/// Readers from before version 8 know no placement rule: without one the older form is written.
impl Encode for Bucket {
    fn encode(&self, w: &mut Writer) {
        if !self.placement_id.is_empty() {
            return w.section(9, 8, |w| {
                for text in [&self.name, &self.marker, &self.bucket_id, &self.placement_id] {
                    w.put(text);
                }
            });
        }
        w.section(7, 3, |w| {
            for text in [
                &self.name,
                &self.data_pool,
                &self.marker,
                &self.bucket_id,
                &self.index_pool,
                &self.data_extra_pool,
            ] {
                w.put(text);
            }
        });
    }
}

impl Decode for Bucket {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_user_bucket", 8, |version, r| {
            // Before that, ids were numbers.
            at_least("cls_user_bucket", version, 4)?;
            let mut bucket = Self {
                name: r.get()?,
                ..Self::default()
            };
            if version < 8 {
                bucket.data_pool = r.get()?;
            }
            bucket.marker = r.get()?;
            bucket.bucket_id = r.get()?;
            match version {
                4 => bucket.index_pool = bucket.data_pool.clone(),
                5..8 => bucket.index_pool = r.get()?,
                _ => bucket.placement_id = r.get()?,
            }
            if version == 7 {
                bucket.data_extra_pool = r.get()?;
            }
            if version == 8 && bucket.placement_id.is_empty() {
                bucket.data_pool = r.get()?;
                bucket.index_pool = r.get()?;
                bucket.data_extra_pool = r.get()?;
            }
            Ok(bucket)
        })
    }
}

versioned! {
    /// A bucket with its size: the value of its omap key, which is its name.
    #[derive(Eq)]
    pub(super) struct BucketEntry("cls_user_bucket_entry", version 9, compat 5, oldest 5, fix one_time) {
        /// Bytes.
        @reserved(Bytes = Bytes::new())
        pub(super) size: u64;
        /// The seconds of `creation_time`, for readers of versions below 7.
        pub(super) creation_secs: u32;
        /// Objects.
        pub(super) count: u64;
        pub(super) bucket: Bucket;
        /// Bytes, each object's rounded up to blocks.
        pub(super) size_rounded: u64;
        /// Whether the user's sum has this bucket's size.
        pub(super) user_stats_sync: bool, since 6;
        pub(super) creation_time: UTime, since 7;
    }
}

fn one_time(version: u8, entry: &mut BucketEntry) {
    match version {
        ..7 => entry.creation_time = UTime::from_secs(entry.creation_secs),
        7.. => entry.creation_secs = entry.creation_time.sec,
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    fn section(version: u8, compat: u8, texts: &[&str]) -> Vec<u8> {
        let mut w = Writer::new();
        w.section(version, compat, |w| texts.iter().for_each(|t| w.string(t)));
        w.into_vec()
    }

    #[test]
    fn buckets_of_every_version_are_read() {
        let bucket = Bucket {
            name: "b".into(),
            marker: "m".into(),
            bucket_id: "i".into(),
            data_pool: "d".into(),
            index_pool: "x".into(),
            data_extra_pool: "e".into(),
            ..Bucket::default()
        };
        let read = |bytes: &[u8]| decode_all::<Bucket>(bytes);
        let seven = section(7, 3, &["b", "d", "m", "i", "x", "e"]);
        assert_eq!(encode_to_vec(&bucket), seven);
        assert_eq!(read(&seven), Ok(bucket.clone()));
        let eight = section(8, 8, &["b", "m", "i", "", "d", "x", "e"]);
        assert_eq!(read(&eight), Ok(bucket.clone()));
        let six = read(&section(6, 3, &["b", "d", "m", "i", "x"])).unwrap();
        assert_eq!(
            (&six.index_pool[..], &six.data_extra_pool[..]),
            (&b"x"[..], &b""[..])
        );
        let four = read(&section(4, 3, &["b", "d", "m", "i"])).unwrap();
        assert_eq!(four.index_pool, four.data_pool);
        let placed = Bucket {
            placement_id: "p".into(),
            ..bucket
        };
        let nine = section(9, 8, &["b", "m", "i", "p"]);
        assert_eq!(encode_to_vec(&placed), nine);
        assert_eq!(read(&nine).unwrap().placement_id, "p");
        assert!(read(&section(3, 3, &["b", "d", "m"])).is_err());
    }
}
