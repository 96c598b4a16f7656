//! How fast units are coded: bytes of data for each second of CPU time, of a stripe that stays in
//! the caches and of objects that do not.
//!
//! Prints a table; run with `cargo bench -p spirula-erasure`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use spirula_erasure::{Code, CodeKind, Layout, Unit, UnitSet};

const UNIT: usize = Layout::DEFAULT_UNIT as usize;
/// More than a core's caches hold.
const MANY: usize = 64;

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The best of a few measurements, in GB/s, of something that is done to `stripes` in turn, each of
/// `bytes` of data.
fn speed(stripes: usize, bytes: usize, mut each: impl FnMut(usize)) -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let (start, mut done) = (cpu_time(), 0);
        while cpu_time() - start < Duration::from_millis(100) {
            (0..stripes).for_each(&mut each);
            done += stripes * bytes;
        }
        best = best.max(done as f64 / 1e9 / (cpu_time() - start).as_secs_f64());
    }
    best
}

/// Units of stripes.
fn units(stripes: usize, of_each: u8) -> Vec<Vec<Vec<u8>>> {
    let unit = |n: u8| vec![n; UNIT];
    (0..stripes).map(|_| (0..of_each).map(unit).collect()).collect()
}

fn slices(of: &[Vec<u8>]) -> Vec<&[u8]> {
    of.iter().map(Vec::as_slice).collect()
}

fn slices_mut(of: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    of.iter_mut().map(Vec::as_mut_slice).collect()
}

fn main() -> Result<(), spirula_erasure::Error> {
    println!("GB/s            encode  encode many  rebuild m units  difference of a unit");
    for (k, m) in [(2, 1), (4, 2), (8, 4)] {
        let code = Code::new(CodeKind::of(k, m), k, m)?;
        let bytes = usize::from(k) * UNIT;
        let encode = |stripes| {
            let (data, mut parity) = (units(stripes, k), units(stripes, m));
            speed(stripes, bytes, |n| {
                code.encode(&slices(&data[n]), &mut slices_mut(&mut parity[n]))
            })
        };
        let (one, many) = (encode(1), encode(MANY));
        let present: UnitSet = (m..k).map(Unit::Data).chain((0..m).map(Unit::Parity)).collect();
        let plan = code.plan(present, (0..m).map(Unit::Data).collect())?;
        let (data, mut out) = (units(1, k), units(1, m));
        let rebuild = speed(1, bytes, |_| {
            plan.run(&slices(&data[0]), &mut slices_mut(&mut out[0]))
        });
        let delta = speed(1, UNIT, |_| {
            for (parity, into) in (0..m).zip(&mut out[0]) {
                code.add_delta(parity, k - 1, &data[0][0], into);
            }
        });
        println!("{k}+{m} {one:18.1} {many:12.1} {rebuild:16.1} {delta:21.1}");
    }
    Ok(())
}
