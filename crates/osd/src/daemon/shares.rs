//! What other OSDs read for this one.

use spirula_buf::Pool;

use crate::pg::message::{PeerBody, PeerMessage};

/// Copies what another OSD has read for this one into buffers of the pool of reads, where room was
/// taken for it. It stays until a client has taken it, while messages of other OSDs need the room that
/// it came in.
pub(super) fn keep_share(m: &mut PeerMessage, pool: &Pool) {
    let PeerBody::Fragment {
        found: Some(pieces), ..
    } = &mut m.body
    else {
        // All others leave their buffers soon.
        return;
    };
    let len = pieces.iter().map(|(_, piece)| piece.len()).sum();
    let mut all = pool.get(len);
    let mut at = 0;
    for (_, piece) in pieces.iter() {
        all[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    let mut all = all.freeze();
    for (_, piece) in pieces {
        *piece = all.split_to(piece.len());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spirula_maps::PgId;

    use super::*;

    #[test]
    fn shares_are_counted_with_reads() {
        let (arrived, reads) = (Pool::new(1 << 20), Pool::new(1 << 20));
        let mut buf = arrived.get(10_000);
        buf.fill(7);
        let buf = buf.freeze();
        let found = Some(vec![
            (5, buf.slice(..4000)),
            (8000, buf.slice(4000..)),
            (90_000, Bytes::new()),
        ]);
        let body = PeerBody::Fragment {
            number: (1, 0),
            found,
        };
        let mut m = PeerMessage {
            pgid: PgId::new(spirula_maps::PoolId::new(1), 0),
            id: Default::default(),
            body,
        };
        drop(buf);
        let before = format!("{:?}", m.body);
        keep_share(&mut m, &reads);
        assert_eq!(format!("{:?}", m.body), before);
        assert_eq!(arrived.in_use(), 0);
        assert!(reads.in_use() >= 10_000);
    }
}
