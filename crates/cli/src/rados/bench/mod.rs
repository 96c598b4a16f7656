//! `bench` and `cleanup`.

mod cleanup;
mod names;
mod runner;
mod stats;

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use names::Run;
use runner::{Kind, Plan, Progress};
use serde_json::{Map, Value};
use spirula_client::{
    Error, IoCtx,
    errno::{self, Errno},
};
use spirula_denc::UTime;
use spirula_text::{Format, time};

use super::{Done, Tool, complain, format};

/// Bits of the parts of objects that a write benchmark writes.
#[derive(Debug, Clone, Copy, Default)]
struct Destination {
    data: bool,
    omap: bool,
    xattr: bool,
}

/// Prints the lines of a benchmark.
struct Reporter {
    show_time: bool,
    format: Format,
    lines: Vec<Value>,
    members: Map<String, Value>,
}

impl Reporter {
    fn say(&self, text: &str) {
        let mut out = io::stdout().lock();
        let stamp = if self.show_time {
            format!("{} ", time::local(UTime::now()))
        } else {
            String::new()
        };
        // A reader that went away does not end a benchmark.
        let _ = writeln!(out, "{stamp}{text}").and_then(|()| out.flush());
    }

    fn plain(&self) -> bool {
        self.format == Format::Plain
    }

    fn begin(&mut self, plan: &Plan, seconds: u64, max_objects: u64) {
        if plan.kind != Kind::Write {
            return;
        }
        let run = &plan.run;
        let prefix = format!("{}_{}", names::host_prefix(), run.pid);
        if self.plain() {
            self.say(&format!(
                "Maintaining {} concurrent writes of {} bytes to objects of size {} for up to {seconds} seconds or \
                 {max_objects} objects",
                plan.concurrent, run.op_size, run.object_size
            ));
            self.say(&format!("Object prefix: {prefix}"));
            return;
        }
        let members = [
            ("concurrent_ios", plan.concurrent.to_string()),
            ("object_size", run.object_size.to_string()),
            ("op_size", run.op_size.to_string()),
            ("seconds_to_run", seconds.to_string()),
            ("max_objects", max_objects.to_string()),
            ("object_prefix", prefix),
        ];
        self.members
            .extend(members.map(|(name, value)| (name.to_owned(), value.into())));
    }

    fn tick(&mut self, progress: &Progress) {
        let mut stats = progress.stats.borrow_mut();
        let (head, summary) = stats.wants_head();
        let line = stats.line(progress.start.elapsed());
        if !self.plain() {
            self.lines.push(line.json);
            return;
        }
        if let Some(summary) = summary {
            println!("{}{summary}", time::local(UTime::now()));
        }
        if head {
            self.say(stats::HEAD);
        }
        self.say(&line.text);
    }

    fn end(&mut self, progress: &Progress, write: bool, elapsed: Duration) {
        let mut stats = progress.stats.borrow_mut();
        if self.plain() {
            let mut lines = stats.report(write, elapsed).into_iter();
            if let Some(first) = lines.next() {
                self.say(&first);
            }
            lines.for_each(|line| println!("{line}"));
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        self.members.insert("datas".into(), lines.into());
        self.members.extend(stats.report_json(write, elapsed));
    }

    /// Writes the JSON or XML object, if that is the format.
    fn flush(&mut self, path: Option<&str>) -> io::Result<()> {
        if self.plain() {
            return Ok(());
        }
        let whole = Value::Object(std::mem::take(&mut self.members));
        let mut text = format::render(self.format, &whole, "bench", "");
        text.push(b'\n');
        match path {
            Some(path) => File::create(path)?.write_all(&text),
            None => io::stdout().write_all(&text),
        }
    }
}

/// Removes all objects of a pool, in all namespaces.
pub(super) async fn purge(io: &IoCtx, concurrent: usize) -> Result<(), Error> {
    println!("Warning: using slow linear search");
    let count = cleanup::by_prefix(io, true, "", concurrent).await?;
    println!("{}", cleanup::removed(count));
    Ok(())
}

fn failed(doing: &str, errno: Errno) -> i32 {
    complain(
        1,
        format!("error during {doing}: {errno}\nerror {}: {errno}", errno.code()),
    )
}

impl Tool {
    fn run_name(&self) -> &str {
        match self.args.run_name.as_str() {
            "" => names::LAST_RUN,
            name => name,
        }
    }

    fn bench_kind(&self) -> Result<(&IoCtx, u64, Kind, Destination), i32> {
        let (io, words) = self.pool_command(2)?;
        let seconds: i64 = words[0]
            .parse()
            .map_err(|_| complain(1, format!("Invalid value for seconds: '{}'", words[0])))?;
        let kind = match words[1].as_str() {
            "write" => Kind::Write,
            "seq" => Kind::Seq,
            "rand" => Kind::Rand,
            _ => return Err(self.usage()),
        };
        let args = &self.args;
        let mut to = Destination {
            data: args.write_object,
            omap: args.write_omap,
            xattr: args.write_xattr,
        };
        let any = to.data || to.omap || to.xattr;
        if kind != Kind::Write && self.sizes.given {
            return Err(complain(
                1,
                "-b|--block_size option can be used only with 'write' bench test",
            ));
        }
        if kind != Kind::Write && any {
            return Err(complain(
                1,
                "--write-object, --write-omap and --write-xattr options can only be used with the 'write' bench test",
            ));
        }
        to.data |= !any;
        if self.format == Format::Plain && args.output.is_some() {
            return Err(complain(
                1,
                "-o|--output option can only be used with '--format' option",
            ));
        }
        Ok((io, u64::try_from(seconds).unwrap_or(0), kind, to))
    }

