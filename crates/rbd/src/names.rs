//! The names of the objects that images consist of (Ceph's `src/include/rbd_types.h`).

use spirula_maps::PoolId;

/// The images of a pool or namespace by name and by id.
pub(crate) const DIRECTORY: &str = "rbd_directory";
/// The clones that hold on to protected snapshots.
pub(crate) const CHILDREN: &str = "rbd_children";
/// Images that can be restored.
pub(crate) const TRASH: &str = "rbd_trash";
/// The pool's namespaces.
pub(crate) const NAMESPACES: &str = "rbd_namespace";
/// The groups of a pool or namespace.
pub(crate) const GROUPS: &str = "rbd_group_directory";
/// The manager's tasks on the images of a pool or namespace.
pub(crate) const TASKS: &str = "rbd_task";
/// The mirroring mode of a pool or namespace, and its mirrored images.
pub(crate) const MIRRORING: &str = "rbd_mirroring";
/// Marks a pool as one for images.
pub(crate) const INFO: &str = "rbd_info";

/// Holds the id of the image with this name.
pub(crate) fn id_object(name: &str) -> String {
    format!("rbd_id.{name}")
}

/// The header of an image of the first format.
pub(crate) fn old_header(name: &str) -> String {
    format!("{name}.rbd")
}

/// The header of an image.
pub(crate) fn header(id: &str) -> String {
    format!("rbd_header.{id}")
}

/// The object map of an image, or of a snapshot of it.
pub(crate) fn object_map(id: &str, snap: Option<u64>) -> String {
    match snap {
        None => format!("rbd_object_map.{id}"),
        Some(snap) => format!("rbd_object_map.{id}.{snap:016x}"),
    }
}

/// The prefix of an image's data objects. In a data pool it names the header's pool too.
pub(crate) fn data_prefix(id: &str, pool_of_header: Option<PoolId>) -> String {
    match pool_of_header {
        None => format!("rbd_data.{id}"),
        Some(pool) => format!("rbd_data.{pool}.{id}"),
    }
}

/// The journal's header: its clients and tags, and the objects with its entries.
pub(crate) fn journal(id: &str) -> String {
    format!("journal.{id}")
}

/// One of the objects with a journal's entries.
pub(crate) fn journal_entries(id: &str, pool_of_header: PoolId, number: u64) -> String {
    format!("journal_data.{pool_of_header}.{id}.{number}")
}
