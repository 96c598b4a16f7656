//! Decodes everything that images read from pools, and runs the first computations on it: for the
//! fuzz target `rbd`.

use spirula_classes::rbd::migration::Migration;
use spirula_classes::rbd::{
    BitVector, ChildImageSpec, MirrorImage, ParentImageSpec, SnapshotInfo, Striping, TrashImage,
};
use spirula_denc::Extent;

use crate::cls::read;
use crate::image_file::read_image_head;
use crate::message::{Message, read_response};
use crate::{bounds, diff_file, journal, migration};

/// Decodes bytes as each kind of stored or sent structure that a client with write access to a pool
/// controls. Undecodable bytes, an error elsewhere, are ignored here.
///
/// # Panics
/// Where the reader has a defect.
pub fn read_stored(data: &[u8]) {
    header(data);
    let _ = (read::<BitVector>(data), read::<MirrorImage>(data));
    let _ = (read::<ChildImageSpec>(data), read::<TrashImage>(data));
    let _ = (Message::read(data), read_response(data));
    journal::read_stored(data);
    let _ = read_image_head(&mut &data[..]);
    diff_file::read_stored(data);
    if let Some(record) = read::<Migration>(data) {
        migration::read_stored(&record);
    }
}

/// Decodes a header, and computes the image's layout.
fn header(data: &[u8]) {
    let _ = (read::<ParentImageSpec>(data), read::<SnapshotInfo>(data));
    let Some(((order, size), Striping { unit, count })) = read::<((u8, u64), Striping)>(data) else {
        return;
    };
    let layout = bounds::object_size(order).and_then(|s| bounds::layout(s, unit, count));
    let (Ok(layout), Ok(size)) = (layout, bounds::size(size)) else {
        return;
    };
    let Some(last) = size.checked_sub(1) else {
        return;
    };
    let objects = layout.objects(size);
    for piece in layout.pieces(last, 1) {
        assert!(piece.object < objects, "the last byte is in no object");
        assert!(
            piece.offset < layout.object_len(piece.object, size),
            "it is behind its object's end"
        );
        let found = layout.whole_extents(piece.object, piece.offset, 1).next();
        let expected = Extent { offset: last, len: 1 };
        assert_eq!(found, Some(expected), "it is not found again");
    }
}
