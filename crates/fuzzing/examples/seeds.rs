//! Writes the first inputs of each target, from recordings of other crates: `cargo run -p
//! spirula-fuzzing --example seeds -- DIR`. Then `cargo fuzz cmin` chooses among them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a tool for developers may stop"
)]

use std::fs;
use std::path::{Path, PathBuf};

use spirula_cephx::CryptoKey;
use spirula_denc::{Reader, decode_all, encode_to_vec};
use spirula_fuzzing::kind;
use spirula_maps::{OsdMap, PoolId};
use spirula_proto::mon::MOsdMap;
use spirula_proto::osd::{MOsdOp, MOsdOpReply, OpCode};
use spirula_proto::{MsgHeader2, MsgType, RawMessage};

/// Larger seeds only slow the fuzzer down.
const MAX: usize = 6 << 10;

/// A key of type aes256k.
const KEY_256: &str = "AgA/sgZrpVKDFSAAppb21iFsIbF6ayugm/cTjF1Nw1ruhEPNr/cra19Js+c=";

struct Seeds {
    dir: PathBuf,
    count: usize,
}

impl Seeds {
    fn add(&mut self, target: &str, data: &[u8]) {
        if data.len() > MAX {
            return;
        }
        let dir = self.dir.join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("seed-{:04}", self.count)), data).unwrap();
        self.count += 1;
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    fs::read_to_string(crates().join(path)).expect(path)
}

fn bytes(path: &str) -> Vec<u8> {
    fs::read(crates().join(path)).expect(path)
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes();
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let mut seeds = Seeds {
        dir: dir.into(),
        count: 0,
    };
    messages(&mut seeds);
    own_messages(&mut seeds);
    maps(&mut seeds);
    chain(&mut seeds, "maps/testdata/chain-cluster.bin");
    chain(&mut seeds, "maps/testdata/chain-commands.bin");
    seeds.add(
        "small_maps",
        &[
            vec![kind("small_maps", "MonMap").unwrap()],
            bytes("maps/testdata/monmap.bin"),
        ]
        .concat(),
    );
    crush(&mut seeds);
    cephx(&mut seeds);
    texts(&mut seeds);
    msgr(&mut seeds);
    nbd(&mut seeds);
    store(&mut seeds);
    images(&mut seeds);
}

fn message_input(header: [u16; 3], front: &[u8], middle: &[u8], data: &[u8]) -> Vec<u8> {
    let lens = [middle, data].map(|s| u16::try_from(s.len()).unwrap_or(0));
    let mut out: Vec<u8> = header.iter().chain(&lens).flat_map(|n| n.to_le_bytes()).collect();
    for segment in [front, middle, data] {
        out.extend_from_slice(segment);
    }
    out
}

fn op_input(code: OpCode, args: &[u8; 28], data: &[u8]) -> Vec<u8> {
    [&code.0.to_le_bytes()[..], args, data].concat()
}

fn messages(seeds: &mut Seeds) {
    for line in text("proto/testdata/messages.txt")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, kind, version, compat, front, middle, data] = words[..] else {
            panic!("{line}");
        };
        let number = |s: &str| s.parse::<u16>().unwrap();
        let segment = |s: &str| if s == "-" { Vec::new() } else { hex(s) };
        let (front, middle, data) = (segment(front), segment(middle), segment(data));
        let header = [kind, version, compat].map(number);
        seeds.add("message", &message_input(header, &front, &middle, &data));
        let msg = RawMessage {
            header: MsgHeader2 {
                kind: MsgType(header[0]),
                version: header[1],
                compat_version: header[2],
                ..MsgHeader2::default()
            },
            front: front.into(),
            middle: middle.into(),
            data: data.into(),
        };
        op_seeds(seeds, &msg);
    }
    let structures = text("proto/testdata/structures.txt");
    for (name, encoded) in structures.lines().filter_map(|l| l.split_once(' ')) {
        let code = match name {
            "obj_list_snap_response_t" => OpCode::LIST_SNAPS,
            "obj_list_watch_response_t" => OpCode::LIST_WATCHERS,
            "pg_ls_response_t" => OpCode::PGLS,
            "pg_nls_response_t" => OpCode::PGNLS,
            _ => {
                if let Some(kind) = kind("small_maps", name) {
                    seeds.add("small_maps", &[vec![kind], hex(encoded)].concat());
                }
                continue;
            }
        };
        seeds.add("osd_op_data", &op_input(code, &[0; 28], &hex(encoded)));
    }
}

