//! The plugin lrc: `ErasureCodeLrc.cc`. Layers of other codes, of which some span few pieces that
//! lie near each other.

use serde_json::Value;
use spirula_crush::{CrushMap, Op, SimpleRule};

use super::json::{self, type_number};
use super::reader::Reader;
use super::{Code, Profile, braces, parse_words};
use crate::command::errno::{self, Errno};
use crate::command::{Reply, refuse};

/// What stands for a number that is not given.
const NONE: i32 = -1;

/// The largest number that is made layers of. No pool has as many pieces.
const MOST: i32 = 255;

/// The plugin's own error numbers begin behind the system's.
const fn own(n: i32) -> Errno {
    match Errno::new(errno::MAX_ERRNO + n) {
        Some(errno) => errno,
        None => errno::EINVAL,
    }
}

const NOT_ARRAY: Errno = own(1);
const NOT_TEXT: Errno = own(4);
const NO_LAYERS: Errno = own(6);
const NOT_JSON: Errno = own(7);
const NO_MAPPING: Errno = own(8);
const WRONG_LENGTH: Errno = own(9);
const NOT_PLUGIN: Errno = own(12);
const TOO_FEW_LAYERS: Errno = own(13);
const STEP_OP: Errno = own(14);
const STEP_TYPE: Errno = own(15);
const STEP_NUMBER: Errno = own(16);
const SOME_NUMBERS: Errno = own(17);
const GENERATED: Errno = own(18);
const CHUNKS_MODULO: Errno = own(19);
const DATA_MODULO: Errno = own(20);
const CODING_MODULO: Errno = own(21);

/// A step of the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Whether devices are chosen, and not only buckets.
    leaf: bool,
    kind: String,
    count: i32,
}

/// What numbers of pieces stand for.
struct Generated {
    mapping: String,
    layers: String,
    steps: Vec<Step>,
}

/// A rule of such steps.
pub(super) fn add_rule(
    crush: &mut CrushMap,
    rule: &SimpleRule<'_>,
    steps: &[Step],
) -> Result<u32, spirula_crush::Error> {
    crush.add_rule_of(rule, |crush| {
        let step = |s: &Step| {
            let op = if s.leaf {
                Op::CHOOSELEAF_INDEP
            } else {
                Op::CHOOSE_INDEP
            };
            let kind = crush.type_id(&s.kind);
            let kind = kind.ok_or_else(|| spirula_crush::Error::UnknownType(s.kind.clone()))?;
            Ok(spirula_crush::Step::new(op, s.count, kind))
        };
        steps.iter().map(step).collect()
    })
}

pub(super) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let generated = numbers(profile)?;
    let mut steps = vec![Step {
        leaf: true,
        kind: "host".to_owned(),
        count: 0,
    }];
    // Not what was generated: it would be shown to everybody.
    let mapping = generated.as_ref().map(|g| g.mapping.clone());
    let layers = generated.as_ref().map(|g| g.layers.clone());
    if let Some(g) = generated {
        steps = g.steps;
    }
    for (name, default) in [("crush-root", "default"), ("crush-device-class", "")] {
        Reader::new(profile).text(name, default);
    }
    if let Some(text) = profile.get("crush-steps") {
        steps = read_steps(text)?;
    }
    let Some(layers) = layers.or_else(|| profile.get("layers").cloned()) else {
        return refuse(
            NO_LAYERS,
            format!("could not find 'layers' in {}", braces(profile)),
        );
    };
    let (maps, first) = read_layers(&layers)?;
    let Some(mapping) = mapping.or_else(|| profile.get("mapping").cloned()) else {
        return refuse(
            NO_MAPPING,
            format!("the 'mapping' profile is missing from {}", braces(profile)),
        );
    };
    let Some(first) = first else {
        return refuse(
            TOO_FEW_LAYERS,
            format!("layers parameter has 0 which is less than the minimum of one. {layers}"),
        );
    };
    let length = mapping.len();
    if let Some(map) = maps.iter().find(|map| map.len() != length) {
        // The official text counts no positions.
        return refuse(
            WRONG_LENGTH,
            format!(
                "the first element of the array at position 0 (starting from zero)  is the string '{map} found in the layers parameter {layers}. It is expected to be {length} characters long but is {} characters long instead ",
                map.len()
            ),
        );
    }
    let data = count(&mapping, "D");
    let chunks = u32::try_from(length).unwrap_or(u32::MAX);
    if data == 0 {
        return refuse(errno::EINVAL, format!("mapping {mapping} has no data"));
    }
    Ok(Code {
        data,
        chunks,
        padding: first.padding,
        steps: Some(steps),
    })
}

