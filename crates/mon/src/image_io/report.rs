//! The answer to a request: rates or sums of the busiest images.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::PoolId;

use super::{Image, ImageIo, ImageKey, LONGEST_SPAN, Scope};

/// The numbers, in order.
pub(crate) const DESCRIPTORS: [&str; 6] = [
    "write_ops",
    "read_ops",
    "write_bytes",
    "read_bytes",
    "write_latency",
    "read_latency",
];
/// For each latency, the index of the number that counts its operations.
const OPS_OF: [Option<usize>; DESCRIPTORS.len()] = [None, None, None, None, Some(0), Some(1)];
/// Most images in an answer.
const MAX_RESULTS: usize = 64;

/// The kind of numbers in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rates of the last seconds; averages of latencies.
    Stats,
    /// Sums.
    Counters,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Stats => "stat",
            Self::Counters => "counter",
        }
    }
}

/// One of an image's numbers in the last round, per second; a latency per operation. `None` if no
/// rate is known.
fn rate(image: &Image, index: usize, seconds: Option<f64>) -> Option<f64> {
    let seconds = seconds?;
    let per_second = |i: usize| image.last[i] as f64 / seconds;
    Some(match OPS_OF[index] {
        None => per_second(index),
        Some(ops) => per_second(index) / per_second(ops).max(1.0),
    })
}

impl ImageIo {
    fn seconds(&self) -> Option<f64> {
        let span = self.span.filter(|s| !s.is_zero() && *s <= LONGEST_SPAN);
        span.map(|s| s.as_secs_f64())
    }

    /// The answer to a request that has been noted: the busiest images first, by the number at
    /// `sort_by`. `pools` names the pools to report, `timestamp` is in seconds.
    pub(crate) fn report(
        &self,
        scope: &Scope,
        kind: Kind,
        sort_by: usize,
        pools: &BTreeMap<PoolId, String>,
        timestamp: u32,
    ) -> Value {
        let seconds = self.seconds();
        let images = self.queries.get(scope).into_iter().flat_map(|q| &q.images);
        let mut found: Vec<(&ImageKey, &Image, &str)> = images
            .filter(|(key, _)| pools.contains_key(&key.pool))
            .filter_map(|(key, image)| Some((key, image, self.names.get(key)?)))
            .collect();
        let order = |image: &Image| rate(image, sort_by, seconds).unwrap_or(0.0);
        found.sort_by(|(_, a, _), (_, b, _)| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
        found.truncate(MAX_RESULTS);
        let (mut descriptors, mut numbers) = (Vec::new(), Vec::new());
        for (key, image, name) in found {
            let place = place_of(&mut descriptors, pool_spec(key, pools));
            let data: Vec<Value> = (0..DESCRIPTORS.len())
                .map(|i| match kind {
                    Kind::Stats => rate(image, i, seconds).map_or(json!(0), |r| json!(r)),
                    Kind::Counters => json!(image.sum[i]),
                })
                .collect();
            if data.iter().any(|v| v.as_f64() != Some(0.0)) {
                numbers.push(json!({ format!("{place}/{name}"): data }));
            }
        }
        let descriptors: Map<String, Value> = descriptors
            .into_iter()
            .enumerate()
            .map(|(i, spec)| (i.to_string(), spec.into()))
            .collect();
        json!({
            "timestamp": f64::from(timestamp),
            format!("{}_descriptors", kind.name()): DESCRIPTORS,
            "pool_descriptors": descriptors,
            format!("{}s", kind.name()): numbers,
        })
    }
}

/// An image's pool and namespace, as users name them.
fn pool_spec(key: &ImageKey, pools: &BTreeMap<PoolId, String>) -> String {
    let pool = pools.get(&key.pool).map_or("", String::as_str);
    if key.nspace.is_empty() {
        pool.to_owned()
    } else {
        format!("{pool}/{}", key.nspace)
    }
}

/// The place of a pool's description among all, where it is put if it is new.
fn place_of(descriptors: &mut Vec<String>, spec: String) -> usize {
    match descriptors.iter().position(|d| *d == spec) {
        Some(place) => place,
        None => {
            descriptors.push(spec);
            descriptors.len() - 1
        }
    }
}
