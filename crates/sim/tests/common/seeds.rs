//! Which seeds a test runs.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use spirula_sim::first_of;

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds to run: a normal test's number of them, or those that the environment names.
pub(crate) fn seeds(normal: u64) -> Box<dyn Iterator<Item = u64> + Send> {
    if let Some(seed) = var("SPIRULA_SEED") {
        return Box::new(seed..=seed);
    }
    if let Some(minutes) = var("SPIRULA_MINUTES") {
        let end = Instant::now() + Duration::from_secs(minutes * 60);
        // Never those that every test runs.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let first = now.unwrap().as_secs() << 20;
        return Box::new((first..).take_while(move |_| Instant::now() < end));
    }
    Box::new(1..=var("SPIRULA_SEEDS").unwrap_or(normal))
}

/// Runs some seeds twice, beside other runs, which must make no difference.
pub(crate) fn always_the_same<O: PartialEq + Debug + Send>(run: impl Fn(u64) -> O + Sync) {
    let differs = first_of(seeds(12), |seed| {
        let (a, b) = (run(seed), run(seed));
        (a != b).then_some((a, b))
    });
    assert_eq!(differs, None);
}
