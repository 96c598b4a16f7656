//! The clients' I/O on block images, counted by image while somebody wants to know it.
//!
//! An image is recognized by the names of its data objects, as Ceph's manager has its OSDs do it:
//! `rbd_data.ID.N`, and `rbd_data.POOL.ID.N` if the data is in another pool than the image;
//! likewise for the data of journals. A request counts when Ceph counts it: when it is answered,
//! and succeeded.

use std::hash::{Hash, Hasher};

use hashbrown::{Equivalent, HashMap};
use spirula_classes::Flags;
use spirula_denc::Micros;
use spirula_maps::PoolId;
use spirula_proto::internal::image_io::ImageIo as Counts;
use spirula_proto::osd::{OpCode, WriteSameArgs};

use super::op::{ClientOp, OsdOp};

/// The most images that are counted between two answers; more are left out.
const MAX_IMAGES: usize = 8192;
/// If an answer cannot hold all images, it holds the first this many by each of the numbers.
const MAX_TOLD: usize = 256;
/// The most bytes of an image's id. Real ones have some 14.
const MAX_ID: usize = 64;

/// An image, as named by its data objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImageName<'a> {
    pool: PoolId,
    nspace: &'a str,
    id: &'a str,
}

impl Hash for ImageName<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pool.hash(state);
        self.nspace.hash(state);
        self.id.hash(state);
    }
}

/// The key of a counted image.
#[derive(Debug, PartialEq, Eq)]
struct ImageKey {
    pool: PoolId,
    nspace: Box<str>,
    id: Box<str>,
}

impl ImageKey {
    fn name(&self) -> ImageName<'_> {
        ImageName {
            pool: self.pool,
            nspace: &self.nspace,
            id: &self.id,
        }
    }
}

impl Hash for ImageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Equivalent<ImageKey> for ImageName<'_> {
    fn equivalent(&self, key: &ImageKey) -> bool {
        *self == key.name()
    }
}

impl From<&ImageName<'_>> for ImageKey {
    fn from(n: &ImageName<'_>) -> Self {
        Self {
            pool: n.pool,
            nspace: n.nspace.into(),
            id: n.id.into(),
        }
    }
}

/// The image's pool, if the name has it, and the image's id.
fn image_of(object: &str) -> Option<(Option<PoolId>, &str)> {
    let rest = object
        .strip_prefix("rbd_data.")
        .or_else(|| object.strip_prefix("journal_data."))?;
    // The text after the id has no further point, so an id of digits is not taken for a pool.
    let (first, rest) = rest.split_once('.')?;
    if !first.is_empty()
        && first.bytes().all(|b| b.is_ascii_digit())
        && let Some((id, _)) = rest.split_once('.')
        && !id.is_empty()
    {
        return Some((Some(first.parse().ok()?), id));
    }
    (!first.is_empty()).then_some((None, first))
}

fn name_of(op: &ClientOp) -> Option<ImageName<'_>> {
    let (pool, id) = image_of(std::str::from_utf8(op.object.oid.as_bytes()).ok()?)?;
    let name = ImageName {
        pool: pool.unwrap_or(op.pgid.pool),
        nspace: std::str::from_utf8(op.object.nspace.as_bytes()).ok()?,
        id,
    };
    (id.len() <= MAX_ID).then_some(name)
}

/// The bytes that an executed op has written.
fn written(o: &OsdOp) -> u64 {
    match o.code {
        OpCode::WRITE | OpCode::WRITEFULL | OpCode::APPEND | OpCode::ZERO => o.extent().length,
        OpCode::WRITESAME => o.args::<WriteSameArgs>().length,
        // Of the methods that are called on data objects, those that write are given the data.
        OpCode::CALL => match &o.call {
            Some(c) if c.method.is_some_and(|m| m.flags.contains(Flags::WR)) => c.input.len() as u64,
            _ => 0,
        },
        _ => 0,
    }
}

/// Counts I/O by image. Idle until it is asked, and again when it has not been asked for some time.
#[derive(Debug, Default)]
pub struct ImageIo {
    /// The end of the counting, by a monotonic clock; zero while nobody asks.
    until: Micros,
    /// The pools of the counted images; empty for all.
    pools: Vec<PoolId>,
    images: HashMap<ImageKey, Counts>,
    /// The requests that were not counted, as too many other images were.
    left_out: u64,
}

impl ImageIo {
    /// Counts the images of these pools, or of all, until `until`; returns the
    /// counts since the last call.
    pub fn ask(&mut self, pools: Vec<PoolId>, until: Micros) -> Vec<Counts> {
        self.until = until.max(Micros::new(1));
        self.pools = pools;
        first_by_each(self.images.drain().map(|(_, counts)| counts).collect())
    }

