//! Input of the NBD server: a client's handshake in any pieces, then requests.

use bytes::{Bytes, BytesMut};
use spirula_nbd::handshake::{Agreed, ExportInfo, Negotiation, Step};
use spirula_nbd::request::{Command, Header, Terms, check};
use spirula_nbd::{BlockSizes, Extent, Geometry, TlsPolicy, reply, wire};

use crate::input::Input;

/// Bytes of the exported device.
const SIZE: u64 = 64 << 10;

fn exports() -> [ExportInfo; 2] {
    ["disk", "old"].map(|name| ExportInfo {
        name: name.into(),
        description: "an export".into(),
        geometry: Geometry {
            size: SIZE,
            read_only: name == "old",
            blocks: BlockSizes::default(),
        },
    })
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let policy = match input.u8() % 3 {
        0 => TlsPolicy::Off,
        1 => TlsPolicy::Optional,
        _ => TlsPolicy::Required,
    };
    let exports = exports();
    let mut negotiation = Negotiation::greeting(policy);
    let mut stream = BytesMut::new();
    loop {
        let step = negotiation.step(&mut stream, &exports);
        negotiation.take_output();
        match step {
            Step::Again => {}
            Step::Read if input.is_empty() => return,
            Step::Read => stream.extend_from_slice(input.blob()),
            Step::StartTls => negotiation.secured(),
            Step::Transmit(agreed) => {
                let rest = [&stream, input.rest()].concat();
                return requests(&rest, agreed, exports[agreed.export].geometry);
            }
            Step::Close => return,
        }
    }
}

/// Checks requests and makes replies to the allowed ones.
fn requests(data: &[u8], agreed: Agreed, geometry: Geometry) {
    let terms = Terms {
        geometry,
        structured: agreed.structured,
        allocation: agreed.allocation,
    };
    let mut input = Input::new(data);
    while !input.is_empty() {
        let mut bytes: [u8; Header::LEN] = input.array();
        assert_eq!(
            Header::decode(&bytes).is_some(),
            bytes.starts_with(&wire::REQUEST_MAGIC.to_be_bytes())
        );
        bytes[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        let Some(header) = Header::decode(&bytes) else {
            return;
        };
        let parts = match check(&header, &terms) {
            Err(refusal) => vec![reply::error(header.cookie, refusal.code, refusal.message)],
            Ok(Command::Read { offset, len, whole }) => {
                assert!(offset + u64::from(len) <= SIZE);
                let mut found = input.blob().to_vec();
                found.resize(len as usize, 0);
                reply::read(header.cookie, offset, found.into(), terms.structured, whole)
            }
            Ok(Command::BlockStatus { len, one, .. }) => {
                let lens = input.blob().as_chunks::<4>().0;
                let extents: Vec<Extent> = lens
                    .iter()
                    .map(|b| Extent {
                        len: u32::from_le_bytes(*b).into(),
                        hole: b[0] & 1 != 0,
                        zero: b[0] & 2 != 0,
                    })
                    .collect();
                vec![reply::block_status(header.cookie, len, one, &extents)]
            }
            Ok(_) => vec![Bytes::copy_from_slice(input.bytes(header.payload() as usize))],
        };
        assert!(!parts.is_empty());
    }
}