fn op_seeds(seeds: &mut Seeds, msg: &RawMessage) {
    if let Ok(m) = msg.decode::<MOsdOp>() {
        for op in &m.ops {
            seeds.add(
                "osd_op_data",
                &op_input(op.op.code, &op.op.raw_args, &op.data.to_bytes()),
            );
        }
    }
    if let Ok(m) = msg.decode::<MOsdOpReply>() {
        for out in &m.ops {
            seeds.add(
                "osd_op_data",
                &op_input(out.op.code, &out.op.raw_args, &out.data.to_bytes()),
            );
        }
    }
    if let Ok(m) = msg.decode::<MOsdMap>() {
        m.maps.values().for_each(|map| seeds.add("osdmap", map));
        m.incrementals
            .values()
            .for_each(|map| seeds.add("osdmap_incremental", map));
    }
}

/// Adds our own messages, of which there are no recordings: their variants with numbers for all
/// fields.
fn own_messages(seeds: &mut Seeds) {
    for kind in 0x7000..=0x7005 {
        for variant in 0..16 {
            for fill in [0, 1] {
                let front = [vec![variant], vec![fill; 256]].concat();
                seeds.add("message", &message_input([kind, 1, 1], &front, &[], &[]));
            }
        }
    }
}

fn maps(seeds: &mut Seeds) {
    let samples = ["maps/testdata/corpus.txt", "proto/testdata/structures.txt"].map(text);
    let lines = samples.iter().flat_map(|t| t.lines());
    for (name, encoded) in lines.filter_map(|l| l.split_once(' ')) {
        match name {
            "OSDMap" => seeds.add("osdmap", &hex(encoded)),
            "OSDMap::Incremental" => seeds.add("osdmap_incremental", &hex(encoded)),
            name => {
                if let Some(kind) = kind("small_maps", name) {
                    seeds.add("small_maps", &[vec![kind], hex(encoded)].concat());
                }
            }
        }
    }
}

/// A full map and the incrementals after it, each with its length before it.
fn chain(seeds: &mut Seeds, path: &str) {
    let recorded = bytes(path);
    let mut r = Reader::new(&recorded);
    let first = r.blob().unwrap();
    seeds.add("osdmap", first);
    let mut map = OsdMap::decode_with_crc(first).unwrap().0;
    while !r.is_empty() {
        let encoded = r.blob().unwrap();
        seeds.add("osdmap_incremental", encoded);
        map.apply(&decode_all(encoded).unwrap()).unwrap();
        if map.epoch.number().is_multiple_of(8) {
            seeds.add("osdmap", &map.encode_with_crc().0);
        }
    }
}

fn crush(seeds: &mut Seeds) {
    let mut add = |map: &[u8]| {
        if decode_all::<spirula_crush::CrushMap>(map).is_ok() {
            seeds.add("crush", &[&[7, 1, 3], map].concat());
        }
    };
    add(&bytes("crush/testdata/pacific-cluster.bin"));
    let edits = bytes("crush/testdata/edits.bin");
    let mut r = Reader::new(&edits);
    for _ in 0..r.u32().unwrap() {
        let _: Vec<String> = r.get().unwrap();
        add(r.blob().unwrap());
        add(r.blob().unwrap());
    }
    // Maps lie in the other recording as blobs: wherever one decodes.
    let golden = bytes("crush/testdata/golden.bin");
    for at in 4..golden.len() - 8 {
        if golden[at..].starts_with(&[0, 0, 1, 0])
            && let Ok(map) = Reader::new(&golden[at - 4..]).blob()
        {
            add(map);
        }
    }
}

