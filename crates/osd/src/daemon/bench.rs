//! `ceph tell osd.N bench`: writes objects through the store, without the network and other OSDs.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use spirula_asok::Failure;
use spirula_conf::options::Values;
use spirula_errno::EINVAL;
use spirula_random::Rng;
use spirula_text::size::bytes;

use super::shell::Shared;
use crate::core::DAEMON_SLOT;
use crate::pg::Token;
use crate::pg::txn::{ObjectOp, Txn};

/// Sizes below this count by operations, larger ones by bytes.
const SMALL: u64 = 1 << 20;
/// Largest block, whatever the option says: it is held in memory.
const BLOCK_MAX: u64 = 64 << 20;

/// The writes that the benchmark makes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Bytes to write in all.
    count: u64,
    /// Bytes of each write, as asked for.
    asked: u64,
    /// Bytes of each write, not more than an object has.
    block: u64,
    /// The size of the objects that are made first and then written to at random; 0 for a new
    /// object for each block.
    object_size: u64,
    /// The number of these objects.
    objects: u64,
}

fn number(args: &Map<String, Value>, name: &str, default: u64) -> Result<u64, Failure> {
    let bad = || invalid(format!("{name} is not a number from 0"));
    match args.get(name) {
        None => Ok(default),
        Some(v) => v.as_u64().or_else(|| v.as_str()?.parse().ok()).ok_or_else(bad),
    }
}

fn invalid(message: String) -> Failure {
    Failure {
        errno: EINVAL,
        message,
    }
}

/// Checks the arguments against the `osd_bench_*` options.
fn plan(values: &Values, args: &Map<String, Value>) -> Result<Plan, Failure> {
    let (count, asked) = (number(args, "count", 1 << 30)?, number(args, "size", 4 << 20)?);
    let mut block = asked;
    let object_size = number(args, "object_size", 0)?;
    let objects = number(args, "object_num", 0)?;
    let most = values.uint("osd_bench_max_block_size").min(BLOCK_MAX);
    let seconds = values.uint("osd_bench_duration");
    if block > most || object_size > most {
        return Err(invalid(format!(
            "block 'size' values are capped at {}. If you wish to use a higher value, please adjust \
             'osd_bench_max_block_size'",
            bytes(most)
        )));
    }
    let (option, most, rate) = if block < SMALL {
        let iops = values.uint("osd_bench_small_size_max_iops");
        let most = block.saturating_mul(seconds).saturating_mul(iops);
        ("osd_bench_small_size_max_iops", most, format!("{iops} IOPS"))
    } else {
        let rate = values.uint("osd_bench_large_size_max_throughput");
        let most = rate.saturating_mul(seconds);
        (
            "osd_bench_large_size_max_throughput",
            most,
            format!("{}/s", bytes(rate)),
        )
    };
    if count > most {
        return Err(invalid(format!(
            "'count' values greater than {most} for a block size of {}, assuming {rate}, for {seconds} seconds, can \
             cause ill effects on osd.  Please adjust '{option}' with a higher value if you wish to use a higher \
             'count'.",
            bytes(block)
        )));
    }
    if object_size > 0 && block > object_size {
        block = object_size;
    }
    if block == 0 && count > 0 {
        return Err(invalid("block 'size' must not be 0".to_owned()));
    }
    Ok(Plan {
        count,
        asked,
        block,
        object_size,
        objects,
    })
}

