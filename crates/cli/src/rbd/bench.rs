//! A simple benchmark.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_client::errno;
use spirula_random::Rng;
use spirula_rbd::{Image, Options};
use spirula_text::{general, size::bytes};
use tokio::task::JoinSet;

use super::{Done, Tool, bad, close, complain, failed, invalid, size};
use crate::rbd::Exit;

/// The rates shown are of this many seconds.
const WINDOW: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Random,
    Sequential,
    FullSequential,
}

/// The options of a benchmark.
struct Plan {
    /// Percent of reads.
    reads: u64,
    kind: &'static str,
    size: u64,
    threads: u64,
    total: u64,
    pattern: Pattern,
}

impl Plan {
    /// The offsets of each thread's next request.
    fn next(&self, i: u64, at: Option<u64>, done: u64, image: u64, random: &mut Rng) -> u64 {
        let chunk = image / self.size / self.threads * self.size;
        match (self.pattern, at) {
            (Pattern::Random, _) => random.below(image / self.size) * self.size,
            (Pattern::Sequential, None) => chunk * i,
            (Pattern::FullSequential, None) => i * self.size,
            (Pattern::Sequential, Some(at)) => {
                let next = match done < chunk * self.threads {
                    true => at + self.size,
                    false => done + i * self.size,
                };
                if next + self.size > image { chunk * i } else { next }
            }
            (Pattern::FullSequential, Some(at)) => {
                let next = at + self.size * self.threads;
                if next + self.size > image {
                    i * self.size
                } else {
                    next
                }
            }
        }
    }
}

/// Requests and bytes of a second.
struct Rate {
    requests: f64,
    bytes: f64,
}

/// Requests and bytes of an interval.
struct Sample {
    seconds: f64,
    requests: f64,
    bytes: f64,
}

/// Requests and bytes in the last seconds.
#[derive(Default)]
struct Rates(VecDeque<Sample>);

impl Rates {
    fn add(&mut self, sample: Sample) {
        self.0.push_back(sample);
        if self.0.len() > WINDOW {
            self.0.pop_front();
        }
    }

    fn rates(&self) -> Rate {
        let seconds: f64 = self.0.iter().map(|s| s.seconds).sum();
        let requests: f64 = self.0.iter().map(|s| s.requests).sum();
        let bytes: f64 = self.0.iter().map(|s| s.bytes).sum();
        Rate {
            requests: requests / seconds,
            bytes: bytes / seconds,
        }
    }
}

/// Bytes of a second as they are shown.
fn speed(rate: f64) -> String {
    format!("{}/s", bytes(rate.max(0.0) as u64))
}

impl Tool {
    fn bench_plan(&self) -> Result<Plan, Exit> {
        let args = &self.args;
        let number = |option: &str, text: &Option<String>, default: u64| match text {
            Some(text) => size(option, text, 1),
            None => Ok(default),
        };
        let (kind, reads) = match args.io_type.as_deref() {
            Some("read") => ("read", 100),
            Some("write") => ("write", 0),
            Some("readwrite" | "rw") => ("readwrite", args.rw_mix_read.unwrap_or(50).min(100)),
            Some(_) => return Err(invalid("io-type")),
            None => return Err(bad("must specify --io-type")),
        };
        let pattern = match args.io_pattern.as_deref() {
            None | Some("seq") => Pattern::Sequential,
            Some("full-seq") => Pattern::FullSequential,
            Some("rand") => Pattern::Random,
            Some(_) => return Err(invalid("io-pattern")),
        };
        let plan = Plan {
            reads,
            kind,
            size: number("io-size", &args.io_size, 4096)?,
            threads: args.io_threads.unwrap_or(16),
            total: number("io-total", &args.io_total, 1 << 30)?,
            pattern,
        };
        if plan.size == 0 || plan.threads == 0 {
            return Err(bad("--io-size and --io-threads should be positive"));
        }
        Ok(plan)
    }