    /// The run to read, or a new one.
    async fn bench_run(&self, io: &IoCtx, kind: Kind) -> Result<Run, i32> {
        if kind == Kind::Write && !self.args.reuse_bench {
            let (op_size, object_size) = match (self.sizes.op, self.sizes.object) {
                (op, 0) => (op, op),
                (op, object) => (op.min(object), object),
            };
            return Ok(Run {
                object_size,
                operations: 0,
                pid: i32::try_from(std::process::id()).unwrap_or(0),
                op_size,
            });
        }
        Run::load(io, self.run_name()).await.map_err(|e| {
            if e.errno() == errno::ENOENT {
                let what = match kind {
                    Kind::Write => "using reuse_bench for a write benchmark!",
                    _ => "running a read benchmark!",
                };
                eprintln!("Must write data before {what}");
            }
            failed("benchmark", e.errno())
        })
    }

    pub(super) async fn bench(&self) -> Done {
        let (io, seconds, kind, to) = self.bench_kind()?;
        println!("hints = {}", i32::from(!self.args.no_hints));
        if self.sizes.concurrent == 0 {
            return Err(failed("benchmark", errno::EINVAL));
        }
        let run = self.bench_run(io, kind).await?;
        let max_objects = self.sizes.max_objects;
        let plan = Plan {
            kind,
            run,
            to,
            hints: !self.args.no_hints,
            verify: !self.args.no_verify,
            concurrent: self.sizes.concurrent,
            time: Duration::from_secs(seconds),
            most: match kind {
                Kind::Write if max_objects > 0 => {
                    (run.object_size * max_objects).div_ceil(run.op_size.max(1))
                }
                Kind::Seq => run.operations,
                _ => u64::MAX,
            },
        };
        let mut reporter = Reporter {
            show_time: self.args.show_time,
            format: self.format,
            lines: Vec::new(),
            members: Map::new(),
        };
        reporter.begin(&plan, seconds, max_objects);
        let done = self.bench_with(io, plan, &mut reporter).await;
        let flushed = reporter.flush(self.args.output.as_deref());
        done.map_err(|e| failed("benchmark", e.errno()))?;
        flushed.map_err(|e| complain(1, format!("error writing to file: {}", Errno::from(&e))))?;
        if kind == Kind::Write && !self.args.no_cleanup {
            self.bench_cleanup(io, &reporter)
                .await
                .map_err(|e| failed("benchmark", e.errno()))?;
        }
        Ok(())
    }

    async fn bench_with(&self, io: &IoCtx, plan: Plan, reporter: &mut Reporter) -> Result<(), Error> {
        let write = plan.kind == Kind::Write;
        let mut run = plan.run;
        let progress = runner::run(io, plan, |progress| reporter.tick(progress)).await?;
        let elapsed = progress.start.elapsed();
        reporter.end(&progress, write, elapsed);
        if write {
            run.operations = progress.stats.borrow().finished;
            run.store(io, self.run_name()).await?;
        }
        match progress.errors.get() {
            0 => Ok(()),
            _ => Err(Error::Os {
                what: "benchmark",
                errno: errno::EIO,
            }),
        }
    }

    async fn bench_cleanup(&self, io: &IoCtx, reporter: &Reporter) -> Result<(), Error> {
        let run = Run::load(io, self.run_name()).await?;
        let start = Instant::now();
        reporter.say("Cleaning up (deleting benchmark objects)");
        let removed = cleanup::run_objects(io, &run, self.sizes.concurrent).await?;
        reporter.say(&cleanup::removed(removed));
        let seconds = spirula_text::general(start.elapsed().as_secs_f64(), 6);
        reporter.say(&format!("Clean up completed and total clean up time :{seconds}"));
        io.remove(self.run_name()).await
    }

    pub(super) async fn cleanup(&self) -> Done {
        let (io, _) = self.pool_command(0)?;
        let prefix = match self.args.prefix.as_str() {
            "" => names::host_prefix(),
            prefix => prefix.to_owned(),
        };
        if !prefix.starts_with(names::PREFIX) {
            let wanted = names::PREFIX;
            eprintln!("Specified --prefix invalid, it must begin with \"{wanted}\"");
            return Err(failed("cleanup", errno::EINVAL));
        }
        let run_name = self.run_name();
        let all = self.all_namespaces();
        cleanup::all(io, all, &prefix, run_name, self.sizes.concurrent)
            .await
            .map_err(|e| failed("cleanup", e.errno()))
    }
}