/// How many characters of a map are one of these.
fn count(map: &str, of: &str) -> u32 {
    let found = map.chars().filter(|c| of.contains(*c)).count();
    u32::try_from(found).unwrap_or(u32::MAX)
}

/// Reads k, m and l, and makes of them what else would be given instead.
fn numbers(profile: &mut Profile) -> Result<Option<Generated>, Reply> {
    let mut r = Reader::new(profile);
    let numbers = ["k", "m", "l"].map(|name| r.int(name, NONE));
    let misread = r.finish(0, 0).err();
    let said = braces(profile);
    let no = |code: Errno, why: String| {
        // Of several complaints the first is told, with the last one's number.
        let why = format!("{why} in {said}");
        refuse(code, misread.as_ref().map_or(why, |first| first.status.clone()))
    };
    match numbers.iter().filter(|n| **n == NONE).count() {
        0 => {}
        3 => return misread.map_or(Ok(None), Err),
        _ => {
            return no(
                SOME_NUMBERS,
                "All of k, m, l must be set or none of them".to_owned(),
            );
        }
    }
    for name in ["mapping", "layers", "crush-steps"] {
        if profile.contains_key(name) {
            let why = format!("The {name} parameter cannot be set when k, m, l are set");
            return no(GENERATED, why);
        }
    }
    if let Some(n) = numbers.iter().find(|n| **n > MOST) {
        return no(
            errno::EINVAL,
            format!("k, m and l must be at most {MOST} and not {n}"),
        );
    }
    let [k, m, l] = numbers.map(|n| u32::try_from(n).unwrap_or(0));
    if l == 0 || !(k + m).is_multiple_of(l) || k + m == 0 {
        return no(CHUNKS_MODULO, "k + m must be a multiple of l".to_owned());
    }
    let groups = (k + m) / l;
    if !k.is_multiple_of(groups) {
        return no(DATA_MODULO, "k must be a multiple of (k + m) / l".to_owned());
    }
    if !m.is_multiple_of(groups) {
        return no(CODING_MODULO, "m must be a multiple of (k + m) / l".to_owned());
    }
    Ok(Some(generate(profile, k / groups, m / groups, groups)))
}

/// The layers of so many groups, each of `k` pieces with data and `m` others.
fn generate(profile: &Profile, k: u32, m: u32, groups: u32) -> Generated {
    let times = |what: &str, n: u32| what.repeat(n as usize);
    let l = k + m;
    let group = |coding: &str| times("D", k) + &times(coding, m) + "_";
    let mut layers = format!("[  [ \"{}\", \"\" ],", times(&group("c"), groups));
    for own in 0..groups {
        let part = |i| match i == own {
            true => times("D", l) + "c",
            false => times("_", l + 1),
        };
        let map: String = (0..groups).map(part).collect();
        layers += &format!(" [ \"{map}\", \"\" ],");
    }
    let get = |name: &str| profile.get(name).map(String::as_str);
    let domain = get("crush-failure-domain").unwrap_or("host");
    let step = |leaf, kind: &str, n: u32| Step {
        leaf,
        kind: kind.to_owned(),
        count: n.cast_signed(),
    };
    let steps = match get("crush-locality").filter(|l| !l.is_empty()) {
        Some(locality) => vec![step(false, locality, groups), step(true, domain, l + 1)],
        None => vec![step(true, domain, 0)],
    };
    Generated {
        mapping: times(&group("_"), groups),
        layers: layers + "]",
        steps,
    }
}