fn cephx(seeds: &mut Seeds) {
    for (name, encoded) in text("cephx/tests/data/corpus.tsv")
        .lines()
        .filter_map(|l| l.split_once('\t'))
    {
        if let Some(kind) = kind("cephx_wire", name) {
            seeds.add("cephx_wire", &[vec![kind], hex(encoded)].concat());
        }
    }
    // By 20.2.4's ceph-authtool, with --key-type aes256k.
    if let Some(kind) = kind("cephx_wire", "CryptoKey") {
        let key = CryptoKey::from_base64(KEY_256).expect("a key");
        seeds.add("cephx_wire", &[vec![kind], encode_to_vec(&key)].concat());
    }
    // A client, a daemon, a client with a key of type aes256k.
    for daemon in [0, 1, 2] {
        for mode in [0x01, 0x81] {
            seeds.add(
                "cephx_server",
                &[daemon, mode, 0, mode, 0, 0x43, 0, 0x44, 0, 2, 3, 0, 1, 2, 3],
            );
            seeds.add("cephx_server", &[daemon, mode, 0, mode, 1, 5, 0, 2]);
            seeds.add("cephx_authorizer", &[daemon, mode, 0, mode, 0]);
            seeds.add("cephx_authorizer", &[daemon, mode, 0, mode, 1, 5, 0, 2]);
        }
    }
    seeds.add("cephx_server", &[0, 0, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    for place in 0..5 {
        for mode in [0, 8, 0x40, 0x80, 0x88, 0xc0] {
            seeds.add("cephx_client", &[place | mode, 0]);
            seeds.add("cephx_client", &[place | mode, 1, 9, 0, 4, 1, 2, 3, 4]);
        }
    }
}

fn texts(seeds: &mut Seeds) {
    for line in text("cephx/tests/data/caps.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        if let Some(caps) = line.split('\t').nth(1) {
            seeds.add("caps", caps.as_bytes());
        }
    }
    let key = "AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g==";
    for ring in [
        format!(
            "[client.admin]\n\tkey = {key}\n\tcaps mon = \"allow *\"\n\tcaps osd = \"allow rw pool=\\\"p\\\"\"\n"
        ),
        format!("# x\n[global]\nfoo = bar\n[mon.]\nkey={key} ; y\ncaps_mds = allow\\\n *\nauid = 0\n"),
        format!("[client.y]\n\tkey = {KEY_256}\n"),
        "[osd.0]\nkey = \"AQ\n[osd.1\n".to_owned(),
        "[mds.a]\ncaps mon = 'allow profile mds' x\n".to_owned(),
    ] {
        seeds.add("keyring", ring.as_bytes());
    }
    for conf in [
        "[global]\n\tfsid = 11111111-2222-3333-4444-555555555555\n\tmon_host = [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] \
         10.0.0.2\n[client]\nms client mode = secure ; x\nlog file = /var/log/$cluster-$name.log\n",
        "mon host = \"a\\\"b\"\n[osd]\nosd_memory_target=128Mi\n[osd.0]\nosd-data = /x\\\n/y # z\n[mon.a]\n",
        "[::1]:3300,v2:[fe80::1]:1/2",
        "10G",
        "1.5 TiB",
    ] {
        seeds.add("conf", conf.as_bytes());
    }
}

fn msgr(seeds: &mut Seeds) {
    for (side, file) in [
        (0, "crc.client"),
        (1, "crc.server"),
        (0, "secure.client"),
        (1, "secure.server"),
    ] {
        let recorded = bytes(&format!("msgr/testdata/mon-16.2.15/{file}"));
        for piece in [0, 3, 64] {
            seeds.add("msgr_raw", &[vec![side | piece << 1], recorded.clone()].concat());
        }
        // After the banner as a step of its own: the frames as they are.
        let (banner, rest) = recorded.split_at(26);
        let blob = |b: &[u8]| [&[0][..], &u16::try_from(b.len()).unwrap().to_le_bytes(), b].concat();
        seeds.add("msgr_frames", &[vec![side], blob(banner), blob(rest)].concat());
    }
    let message = [
        &[2, 1, 2, 0, 1, 4, 0, 2, 3, 0][..],
        b"frontmiddat",
        &[2, 2, 2, 0, 1, 0, 0, 0, 0, 0],
    ]
    .concat();
    let odd = [&[2 | 8 | 32, 1, 1, 2, 0, 1, 4, 0, 0, 0, 0][..], b"fron"].concat();
    let control = [
        1, 18, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 19, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 20, 8, 0, 9,
    ];
    let mut large = vec![2, 9, 2, 0, 1, 0, 4, 0, 0, 0x10];
    large.resize(large.len() + 0x1400, 0x55);
    let announce = [
        &[
            3, 17, 4, 41, 0, 0, 0, 8, 0, 0xff, 0, 0, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2,
        ][..],
        &[0; 40],
    ]
    .concat();
    for how in 0..4 {
        seeds.add("msgr_frames", &[vec![how], vec![4; 8]].concat());
        let refused = [
            1, 2, 21, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, b'b', 0, 0, 0, 0,
        ];
        seeds.add("msgr_frames", &[&[how, 4, 4][..], &refused, &refused].concat());
        for steps in [&message[..], &odd, &control, &large, &announce] {
            for piece in [0, 5, 31] {
                seeds.add("msgr_frames", &[&[how | 4 | piece << 3][..], steps].concat());
            }
        }
    }
}

/// One edit of each kind at each of the first used blocks.
fn store(seeds: &mut Seeds) {
    for block in 0..60 {
        for (edit, sealed) in [(0, 1), (1, 1), (2, 0), (3, 0), (64, 1), (64, 0)] {
            let at = [64, 12, 0, 0, 80, 5][(edit as usize + sealed as usize) % 6];
            seeds.add(
                "store",
                &[sealed, block, 0, at, 0, edit, 255, 255, 255, 255, 0, 0, 0, 0],
            );
        }
    }
}

/// Sessions of the NBD server: a handshake of some options, then requests.
fn nbd(seeds: &mut Seeds) {
    let option = |kind: u32, data: &[u8]| {
        let len = (data.len() as u32).to_be_bytes();
        [b"IHAVEOPT", &kind.to_be_bytes()[..], &len, data].concat()
    };
    let request = |kind: u16, flags: u16, offset: u64, len: u32| {
        let mut out = 0x2560_9513_u32.to_be_bytes().to_vec();
        out.extend(flags.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(7_u64.to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend(len.to_be_bytes());
        out
    };
    let context = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    let info = b"\0\0\0\x04disk\0\x03\0\x01\0\x02\0\x03";
    let requests: Vec<u8> = (0..9)
        .flat_map(|kind| {
            [
                request(kind, 0, 4096, 8192),
                request(kind, 1 << (kind % 5), 0, 512),
            ]
            .concat()
        })
        .collect();
    let sessions = [
        vec![
            option(8, &[]),
            option(9, context),
            option(10, context),
            option(7, info),
        ],
        vec![option(3, &[]), option(6, info), option(1, b"old")],
        vec![option(5, &[])],
        vec![option(8, &[]), option(2, &[])],
        vec![option(7, b"\0\0\0\x03old\0\0")],
        vec![
            option(11, &[]),
            option(3, b"x"),
            option(7, &[0xff; 8]),
            option(1, b"disk"),
        ],
    ];
    for (policy, session) in sessions.iter().enumerate() {
        // TLS where the session begins with it; else the policies in turn.
        let policy = if session[0] == option(5, &[]) {
            2
        } else {
            policy % 2
        };
        let mut out = vec![policy as u8];
        for piece in std::iter::once(3_u32.to_be_bytes().to_vec()).chain(session.iter().cloned()) {
            out.extend((piece.len() as u16).to_le_bytes());
            out.extend(piece);
        }
        out.extend(&requests);
        seeds.add("nbd", &out);
    }
}

/// Adds messages between the manager and its monitor, and stored data of images.
fn images(seeds: &mut Seeds) {
    use spirula_manager::{Basis, ImagesToName, News, Origin, Place, Reply, Request, TaskNews};
    let place = Place {
        pool: PoolId::new(3),
        namespace: "n".to_owned(),
    };
    let task = r#"{"sequence": 1, "id": "x", "message": "Flattening image p/i", "refs": {"action": "flatten", "pool_name": "p", "pool_namespace": "", "image_name": "i", "image_id": "10"}}"#;
    let origin = Origin {
        key: "task/3/n/x".to_owned(),
        text: task.to_owned(),
    };
    let images = ImagesToName {
        pool: PoolId::new(3),
        namespace: String::new(),
        ids: vec!["10".to_owned()],
    };
    let refs = serde_json::Map::from_iter([("action".to_owned(), serde_json::json!("flatten"))]);
    let basis = Basis::Stored {
        origin: origin.clone(),
        at: Some(place.clone()),
    };
    for news in [
        News::Reply(1, Reply::error(spirula_errno::ENOENT, "no")),
        News::Named(images.clone(), [("10".to_owned(), "i".to_owned())].into()),
        News::Task(TaskNews::Progress {
            id: "x".to_owned(),
            message: "m".to_owned(),
            share: 0.5,
            refs,
        }),
        News::Open {
            client: 1,
            place,
            basis,
        },
        News::Note { question: 1, origin },
        News::Tasks(["task/3/n/x".to_owned()].into()),
        News::Ended("why".to_owned()),
    ] {
        seeds.add("manager", &[vec![0], encode_to_vec(&news)].concat());
    }
    let login = Request::Login {
        client: 1,
        login: None,
    };
    for request in [Request::NameImages(images), login] {
        seeds.add("manager", &[vec![1], encode_to_vec(&request)].concat());
    }
    seeds.add("manager", format!("\x030000000000000001{task}").as_bytes());
    seeds.add("manager", b"\x03[{\"interval\": \"1d\", \"start_time\": \"14:00:00\"}, {\"interval\": \"5m\", \"start_time\": null}]");

    let entries = bytes("rbd/tests/data/journal_entries.bin");
    seeds.add("rbd", &entries);
    for at in [29, 60, 100] {
        seeds.add("rbd", entries.get(at..at + 200).unwrap_or_default());
    }
    let header = |order: u8, size: u64, unit: u64, count: u64| encode_to_vec(&((order, size), (unit, count)));
    for (order, size, unit, count) in [
        (22, 8 << 20, 4 << 20, 1),
        (12, 1 << 40, 4096, 1),
        (25, (1 << 62) - 1, 512, 60),
    ] {
        seeds.add("rbd", &header(order, size, unit, count));
    }
    let mut map = spirula_classes::rbd::BitVector::default();
    map.resize(100, 1);
    seeds.add("rbd", &encode_to_vec(&map));
}
