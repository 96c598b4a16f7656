//! The plugin jerasure: `ErasureCodeJerasure.cc`.

use super::reader::Reader;
use super::{Code, Padding, Profile};
use crate::command::{Reply, errno, refuse};

/// What a technique demands besides numbers of pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Vandermonde,
    Raid6,
    Cauchy,
    Liberation,
    BlaumRoth,
    Liber8tion,
}

/// A technique with its defaults.
struct Technique {
    name: &'static str,
    kind: Kind,
    k: i32,
    m: i32,
    w: i32,
}

const fn technique(name: &'static str, kind: Kind, k: i32, m: i32, w: i32) -> Technique {
    Technique { name, kind, k, m, w }
}

const TECHNIQUES: [Technique; 7] = [
    technique("reed_sol_van", Kind::Vandermonde, 7, 3, 8),
    technique("reed_sol_r6_op", Kind::Raid6, 7, 2, 8),
    technique("cauchy_orig", Kind::Cauchy, 7, 3, 8),
    technique("cauchy_good", Kind::Cauchy, 7, 3, 8),
    technique("liberation", Kind::Liberation, 2, 2, 7),
    technique("blaum_roth", Kind::BlaumRoth, 2, 2, 7),
    technique("liber8tion", Kind::Liber8tion, 2, 2, 8),
];

/// Bytes of the widest vector that the official plugin uses.
const VECTOR: u128 = 16;
/// Bytes of the words that it computes with.
const WORD: u128 = 4;

/// The numbers that a profile gives.
struct Numbers {
    k: i32,
    m: i32,
    w: i32,
    packet: i32,
    /// Whether pieces are padded each for itself.
    each: bool,
}

pub(super) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let name = profile.get("technique").cloned().unwrap_or_default();
    let Some(technique) = TECHNIQUES.iter().find(|t| t.name == name) else {
        let known: Vec<&str> = TECHNIQUES.iter().map(|t| t.name).collect();
        let known = known.join(", ");
        return refuse(
            errno::ENOENT,
            format!(
                "technique={name} is not a valid coding technique.  Choose one of the following: {known}"
            ),
        );
    };
    let mapping = profile.get("mapping").cloned().unwrap_or_default();
    let mut r = Reader::new(profile);
    let mut n = Numbers {
        k: r.int("k", technique.k),
        m: r.int("m", technique.m),
        w: r.int("w", technique.w),
        packet: 1,
        each: false,
    };
    let chunks = n.k.saturating_add(n.m);
    if !mapping.is_empty() && usize::try_from(chunks) != Ok(mapping.len()) {
        r.complain(format!(
            "mapping {mapping} maps {} chunks instead of the expected {chunks} and will be ignored",
            mapping.len()
        ));
    }
    r.counts(n.k, n.m);
    match technique.kind {
        Kind::Vandermonde => {
            check_word(&mut r, n.w, "ReedSolomonVandermonde", "8");
            n.each = r.flag("jerasure-per-chunk-alignment");
        }
        Kind::Raid6 => {
            if n.m != 2 {
                r.complain(format!(
                    "ReedSolomonRAID6: m={} must be 2 for RAID6: revert to 2",
                    n.m
                ));
            }
            check_word(&mut r, n.w, "ReedSolomonRAID6", "8 ");
        }
        Kind::Cauchy => {
            n.packet = r.int("packetsize", 2048);
            n.each = r.flag("jerasure-per-chunk-alignment");
        }
        Kind::Liberation | Kind::BlaumRoth | Kind::Liber8tion => check_bits(&mut r, &mut n, technique),
    }
    let (k, m) = r.finish(n.k, n.m)?;
    Ok(Code::new(k, m, padding(technique.kind, &n)))
}

fn check_word(r: &mut Reader<'_>, w: i32, who: &str, instead: &str) {
    if ![8, 16, 32].contains(&w) {
        r.complain(format!(
            "{who}: w={w} must be one of {{8, 16, 32}} : revert to {instead}"
        ));
    }
}

/// The checks of the techniques for two pieces of parity.
fn check_bits(r: &mut Reader<'_>, n: &mut Numbers, technique: &Technique) {
    let (kind, name) = (technique.kind, technique.name);
    let mut fixed = vec![("m", n.m, technique.m)];
    if kind == Kind::Liber8tion {
        fixed.push(("w", n.w, technique.w));
    }
    // Of those that do not check it, the official monitor dies by another m.
    for (property, is, default) in fixed.into_iter().filter(|(_, is, default)| is != default) {
        r.complain(format!(
            "{name}: {property}={is} must be {default} for {name}: revert to {default}"
        ));
    }
    n.packet = r.int("packetsize", 2048);
    let (k, w, packet) = (n.k, n.w, n.packet);
    if k > w {
        r.complain(format!("k={k} must be less than or equal to w={w}"));
    }
    match kind {
        Kind::Liberation if w <= 2 || !is_prime(w) => {
            r.complain(format!("w={w} must be greater than two and be prime"));
        }
        // 7 was the default once.
        Kind::BlaumRoth if w != 7 && (w <= 2 || !is_prime(w.saturating_add(1))) => {
            r.complain(format!("w={w} must be greater than two and w+1 must be prime"));
        }
        _ => {}
    }
    if packet == 0 {
        r.complain(format!("packetsize={packet} must be set"));
    } else if packet % 4 != 0 && kind != Kind::Liber8tion {
        r.complain(format!(
            "packetsize={packet} must be a multiple of sizeof(int) = 4"
        ));
    }
}

/// Whether a number is a prime up to 257, the largest that the official plugin knows.
fn is_prime(n: i32) -> bool {
    (2..=257).contains(&n) && (2..n).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

fn padding(kind: Kind, n: &Numbers) -> Padding {
    let positive = |n: i32| u128::try_from(n).unwrap_or(0);
    let unit = positive(n.w) * positive(n.packet);
    let alignment = match (n.each, kind) {
        (true, Kind::Cauchy) => unit.next_multiple_of(VECTOR),
        (true, _) => unit * VECTOR,
        (false, _) if (unit * WORD).is_multiple_of(VECTOR) => positive(n.k) * unit * WORD,
        (false, _) => positive(n.k) * unit * VECTOR,
    };
    Padding {
        // One that is too large leaves no stripe unit that fits.
        alignment: u64::try_from(alignment).unwrap_or(0),
        parts: n.k.unsigned_abs(),
        each: n.each,
    }
}
