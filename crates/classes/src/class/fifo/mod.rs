//! A log of entries that is written at one end and trimmed at the other, in objects of their own:
//! the parts. Formats and results are those of Ceph's `src/cls/fifo`, in which releases from 16.2.15
//! on agree; tags of parts, which earlier ones had, are empty.

mod info;
mod meta;
mod part;
mod part_reader;

use crate::method::class;

class! { "fifo" {
    "create_meta": RD | WR => meta::create;
    "get_meta": RD => meta::get;
    "update_meta": RD | WR => meta::update;

    "init_part": RD | WR => part::init;
    "push_part": RD | WR => part::push;
    "trim_part": RD | WR => part::trim;
    "part_list": RD => part::list;
    "get_part_info": RD => part::get_info;
} }

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::info::DataParams;
    use super::part::{InitOp, ListOp, ListReply, PushOp};
    use crate::testing::World;

    /// Ceph's class lists no entry that is longer than what it reads at once.
    #[test]
    fn long_entries_are_listed() {
        let mut world = World::default();
        let params = DataParams {
            max_part_size: 1 << 20,
            max_entry_size: 1 << 19,
            full_size_threshold: 1 << 19,
        };
        assert_eq!(
            world
                .call("fifo", "init_part", &encode_to_vec(&InitOp { params }))
                .0,
            0
        );
        let op = PushOp {
            entries: vec![vec![1; 200_000].into(), "short".into()],
            total_len: 200_005,
        };
        assert_eq!(world.call("fifo", "push_part", &encode_to_vec(&op)).0, 2);
        let list = ListOp {
            ofs: 0,
            max_entries: 9,
        };
        let (code, out) = world.call("fifo", "part_list", &encode_to_vec(&list));
        assert_eq!(code, 0);
        let reply: ListReply = decode_all(&out).unwrap();
        assert!(reply.entries.iter().map(|e| &e.data).eq(&op.entries));
    }
}
