//! CRUSH maps.

use spirula_crush::{CrushMap, Workspace};
use spirula_denc::{decode_all, encode_to_vec};

use crate::input::Input;

/// The draws per mapping: enough for every real case, few enough for many hostile ones.
pub(crate) const DRAWS: u64 = 5_000;

/// An input is the value to map (two bytes), the size of the result (one), and a map.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (x, size) = (i32::from(input.u16()), usize::from(input.u8()));
    let Ok(map) = decode_all::<CrushMap>(input.rest()) else {
        return;
    };
    let encoded = encode_to_vec(&map);
    let again = decode_all::<CrushMap>(&encoded);
    assert!(
        again.as_ref().is_ok_and(|m| encode_to_vec(m) == encoded),
        "a CRUSH map does not encode: {:?}",
        again.err()
    );
    let mut ws = Workspace::with_max_draws(DRAWS);
    let weights = [0x10000, 0x10000, 0x8000, 0, 0x10000, 1, u32::MAX, 0x10000];
    let mut out = Vec::new();
    for (rule, _) in map.iter_rules().take(8) {
        for pool in [None, Some(-1), Some(1)] {
            map.do_rule_with(&mut ws, rule, x, size, &weights, pool, &mut out);
            assert!(out.len() <= size, "more devices than wanted");
        }
        let _ = map.rule_device_shares(rule);
    }
    assert!(map.walk().take(5_000).count() <= 5_000);
    for id in -3..3 {
        let _ = (map.location(id), map.parent(id).is_some(), map.item_weight(id));
        let _ = (map.devices_below(id), map.class_of(id));
    }
    let _ = (map.roots(), map.plain_roots(), map.minimum_required_version());
}
