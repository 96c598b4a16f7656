//! Compares the mapper and the encoding with recordings of the official `crushtool`
//! (`testdata/make_golden.py`), and, if `crushtool` is installed, lets it decode our encoding.

// Helpers outside of #[test] functions fail a test the same way.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::process::Command;

use spirula_crush::{CrushMap, Workspace};
use spirula_denc::{Reader, Result, decode_all, encode_to_vec};

static GOLDEN: &[u8] = include_bytes!("../testdata/golden.bin");

struct Case {
    rule: u32,
    num_rep: u32,
    first: i32,
    inputs: u32,
    reweights: Vec<(i32, u32)>,
    hash: u64,
    head: Vec<Vec<i32>>,
}

struct Recorded {
    name: String,
    bytes: Vec<u8>,
    cases: Vec<Case>,
}

fn read_case(r: &mut Reader<'_>) -> Result<Case> {
    Ok(Case {
        rule: r.u32()?,
        num_rep: r.u32()?,
        first: r.i32()?,
        inputs: r.u32()?,
        reweights: r.get()?,
        hash: r.u64()?,
        head: r.get()?,
    })
}

fn recorded() -> Vec<Recorded> {
    let mut r = Reader::new(GOLDEN);
    let read = |r: &mut Reader<'_>| -> Result<Vec<Recorded>> {
        (0..r.u32()?)
            .map(|_| {
                Ok(Recorded {
                    name: r.string()?,
                    bytes: r.blob()?.to_vec(),
                    cases: (0..r.u32()?).map(|_| read_case(r)).collect::<Result<_>>()?,
                })
            })
            .collect()
    };
    let maps = read(&mut r).unwrap();
    r.finish().unwrap();
    maps
}

fn fnv(h: u64, word: u32) -> u64 {
    word.to_le_bytes()
        .iter()
        .fold(h, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// As crushtool's tester: devices that no bucket holds are out, the others in unless reweighted.
fn device_weights(map: &CrushMap, reweights: &[(i32, u32)]) -> Vec<u32> {
    let mut weights: Vec<u32> = (0..map.max_devices)
        .map(|d| if map.is_held(d) { 0x10000 } else { 0 })
        .collect();
    for (device, weight) in reweights {
        weights[*device as usize] = *weight;
    }
    weights
}

fn check(name: &str, map: &CrushMap, case: &Case, ws: &mut Workspace) {
    let weights = device_weights(map, &case.reweights);
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut out = Vec::new();
    for i in 0..case.inputs {
        let x = case.first + i as i32;
        map.do_rule_with(
            ws,
            case.rule,
            x,
            case.num_rep as usize,
            &weights,
            Some(0),
            &mut out,
        );
        if let Some(want) = case.head.get(i as usize) {
            assert_eq!(
                &out, want,
                "map {name} rule {} num-rep {} x {x}",
                case.rule, case.num_rep
            );
        }
        hash = fnv(hash, out.len() as u32);
        hash = out.iter().fold(hash, |h, v| fnv(h, *v as u32));
    }
    assert_eq!(
        hash, case.hash,
        "map {name} rule {} num-rep {} from {}",
        case.rule, case.num_rep, case.first
    );
}

#[test]
fn mappings_equal_those_of_crushtool() {
    let mut ws = Workspace::new();
    let mut mappings = 0;
    for m in recorded() {
        let map: CrushMap = decode_all(&m.bytes).unwrap();
        for case in &m.cases {
            check(&m.name, &map, case, &mut ws);
            mappings += case.inputs;
        }
    }
    assert!(mappings >= 50_000, "{mappings}");
}

#[test]
fn maps_encode_to_the_bytes_that_crushtool_wrote() {
    for m in recorded() {
        let map: CrushMap = decode_all(&m.bytes).unwrap();
        assert!(encode_to_vec(&map) == m.bytes, "map {}", m.name);
    }
}

#[test]
fn maps_of_older_releases_end_early() {
    let m = &recorded()[0];
    let full: CrushMap = decode_all(&m.bytes).unwrap();
    // From the end: choose_args (u32 0), three empty class maps, chooseleaf_stable,
    // allowed_bucket_algs, …
    let tail = [4, 4 + 12, 4 + 12 + 1, 21, 22, 23, 27, 39];
    for cut in tail {
        let old: CrushMap = decode_all(&m.bytes[..m.bytes.len() - cut]).unwrap();
        assert_eq!(old.buckets, full.buckets);
        assert_eq!(old.rule_names, full.rule_names);
    }
    let oldest: CrushMap = decode_all(&m.bytes[..m.bytes.len() - 39]).unwrap();
    assert_eq!(oldest.tunables, spirula_crush::Tunables::legacy());
    for cut in 0..m.bytes.len() - 39 {
        assert!(decode_all::<CrushMap>(&m.bytes[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn what_newer_releases_append_is_skipped() {
    let m = &recorded()[0];
    let newer = [m.bytes.as_slice(), &[100, 0, 0, 0, 100, 0, 0, 0]].concat();
    assert_eq!(decode_all::<CrushMap>(&newer), decode_all(&m.bytes));
}

/// Runs crushtool; `None` where it is not installed.
fn crushtool(args: &[&str]) -> Option<String> {
    let out = match Command::new("crushtool").args(args).output() {
        Ok(out) => out,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => panic!("{e}"),
    };
    assert!(
        out.status.success(),
        "crushtool {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = [out.stdout, out.stderr].concat();
    Some(String::from_utf8(text).unwrap())
}

#[test]
fn crushtool_reads_what_we_encode() {
    let dir = std::env::temp_dir().join(format!("spirula-crush-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (bin, text, again) = (path("map.bin"), path("map.txt"), path("again.bin"));
    for m in recorded()
        .iter()
        .filter(|m| !m.name.starts_with("args"))
        .step_by(7)
    {
        let map: CrushMap = decode_all(&m.bytes).unwrap();
        std::fs::write(&bin, encode_to_vec(&map)).unwrap();
        if crushtool(&["-d", &bin, "-o", &text]).is_none() {
            let _ = writeln!(std::io::stderr(), "SKIPPED golden: crushtool is not installed");
            break;
        }
        crushtool(&["-c", &text, "-o", &again, "--enable-unsafe-tunables"]);
        let again: CrushMap = decode_all(&std::fs::read(&again).unwrap()).unwrap();
        let mut ws = Workspace::new();
        for case in &m.cases {
            check(&m.name, &again, case, &mut ws);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