/// Runs a benchmark and removes what it wrote.
///
/// # Errors
/// Sizes that the options do not allow.
pub(super) async fn run(shell: &Shared, args: &Map<String, Value>) -> Result<Value, Failure> {
    let p = shell.with(|o| plan(&o.setup.values, args))?;
    let (size, number) = (p.object_size, p.objects);
    let reuse = size > 0 && number > 0;
    let fill = |n: u64| Bytes::from(vec![0x5a; usize::try_from(n).unwrap_or(0)]);
    if reuse {
        let data = fill(size);
        for i in 0..number {
            submit(shell, i, write(0, &data)).await;
        }
        drain(shell).await;
    }
    let data = fill(p.block);
    let blocks = if p.block == 0 {
        0
    } else {
        p.count.div_ceil(p.block)
    };
    // The same sequence each time: figures are to be compared.
    let mut rng = Rng::new(0);
    let started = Instant::now();
    for i in 0..blocks {
        if reuse {
            let (object, block) = (rng.below(number), rng.below(size / p.block));
            submit(shell, object, write(block * p.block, &data)).await;
        } else {
            submit(shell, i, write(0, &data)).await;
        }
    }
    drain(shell).await;
    let elapsed = started.elapsed().as_secs_f64();
    for i in 0..if reuse { number } else { blocks } {
        submit(shell, i, vec![ObjectOp::Remove]).await;
    }
    drain(shell).await;
    let rate = p.count as f64 / elapsed.max(1e-9);
    // Ceph's answer repeats the size that was asked for, also where its objects are smaller.
    let iops = if p.asked == 0 { 0.0 } else { rate / p.asked as f64 };
    Ok(json!({
        "bytes_written": p.count,
        "blocksize": p.asked,
        "elapsed_sec": elapsed,
        "bytes_per_sec": rate,
        "iops": iops,
    }))
}

fn write(offset: u64, data: &Bytes) -> Vec<ObjectOp> {
    vec![ObjectOp::Write {
        offset,
        data: data.clone(),
    }]
}

async fn submit(shell: &Shared, i: u64, ops: Vec<ObjectOp>) {
    while !shell.with(|o| o.io.store.writable() && !o.space.full.contains(&o.setup.id())) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    shell.with(|o| {
        // Pool 0 never exists: its keys are free.
        let key = Bytes::from([&0u64.to_be_bytes()[..], b"bench", &i.to_be_bytes()].concat());
        let txn = Txn {
            objects: vec![(key, ops)],
            meta: Vec::new(),
        };
        if let Err(e) = o.submit(Token::new(DAEMON_SLOT, 0), txn) {
            o.fail(e.into());
        }
    });
    tokio::task::yield_now().await;
}

/// Waits until everything written is in the log.
async fn drain(shell: &Shared) {
    while !shell.with(|o| o.io.writes.is_flushed()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(args: &Value) -> Result<Plan, String> {
        plan(&Values::default(), args.as_object().unwrap()).map_err(|f| f.message)
    }

    #[test]
    fn sizes_are_limited_as_by_official_osds() {
        let all = ask(&json!({})).unwrap();
        assert_eq!((all.count, all.block), (1 << 30, 4 << 20));
        assert_eq!((all.object_size, all.objects), (0, 0));
        let p = ask(&json!({"count": 40960, "size": "4096", "object_size": 8192, "object_num": 3})).unwrap();
        assert_eq!((p.block, p.object_size, p.objects), (4096, 8192, 3));
        let p = ask(&json!({"count": 40960, "size": 16384, "object_size": 8192, "object_num": 3})).unwrap();
        assert_eq!((p.block, p.asked), (8192, 16384));
        let text = "'count' values greater than 12288000 for a block size of 4 KiB, assuming 100 IOPS, for 30 seconds, \
             can cause ill effects on osd.  Please adjust 'osd_bench_small_size_max_iops' with a higher value if you \
             wish to use a higher 'count'.";
        assert_eq!(
            ask(&json!({"count": 100_000_000, "size": 4096})),
            Err(text.to_owned())
        );
        let text = "'count' values greater than 3145728000 for a block size of 4 MiB, assuming 100 MiB/s, for 30 \
             seconds, can cause ill effects on osd.  Please adjust 'osd_bench_large_size_max_throughput' with a higher \
             value if you wish to use a higher 'count'.";
        assert_eq!(ask(&json!({"count": 10u64 << 30})), Err(text.to_owned()));
        assert!(
            ask(&json!({"size": (64 << 20) + 1}))
                .unwrap_err()
                .contains("capped at 64 MiB.")
        );
        assert!(ask(&json!({"count": 1, "size": 0})).is_err());
        assert!(ask(&json!({"count": 1, "object_size": u64::MAX, "object_num": 1})).is_err());
        assert!(ask(&json!({"count": -1})).is_err());
        assert!(ask(&json!({"count": 0})).is_ok());
    }
}
