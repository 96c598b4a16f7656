//! Each byte's place, beside a model that places bytes one after the other.

use spirula_denc::{Extent, decode_all, encode_to_vec};
use spirula_random::Rng;

use crate::{CodeKind, Error, Layout, Piece, Stripes, Unit};

/// Where the bytes of an object lie.
struct Model {
    /// The data unit and the offset in its fragment, by offsets in the object.
    places: Vec<(u8, u64)>,
    /// The stripe, by offsets in the object.
    stripes: Vec<u64>,
}

impl Model {
    fn new(layout: Layout, stripes: u64) -> Self {
        let (mut places, mut of) = (Vec::new(), Vec::new());
        let mut fragments = vec![0; usize::from(layout.k())];
        for stripe in 0..stripes {
            for data in 0..layout.k() {
                for _ in 0..layout.unit() {
                    let end: &mut u64 = &mut fragments[usize::from(data)];
                    places.push((data, *end));
                    of.push(stripe);
                    *end += 1;
                }
            }
        }
        Self { places, stripes: of }
    }

    fn len(&self) -> u64 {
        self.places.len() as u64
    }

    fn places(&self, range: Extent) -> &[(u8, u64)] {
        &self.places[range.offset as usize..range.end() as usize]
    }

    /// The ranges of these offsets.
    fn extents(offsets: impl Iterator<Item = u64>) -> Vec<Extent> {
        let mut sorted: Vec<u64> = offsets.collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut out: Vec<Extent> = Vec::new();
        for offset in sorted {
            match out.last_mut() {
                Some(last) if last.end() == offset => last.len += 1,
                _ => out.push(Extent { offset, len: 1 }),
            }
        }
        out
    }

    fn check(&self, layout: Layout, range: Extent) {
        let places = self.places(range);
        let pieces = Vec::from_iter(layout.pieces(range));
        let expanded: Vec<(u8, u64)> = pieces
            .iter()
            .flat_map(|p| (0..p.len).map(move |n| (p.data, p.fragment_offset + n)))
            .collect();
        assert!(expanded == places, "{layout:?}, {range:?}");
        let mut offset = range.offset;
        for piece in &pieces {
            assert_eq!(piece.offset, offset);
            assert!(piece.len > 0);
            offset += piece.len;
        }
        assert_eq!(offset, range.end());

        let parity = Vec::from_iter(layout.parity_extents(range));
        let expected = Self::extents(places.iter().map(|place| place.1));
        assert_eq!(parity, expected, "{layout:?}, {range:?}");

        for data in 0..layout.k() {
            let offsets = places.iter().filter(|place| place.0 == data).map(|place| place.1);
            let extent = layout.data_extent(data, range);
            let extents = if extent.len == 0 { vec![] } else { vec![extent] };
            assert_eq!(extents, Self::extents(offsets), "{layout:?}, {range:?}, {data}");
            let back = layout.logical(data, extent);
            assert!(back.eq(pieces.iter().copied().filter(|p| p.data == data)));
        }
        self.check_stripes(layout, range);
    }

    fn check_stripes(&self, layout: Layout, range: Extent) {
        let Stripes { touched, whole } = layout.stripes(range);
        let of = &self.stripes[range.offset as usize..range.end() as usize];
        let all = || of.chunk_by(|a, b| a == b);
        assert!(touched.eq(all().map(|same| same[0])), "{layout:?}, {range:?}");
        let width = layout.stripe_width() as usize;
        let full = all().filter(|same| same.len() == width).map(|same| same[0]);
        assert!(whole.clone().eq(full), "{layout:?}, {range:?}");
        for stripe in whole {
            let extent = layout.stripe(stripe).unwrap();
            assert!(range.offset <= extent.offset && extent.end() <= range.end());
        }
    }
}

fn layouts() -> impl Iterator<Item = Layout> {
    let shapes = [(1, 1), (2, 1), (3, 2), (4, 2)];
    shapes.into_iter().map(|(k, m)| Layout::new(k, m, 4096).unwrap())
}

#[test]
fn any_range_lies_where_its_bytes_do() {
    let mut rng = Rng::new(20);
    for layout in layouts() {
        let model = Model::new(layout, 4);
        for _ in 0..150 {
            let from = rng.below(model.len());
            // Short ones, and some that end where units do.
            let most = if rng.one_in(2) { 9000 } else { model.len() };
            let mut to = rng.between(from, model.len().min(from + most));
            if rng.one_in(3) {
                to = to.next_multiple_of(layout.unit());
            }
            model.check(layout, Extent::from(from..to));
        }
    }
}

#[test]
fn ranges_at_borders_lie_where_their_bytes_do() {
    for layout in layouts() {
        let model = Model::new(layout, 3);
        let borders = (0..=model.len()).step_by(layout.unit() as usize);
        let near: Vec<u64> = borders
            .flat_map(|b| [b.saturating_sub(1), b, b + 1, b + 2])
            .filter(|offset| *offset <= model.len())
            .collect();
        for (n, from) in near.iter().enumerate() {
            // All pairs would take long: from each, to the next few and to some of the others.
            for to in near[n..]
                .iter()
                .take(7)
                .chain(near[n..].iter().skip(7).step_by(5))
            {
                model.check(layout, Extent::from(*from..*to));
            }
        }
    }
}

