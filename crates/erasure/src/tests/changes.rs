//! Changes of objects, carried out by all members, against a plain array of bytes.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_random::Rng;

use super::model::{ClientOp, Members, Object, asked, small};
use crate::{Change, FragmentExtents, Gather, Step};

#[test]
fn members_hold_what_the_client_wrote_whatever_the_ops() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (k, m) = [(2, 1), (3, 2), (4, 2), (1, 2), (5, 3)][seed as usize % 5];
        let layout = small(k, m);
        let (mut object, mut members) = (Object::default(), Members::new(layout));
        let most = layout.stripe_width() * 2 + layout.unit();
        for turn in 0..25 {
            let before = object.all.clone();
            let mut change = Change::new(before.bytes.len() as u64);
            let ops: Vec<ClientOp> = (0..=rng.index(3))
                .map(|_| ClientOp::random(&mut rng, most))
                .collect();
            ops.iter().for_each(|op| op.on(&mut object, &mut change));
            let what = format!("seed {seed}, turn {turn}");
            assert_eq!(change.size(), object.all.bytes.len() as u64, "{what}");
            let old = asked(&change, layout, &before);
            let steps = change.steps(layout, &old);
            assert_eq!(steps.is_empty(), change.is_nothing(), "{what}");
            members.carry_out(&steps);
            let found = members.object(change.size());
            assert!(found == object.all, "{what}: {ops:?} differ");
            members.check(change.size(), &what);
        }
    }
}

#[test]
fn what_is_new_as_a_whole_needs_no_old_bytes() {
    let layout = small(2, 1);
    let width = layout.stripe_width();
    let full = |len: u64| Bytes::from(vec![7; len as usize]);
    let needs = |size: u64, offset: u64, len: u64| {
        let mut change = Change::new(size);
        change.write(offset, full(len));
        change.old(layout)
    };
    // A new object, an append at the end of a stripe, whole stripes, and the end of an object.
    assert_eq!(needs(0, 0, 100), []);
    assert_eq!(needs(width, width, 100), []);
    assert_eq!(needs(4 * width, width, 2 * width), []);
    assert_eq!(needs(width + 100, width, 100), []);
    // An append within a stripe: there was nothing there.
    assert_eq!(needs(100, 100, 50), []);
    // Part of a stripe: what is overwritten, at both ends.
    assert_eq!(
        needs(3 * width, 10, 2 * width),
        [(10..width).into(), (2 * width..2 * width + 10).into()]
    );
    let mut gone = Change::new(3 * width);
    gone.truncate(0);
    assert_eq!(gone.old(layout), []);
    assert_eq!(gone.steps(layout, &[]), [Step::Truncate { size: 0 }]);
    let mut cut = Change::new(3 * width);
    cut.truncate(width + 5);
    assert_eq!(cut.old(layout), [(width + 5..2 * width).into()]);
}

#[test]
fn an_object_of_one_unit_is_the_same_on_m_and_one_members() {
    let layout = small(4, 2);
    let mut change = Change::new(0);
    change.write(10, Bytes::from_static(b"hello"));
    let mut members = Members::new(layout);
    members.carry_out(&change.steps(layout, &[]));
    for role in 0..layout.roles() {
        let fragment = &members.fragments[&role].bytes;
        match role {
            0..=2 => assert_eq!(fragment[10..], *b"hello", "role {role}"),
            _ => assert_eq!(fragment[..], [], "role {role}"),
        }
    }
}

#[test]
fn whatever_m_members_are_gone_the_object_can_be_read_and_they_rebuilt() {
    for (k, m) in [(2, 1), (3, 2), (4, 2), (1, 2), (4, 3)] {
        let layout = small(k, m);
        let mut rng = Rng::new(u64::from(k * 16 + m));
        let (mut object, mut members) = (Object::default(), Members::new(layout));
        let mut change = Change::new(0);
        for _ in 0..4 {
            ClientOp::random(&mut rng, 2 * layout.stripe_width() + 100).on(&mut object, &mut change);
        }
        members.carry_out(&change.steps(layout, &[]));
        let size = object.all.bytes.len() as u64;
        let sets = (0..1u32 << layout.roles()).filter(|s| s.count_ones() <= u32::from(m));
        for set in sets {
            let gone: BTreeSet<u8> = (0..layout.roles()).filter(|r| set & 1 << r != 0).collect();
            let present = layout.units_without(&gone);
            let (a, b) = (rng.index(size as usize) as u64, rng.index(size as usize) as u64);
            let range = Extent::from(a.min(b)..a.max(b));
            let found = members.read_without(&gone, range);
            let expected = &object.all.bytes[range.offset as usize..range.end() as usize];
            assert!(found == expected, "{k}+{m} without {gone:?}: {range:?}");
            for role in gone {
                let (unit, fragment) = (members.unit(role), &members.fragments[&role].bytes);
                let all = Extent::from(0..layout.fragment_len(unit, size));
                let wanted = FragmentExtents::from([(unit, vec![all])]);
                let gather = Gather::new(&members.code, present, wanted).unwrap();
                let made = gather.made(&members.read(gather.reads()));
                let (at, rebuilt) = &made[&unit][0];
                assert_eq!(*at, 0);
                let mut fragment = fragment.clone();
                fragment.resize(all.len as usize, 0);
                assert!(*rebuilt == fragment, "{k}+{m}: {unit:?} was rebuilt");
            }
        }
        let too_few = layout.units_without(&(0..=m).collect());
        assert!(Gather::new(&members.code, too_few, layout.data_extents(&[(0..size).into()])).is_err());
    }
}