/// A property that is a list in JSON.
fn array(name: &str, text: &str) -> Result<Vec<Value>, Reply> {
    match json::read(text) {
        Ok(Value::Array(list)) => Ok(list),
        Ok(other) => refuse(
            NOT_ARRAY,
            format!(
                "{name}='{text}' must be a JSON array but is of type {} instead",
                type_number(&other)
            ),
        ),
        Err(why) => refuse(NOT_JSON, format!("failed to parse {name}='{text}' {why}")),
    }
}

/// The steps of the rule: operation, type and number.
fn read_steps(text: &str) -> Result<Vec<Step>, Reply> {
    let read = |(at, step): (usize, Value)| {
        let Value::Array(parts) = &step else {
            return refuse(
                NOT_ARRAY,
                format!(
                    "element of the array {text} must be a JSON array but {step} at position {at} is of type {} instead",
                    type_number(&step)
                ),
            );
        };
        let wrong = |code: Errno, at: usize, wanted: &str| {
            let is = parts.get(at).map_or(6, type_number);
            Reply::error(
                code,
                format!(
                    "element {at} of the array {step} found in {text} must be a JSON {wanted} but is of type {is} instead"
                ),
            )
        };
        let word = |at: usize, code| match parts.get(at) {
            None => Ok(String::new()),
            Some(Value::String(word)) => Ok(word.clone()),
            Some(_) => Err(wrong(code, at, "string")),
        };
        let (op, kind) = (word(0, STEP_OP)?, word(1, STEP_TYPE)?);
        let number = parts.get(2).map_or(Some(0), Value::as_i64);
        match number.and_then(|n| i32::try_from(n).ok()) {
            None => Err(wrong(STEP_NUMBER, 2, "int")),
            Some(count) => Ok(Step {
                leaf: op == "chooseleaf",
                kind,
                count,
            }),
        }
    };
    array("crush-steps", text)?
        .into_iter()
        .enumerate()
        .map(read)
        .collect()
}

/// The layers' maps, and the code of the first one.
fn read_layers(text: &str) -> Result<(Vec<String>, Option<Code>), Reply> {
    let mut layers = Vec::new();
    for (at, layer) in array("layers", text)?.iter().enumerate() {
        let Value::Array(parts) = layer else {
            return refuse(
                NOT_ARRAY,
                format!(
                    "each element of the array {text} must be a JSON array but {layer} at position {at} is of type {} instead",
                    type_number(layer)
                ),
            );
        };
        let wrong = |code: Errno, which: &str, part: &Value, wanted: &str| {
            refuse(
                code,
                format!(
                    "the {which} element of the entry {part} (first is zero) {at} in {text} is of type {} instead of {wanted}",
                    type_number(part)
                ),
            )
        };
        let map = match parts.first() {
            Some(Value::String(map)) => map.clone(),
            Some(other) => return wrong(NOT_TEXT, "first", other, "string"),
            None => continue,
        };
        let properties = match parts.get(1) {
            None => Profile::new(),
            Some(Value::String(words)) => parse_words(words),
            Some(Value::Object(given)) => {
                let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                given.iter().map(|(k, v)| (k.clone(), text(v))).collect()
            }
            Some(other) => return wrong(NOT_PLUGIN, "second", other, "string or object"),
        };
        layers.push((map, properties));
    }
    let mut first = None;
    for (map, properties) in &mut layers {
        for (name, default) in [
            ("k", count(map, "D").to_string()),
            ("m", count(map, "c").to_string()),
            ("plugin", "jerasure".to_owned()),
            ("technique", "reed_sol_van".to_owned()),
        ] {
            properties.entry(name.to_owned()).or_insert(default);
        }
        let plugin = properties.get("plugin").map(String::as_str);
        if plugin == Some("lrc") {
            return refuse(errno::EINVAL, "a layer of the plugin lrc cannot be lrc itself");
        }
        let code = super::read(properties)?;
        first.get_or_insert(code);
    }
    Ok((layers.into_iter().map(|(map, _)| map).collect(), first))
}
