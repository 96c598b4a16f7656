//! Writes the first inputs of the targets for requests and commands: `cargo run -p spirula-fuzzing
//! --example request_seeds -- DIR`. Calls of class methods are recordings from Ceph, with the
//! objects on which they were made.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a tool for developers may stop"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use spirula_fuzzing::op_codes;
use spirula_proto::osd::OpCode;

struct Seeds {
    dir: PathBuf,
    count: usize,
}

impl Seeds {
    fn add(&mut self, target: &str, data: &[u8]) {
        let dir = self.dir.join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("seed-{:04}", self.count)), data).unwrap();
        self.count += 1;
    }
}

/// Bytes with their length in two bytes before them.
fn blob(b: &[u8]) -> Vec<u8> {
    [&u16::try_from(b.len()).unwrap().to_le_bytes()[..], b].concat()
}

/// Bytes with their length in one byte before them.
fn short(b: &[u8]) -> Vec<u8> {
    [&[u8::try_from(b.len()).unwrap()][..], b].concat()
}

fn hex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default, Clone)]
struct Object {
    exists: bool,
    data: Vec<u8>,
    header: Vec<u8>,
    attrs: Pairs,
    omap: Pairs,
}

impl Object {
    /// The input of the targets; `None` if the object does not fit into one.
    fn encode(&self) -> Option<Vec<u8>> {
        let has_omap = !self.omap.is_empty() || !self.header.is_empty();
        let mut out = vec![u8::from(self.exists) | u8::from(has_omap) << 1];
        out.extend(blob(&self.data));
        let put = |pairs: &Pairs, most: usize| {
            let fits = pairs.len() <= most && pairs.keys().all(|k| k.len() < 256);
            fits.then(|| {
                let mut out = vec![pairs.len() as u8];
                for (k, v) in pairs {
                    out.extend(short(k));
                    out.extend(blob(v));
                }
                out
            })
        };
        out.extend(put(&self.attrs, 15)?);
        if has_omap {
            out.extend(blob(&self.header));
            out.extend(put(&self.omap, 31)?);
        }
        Some(out)
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let mut seeds = Seeds {
        dir: dir.into(),
        count: 0,
    };
    methods(&mut seeds);
    ops(&mut seeds);
    commands(&mut seeds);
}

/// Adds for each method a recorded call on the object as it was before: the last call on an
/// existing object, if there is one that is not too large.
fn methods(seeds: &mut Seeds) {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../classes/testdata");
    let mut chosen: BTreeMap<(u8, u8), Vec<u8>> = BTreeMap::new();
    for (number, class) in spirula_classes::all().enumerate() {
        for file in [class.name.to_owned(), format!("{}_pool", class.name)] {
            let Ok(text) = fs::read_to_string(testdata.join(format!("{file}.txt"))) else {
                continue;
            };
            let mut now = Object::default();
            for line in text.lines() {
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["object", _] | ["absent"] => now = Object::default(),
                    ["exists"] => {
                        now = Object {
                            exists: true,
                            ..Object::default()
                        }
                    }
                    ["data" | "write", bytes] => (now.exists, now.data) = (true, hex(bytes)),
                    ["header", bytes] => now.header = hex(bytes),
                    ["attr" | "setxattr", name, value] => {
                        now.exists = true;
                        now.attrs.insert(hex(name), hex(value));
                    }
                    ["omap" | "omapset", key, value] => {
                        now.exists = true;
                        now.omap.insert(hex(key), hex(value));
                    }
                    ["call", _, method, input, "->", ..] => {
                        let at = class.methods.iter().position(|m| m.name == method).unwrap() as u8;
                        let call = [&[number as u8, at][..], &blob(&hex(input))].concat();
                        let seed = now.encode().map(|object| [object, call].concat());
                        let name = (number as u8, at);
                        let is_wanted = now.exists || !chosen.contains_key(&name);
                        if let Some(seed) = seed.filter(|s| is_wanted && s.len() < 700) {
                            chosen.insert(name, seed);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    chosen.values().for_each(|seed| seeds.add("class_methods", seed));
}

/// Adds each op with some arguments, on an object that has data, attributes and omap, and on none.
fn ops(seeds: &mut Seeds) {
    let pair = |k: &str, v: &str| (k.as_bytes().to_vec(), v.as_bytes().to_vec());
    let full = Object {
        exists: true,
        data: (0..200).collect(),
        header: b"header".to_vec(),
        attrs: [pair("_name", "value"), pair("_n", "7")].into(),
        omap: [pair("a", "1"), pair("b", "2"), pair("c", "3")].into(),
    };
    let u64s = |values: &[u64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let text = |t: &[u8]| [&(t.len() as u32).to_le_bytes()[..], t].concat();
    let list = |items: &[&[u8]]| -> Vec<u8> {
        let count = (items.len() as u32).to_le_bytes().to_vec();
        items.iter().fold(count, |out, i| [out, text(i)].concat())
    };
    let set = |k: &[u8], v: &[u8]| [&1_u32.to_le_bytes()[..], &text(k), &text(v)].concat();
    let cmp = [&set(b"a", b"1")[..], &3_u32.to_le_bytes()].concat();
    let attr = [&4_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), &[1, 1]].concat();
    let keys_of = [&text(b"")[..], &7_u64.to_le_bytes()].concat();
    let vals_of = [&keys_of[..], &text(b"")].concat();
    for (number, code) in op_codes().iter().enumerate() {
        let (args, data): (Vec<u8>, Vec<u8>) = match *code {
            OpCode::GETXATTR | OpCode::SETXATTR | OpCode::RMXATTR | OpCode::CMPXATTR => {
                (attr.clone(), b"namevalue".to_vec())
            }
            OpCode::OMAPGETKEYS => (vec![], keys_of.clone()),
            OpCode::OMAPGETVALS => (vec![], vals_of.clone()),
            OpCode::OMAPGETVALSBYKEYS | OpCode::OMAPRMKEYS => (vec![], list(&[b"a", b"c", b"x"])),
            OpCode::OMAPSETVALS => (vec![], set(b"d", b"4")),
            OpCode::OMAPRMKEYRANGE => (vec![], [text(b"a"), text(b"c")].concat()),
            OpCode::OMAP_CMP => (vec![], cmp.clone()),
            OpCode::WRITESAME => (u64s(&[10, 64, 4]), b"same".to_vec()),
            OpCode::CHECKSUM => ([u64s(&[0, 128]), vec![64, 0, 0, 0, 3]].concat(), vec![0; 4]),
            OpCode::CALL => (vec![5, 9, 0, 3, 0, 0, 0], b"hellosay_helloyou".to_vec()),
            OpCode::TMAPUP => (
                vec![],
                [&b"h"[..], &text(b"x"), &b"s"[..], &text(b"k"), &text(b"v")].concat(),
            ),
            _ => (u64s(&[10, 20]), b"01234567890123456789".to_vec()),
        };
        let op = |args: &[u8], data: &[u8]| [&[number as u8, 0][..], &short(args), &blob(data)].concat();
        for object in [&full, &Object::default()] {
            let object = object.encode().unwrap();
            let twice = [op(&args, &data), op(&u64s(&[0, 0]), b"")].concat();
            seeds.add("osd_ops", &[object, twice].concat());
        }
    }
    // An object whose info says another size, one that is damaged, and a write under snapshots.
    let full = full.encode().unwrap();
    for (flag, tail) in [
        (8, vec![0xff; 8]),
        (4, vec![2, 0, 0, 1, 1, 0, 1]),
        (32 | 16, vec![9, 0, 4]),
    ] {
        let mut object = full.clone();
        object[0] |= flag;
        for number in [0, 2, 12, 25] {
            let op = [&[number, 0][..], &short(&u64s(&[10, 20])), &blob(b"some data")].concat();
            seeds.add("osd_ops", &[object.clone(), tail.clone(), op].concat());
        }
    }
}

/// The input's form of a valid value for a parameter of this type.
fn value(kind: &str, strings: &str) -> Vec<u8> {
    let text = |t: &str| [&[1, 40][..], &blob(t.as_bytes())].concat();
    match kind {
        "CephBool" => vec![0],
        "CephPoolname" => vec![1, 1],
        "CephOsdName" => vec![1, 2],
        "CephPgid" => vec![1, 5],
        "CephInt" => vec![1, 27, 3],
        "CephFloat" => vec![1, 4],
        "CephEntityAddr" | "CephIPAddr" => vec![1, 22],
        "CephChoices" => text(strings.split('|').next().unwrap_or_default()),
        "CephUUID" => text("01010101-0101-0101-0101-010101010101"),
        _ => vec![1, 12],
    }
}

/// Adds each command with valid values, several commands an input; and texts that are no commands.
fn commands(seeds: &mut Seeds) {
    let descriptions = spirula_mon::command::descriptions();
    let all: Vec<Vec<u8>> = descriptions
        .as_object()
        .unwrap()
        .values()
        .enumerate()
        .map(|(number, c)| {
            let mut out = (number as u16).to_le_bytes().to_vec();
            for p in c["sig"].as_array().unwrap().iter().filter(|p| p.is_object()) {
                let strings = p["strings"].as_str().unwrap_or_default();
                out.extend(value(p["type"].as_str().unwrap_or_default(), strings));
            }
            // No format, nothing sent along.
            [out, vec![0, 0]].concat()
        })
        .collect();
    // A number behind the last one stands for a text.
    for some in all.chunks(8) {
        seeds.add("commands", &some.concat());
    }
    for text in [
        &br#"{"prefix":"status"}"#[..],
        br#"{"prefix":["status"]}"#,
        br#"{"prefix":"osd pool create","pool":"q","pg_num":"x"}"#,
        b"[[[[{}]]]]",
        b"\xff\xfe{",
    ] {
        seeds.add(
            "commands",
            &[&(all.len() as u16).to_le_bytes()[..], &blob(text), &[0]].concat(),
        );
        seeds.add("asok", &[&[11][..], &blob(text)].concat());
    }
    for number in 0..11_u8 {
        for fill in [1, 9, 19, 33] {
            seeds.add("asok", &[&[number][..], &[fill; 16]].concat());
        }
    }
    for told in [
        &br#"{"prefix":"config set","var":"mon_max_pg_per_osd","val":"-1"}"#[..],
        b"{\"prefix\":\"ops\"}",
        b"{\"prefix\":\"sessions\",\"format\":\"xml\"}",
    ] {
        seeds.add("asok", &[&[2, 40][..], &blob(told)].concat());
    }
}