    pub(super) async fn bench(&self) -> Done {
        let plan = self.bench_plan()?;
        let (target, _) = self.image().await?;
        let options = Options {
            read_only: plan.reads == 100,
            ..Options::default()
        };
        let image = Rc::new(target.without_snap()?.open(options).await?);
        let done = run(&plan, &image).await;
        match Rc::into_inner(image) {
            Some(image) => close(image, done).await,
            None => done,
        }
    }
}

async fn run(plan: &Plan, image: &Rc<Image>) -> Done {
    let all = image.size();
    if plan.size > all {
        let (one, all) = (bytes(plan.size), bytes(all));
        return Err(bad(format!("io-size {one} larger than image size {all}")));
    }
    let len = usize::try_from(plan.size).map_err(|_| bad("io-size should be less than 4G"))?;
    let pattern = match plan.pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
        Pattern::FullSequential => "full sequential",
    };
    let mix = match plan.kind {
        "readwrite" => format!(" read:write={}:{}", plan.reads, 100 - plan.reads),
        _ => String::new(),
    };
    println!(
        "bench  type {}{mix} io_size {} io_threads {} bytes {} pattern {pattern}",
        plan.kind, plan.size, plan.threads, plan.total
    );
    println!("  SEC       OPS   OPS/SEC   BYTES/SEC");
    let start = Instant::now();
    let mut random = Rng::unseeded().map_err(|_| complain(errno::EIO, errno::EIO))?;
    let data = Bytes::from(vec![random.number() as u8; len]);
    let mut offsets: Vec<u64> = (0..plan.threads)
        .map(|i| plan.next(i, None, 0, all, &mut random))
        .collect();
    let mut tasks: JoinSet<spirula_rbd::Result<()>> = JoinSet::new();
    let mut rates = Rates::default();
    let (mut done, mut requests, mut last) = (0, 0u64, Duration::ZERO);
    let (mut done_before, mut requests_before) = (0, 0);
    let ended = |task: Result<spirula_rbd::Result<()>, tokio::task::JoinError>| match task {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(failed(format!("{} error", plan.kind), &e)),
        Err(_) => Err(complain(errno::EIO, errno::EIO)),
    };
    while done < plan.total {
        for offset in &offsets {
            if done >= plan.total {
                break;
            }
            if tasks.len() as u64 >= plan.threads
                && let Some(task) = tasks.join_next().await
            {
                ended(task)?;
            }
            let (image, offset, data) = (Rc::clone(image), *offset, data.clone());
            if random.below(100) < plan.reads {
                let len = plan.size;
                tasks.spawn_local(async move { image.read(offset, len).await.map(drop) });
            } else {
                tasks.spawn_local(async move { image.write(offset, data).await });
            }
            done += plan.size;
            requests += 1;
        }
        for (i, offset) in (0..).zip(&mut offsets) {
            *offset = plan.next(i, Some(*offset), done, all, &mut random);
        }
        let elapsed = start.elapsed();
        if elapsed.as_secs() != last.as_secs() {
            rates.add(Sample {
                seconds: (elapsed - last).as_secs_f64(),
                requests: (requests - requests_before) as f64,
                bytes: (done - done_before) as f64,
            });
            let rate = rates.rates();
            let ops = requests.saturating_sub(plan.threads);
            println!(
                "{:>5}{ops:>10}{:>10}{:>12}",
                elapsed.as_secs(),
                general(rate.requests, 6),
                speed(rate.bytes)
            );
            (last, done_before, requests_before) = (elapsed, done, requests);
        }
    }
    while let Some(task) = tasks.join_next().await {
        ended(task)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "elapsed: {}   ops: {requests}   ops/sec: {}   bytes/sec: {}",
        start.elapsed().as_secs(),
        general(requests as f64 / seconds, 6),
        speed(done as f64 / seconds)
    );
    Ok(())
}