    /// Ends the counting if nobody has asked for long.
    pub fn lapse(&mut self, usec: Micros) {
        if !self.until.is_zero() && usec >= self.until {
            *self = Self {
                left_out: self.left_out,
                ..Self::default()
            };
        }
    }

    /// The requests to images that were not counted, as there were too many other images.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Counts an executed request that is about to be answered; to be called before its reply takes
    /// its ops.
    pub(super) fn note(&mut self, op: &ClientOp, usec: Micros) {
        if !self.until.is_zero() && !op.client.is_internal() {
            self.count(op, usec);
        }
    }

    fn count(&mut self, op: &ClientOp, usec: Micros) {
        let Some(name) = name_of(op) else {
            // It is of no image.
            return;
        };
        if !self.pools.is_empty() && !self.pools.contains(&name.pool) {
            // Nobody asks about this pool.
            return;
        }
        let room = self.images.len() < MAX_IMAGES;
        let counts = match self.images.get_mut(&name) {
            Some(c) => c,
            None if room => self.images.entry(ImageKey::from(&name)).or_insert(Counts {
                pool: name.pool,
                nspace: name.nspace.to_owned(),
                id: name.id.to_owned(),
                ..Counts::default()
            }),
            None => {
                self.left_out += 1;
                return; // Its image is one too many until the next answer.
            }
        };
        let took = usec
            .saturating_sub(op.stamps.received)
            .count()
            .saturating_mul(1000);
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        let (reads, writes) = (op.may_read(), op.may_write());
        if writes {
            add(&mut counts.write_ops, 1);
            op.ops
                .iter()
                .for_each(|o| add(&mut counts.write_bytes, written(o)));
            add(&mut counts.write_latency, took);
        }
        if reads {
            add(&mut counts.read_ops, 1);
            add(&mut counts.read_latency, took);
        }
        if reads && !writes {
            let returned = op.ops.iter().map(|o| o.outdata.len() as u64).sum();
            add(&mut counts.read_bytes, returned);
        }
    }
}

/// All counts, if they are few; else the first by each of the numbers.
fn first_by_each(mut all: Vec<Counts>) -> Vec<Counts> {
    if all.len() <= MAX_TOLD {
        return all;
    }
    let mut told = Vec::new();
    for by in 0..Counts::default().numbers().len() {
        all.sort_unstable_by_key(|c| std::cmp::Reverse(c.numbers()[by]));
        told.extend(all.drain(..MAX_TOLD.min(all.len())));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_the_names_of_their_objects() {
        for (object, image) in [
            ("rbd_data.10a2b3.0000000000000001", Some((None, "10a2b3"))),
            ("rbd_data.7.10a2b3.0000000000000001", Some((Some(7), "10a2b3"))),
            // An id of digits, whose data is in the image's pool.
            ("rbd_data.123456.0000000000000001", Some((None, "123456"))),
            ("rbd_data.7.123456.0000000000000001", Some((Some(7), "123456"))),
            ("journal_data.7.10a2b3.0", Some((Some(7), "10a2b3"))),
            ("rbd_data.10a2b3", None),
            ("rbd_data..1", None),
            ("rbd_header.10a2b3", None),
            ("xrbd_data.10a2b3.1", None),
            ("rbd_data.99999999999999999999.a.1", None),
            ("", None),
        ] {
            let image = image.map(|(pool, id)| (pool.map(PoolId::new), id));
            assert_eq!(image_of(object), image, "{object}");
        }
    }

    #[test]
    fn of_many_images_those_are_told_of_that_are_first_by_some_number() {
        let image = |n: u64| Counts {
            id: n.to_string(),
            write_ops: n,
            read_latency: 10_000 - n,
            ..Counts::default()
        };
        let few: Vec<Counts> = (0..MAX_TOLD as u64).map(image).collect();
        assert_eq!(first_by_each(few.clone()), few);
        let told = first_by_each((0..5000).map(image).collect());
        assert!(told.len() <= 6 * MAX_TOLD);
        let has = |n: u64| told.iter().filter(|c| c.write_ops == n).count();
        assert_eq!((has(4999), has(4999 - 255), has(0), has(255)), (1, 1, 1, 1));
    }

    #[test]
    fn nothing_is_kept_when_nobody_asks_any_more() {
        let mut io = ImageIo::default();
        assert!(io.ask(vec![PoolId::new(1)], Micros::new(50)).is_empty());
        io.images.insert(
            ImageKey {
                pool: PoolId::new(1),
                nspace: "".into(),
                id: "a".into(),
            },
            Counts::default(),
        );
        io.lapse(Micros::new(49));
        assert_eq!(io.images.len(), 1);
        io.lapse(Micros::new(50));
        assert!(io.images.is_empty() && io.until.is_zero());
    }
}