#[test]
fn fragments_end_where_their_data_does() {
    for layout in layouts() {
        let model = Model::new(layout, 3);
        let mut lens = vec![0; usize::from(layout.k())];
        for size in 0..model.len() {
            for (data, len) in (0..layout.k()).zip(&lens) {
                assert_eq!(
                    layout.fragment_len(Unit::Data(data), size),
                    *len,
                    "{layout:?}, {size}"
                );
            }
            // The longest one, of each stripe, is as long as the longest of all.
            let longest = *lens.iter().max().unwrap();
            for parity in 0..layout.m() {
                assert_eq!(layout.fragment_len(Unit::Parity(parity), size), longest);
            }
            lens[usize::from(model.places[size as usize].0)] += 1;
        }
        for unit in [Unit::Data(layout.k()), Unit::Parity(layout.m())] {
            assert_eq!(layout.fragment_len(unit, 1 << 30), 0);
        }
    }
}

#[test]
fn roles_begin_with_data_unit_0_and_the_coding_units() {
    let layout = Layout::new(4, 2, Layout::DEFAULT_UNIT).unwrap();
    let units: Vec<_> = (0..=6).map(|role| layout.unit_of(role)).collect();
    let expected = [
        Some(Unit::Data(0)),
        Some(Unit::Parity(0)),
        Some(Unit::Parity(1)),
        Some(Unit::Data(1)),
        Some(Unit::Data(2)),
        Some(Unit::Data(3)),
        None,
    ];
    assert_eq!(units, expected);
    for (k, m) in super::shapes() {
        let layout = Layout::new(k, m, 4096).unwrap();
        let roles = (0..=255).filter_map(|role| layout.role_of(layout.unit_of(role)?));
        assert!(roles.eq(0..layout.roles()));
        for unit in [Unit::Data(k), Unit::Parity(m), Unit::Data(255), Unit::Parity(255)] {
            assert_eq!(layout.role_of(unit), None);
        }
    }
}

#[test]
fn the_last_offsets_are_no_trouble() {
    for layout in layouts() {
        let end = Extent {
            offset: u64::MAX - 10_000,
            len: 20_000,
        };
        assert_eq!(layout.pieces(end).map(|p| p.len).sum::<u64>(), 10_000);
        assert!((1..=2).contains(&layout.parity_extents(end).count()));
        let stripes = layout.stripes(end);
        assert!(stripes.touched.start <= stripes.whole.start && stripes.whole.end <= stripes.touched.end);
        let last = stripes.touched.end - 1;
        assert!(
            layout
                .stripe(last)
                .is_some_and(|stripe| stripe.end() > end.offset)
        );
        let _ = layout.stripe(u64::MAX);
        let longest = (u64::MAX / u64::from(layout.k())).saturating_add(layout.unit());
        assert!(layout.fragment_len(Unit::Parity(0), u64::MAX) <= longest);
        for data in 0..layout.k() {
            let pieces: Vec<Piece> = layout.logical(data, end).collect();
            assert_eq!(pieces.is_empty(), layout.k() > 1);
            let extent = layout.data_extent(data, end);
            let pieces = layout.logical(data, extent);
            assert!(pieces.eq(layout.pieces(end).filter(|p| p.data == data)));
        }
        for offset in [0, 5, u64::MAX] {
            let none = Extent { offset, len: 0 };
            assert_eq!(
                layout.pieces(none).count() + layout.parity_extents(none).count(),
                0
            );
            assert!(layout.stripes(none).touched.is_empty() && layout.stripes(none).whole.is_empty());
        }
    }
}

#[test]
fn the_encoding_stays_as_it_is() {
    let bytes = |k, m, unit| encode_to_vec(&Layout::new(k, m, unit).unwrap());
    assert_eq!(bytes(2, 1, 65536), [1, 2, 1, 16]);
    assert_eq!(bytes(21, 4, 4096), [1, 21, 4, 12]);
    assert_eq!(bytes(22, 4, 4096), [2, 22, 4, 12]);
    assert_eq!(bytes(8, 6, 4 << 20), [2, 8, 6, 22]);
    let layout: Layout = decode_all(&[2, 4, 2, 16]).unwrap();
    assert_eq!(layout.kind(), CodeKind::Cauchy);
    assert_eq!((layout.k(), layout.m(), layout.unit()), (4, 2, 65536));
    assert_eq!(layout.stripe_width(), 4 * 65536);
}

#[test]
fn what_is_no_layout_is_refused() {
    let mut accepted = 0;
    for kind in 0..=4 {
        for k in 0..=40 {
            for m in 0..=40 {
                for order in [0, 11, 12, 16, 22, 23, 31, 32, 63, 64, 255] {
                    let bytes = [kind, k, m, order];
                    if let Ok(layout) = decode_all::<Layout>(&bytes) {
                        assert_eq!(encode_to_vec(&layout), bytes);
                        let code = layout.code();
                        assert_eq!((code.k(), code.m()), (k, m));
                        accepted += 1;
                    }
                }
            }
        }
    }
    let shapes = super::shapes().count();
    let vandermonde = 31 + 30 + 29 + 21;
    assert_eq!(accepted, 3 * (shapes + vandermonde));
    assert!(decode_all::<Layout>(&[1, 2, 1]).is_err());
    for unit in [0, 1, 2048, 4095, 12288, 8 << 20] {
        assert_eq!(Layout::new(2, 1, unit), Err(Error::UnitSize(unit)));
    }
    assert_eq!(Layout::new(31, 2, 4096), Err(Error::Shape { k: 31, m: 2 }));
}
