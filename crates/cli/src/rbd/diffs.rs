//! Differences between snapshots: shown, exported to files, and imported into images.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write, stdin, stdout};

use serde_json::{Value, json};
use spirula_client::errno;
use spirula_client::errno::Errno;
use spirula_rbd::diff_file::{Format, RecordReader};
use spirula_rbd::{
    DiffOptions, Difference, Error, ImportError, ImportNews, MergeError, Options, SPARSE, merge_diff,
};
use spirula_text::{Align, Table};

use super::args::Args;
use super::progress::Progress;
use super::{Done, Tool, bad, close, complain, failed, size};
use crate::rbd::Exit;

/// Bytes of a file that are read or written at a time.
pub(super) const BUFFER: usize = 256 << 10;

/// Opens a file, or standard input, with its length if that is known.
pub(super) fn open_input(path: &str) -> std::io::Result<(Box<dyn Read>, Option<u64>)> {
    if path == "-" {
        return Ok((Box::new(stdin()), None));
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok((Box::new(file), Some(len)))
}

/// Opens a new file, or standard output.
pub(super) fn open_output(path: &str) -> std::io::Result<Box<dyn Write>> {
    Ok(match path {
        "-" => Box::new(stdout()),
        path => Box::new(File::create_new(path)?),
    })
}

/// Removes an incomplete file.
pub(super) fn remove_part(path: &str) {
    if path != "-" {
        // The failure before was reported; this one's is not.
        let _ = std::fs::remove_file(path);
    }
}

/// Counts the bytes read from a file.
pub(super) struct Counted<'a, R> {
    input: BufReader<R>,
    count: &'a Cell<u64>,
}

impl<'a, R: Read> Counted<'a, R> {
    pub(super) fn new(input: R, count: &'a Cell<u64>) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER, input),
            count,
        }
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// Prints why a diff is not imported.
pub(super) fn say(e: &ImportError) {
    match e {
        ImportError::NoStart(_) | ImportError::EndExists(_) => eprintln!("{e}"),
        ImportError::Failed(e @ Error::Cut(_)) => eprintln!("rbd: {e}"),
        ImportError::Failed(_) => {}
    }
}

impl Tool {
    fn diff_options(&self) -> DiffOptions {
        DiffOptions {
            from: self.args.from_snap.clone().filter(|s| !s.is_empty()),
            whole_objects: self.args.whole_object,
            ..DiffOptions::default()
        }
    }

    pub(super) async fn diff(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.open_to_read().await?;
        let mut found = Vec::new();
        let listed = async {
            let mut differences = image.differences(&self.diff_options()).await?;
            while let Some(difference) = differences.next().await? {
                found.push(difference);
            }
            Ok(())
        };
        let listed: spirula_rbd::Result<()> = listed.await;
        self.print_diff(&found);
        close(image, listed.map_err(|e| failed("diff error", &e))).await
    }

    fn print_diff(&self, found: &[Difference]) {
        if self.format.is_structured() {
            let trees = found
                .iter()
                .map(|d| json!({"offset": d.offset, "length": d.len, "exists": d.has_data.to_string()}));
            self.print(&trees.collect::<Value>(), "extents", "extent");
        } else if !found.is_empty() {
            let names = ["Offset", "Length", "Type"];
            let mut table = Table::new(&names.map(|n| (n, Align::Left, Align::Left)));
            for d in found {
                let kind = if d.has_data { "data" } else { "zero" };
                table.row([d.offset.to_string(), d.len.to_string(), kind.to_owned()]);
            }
            print!("{}", table.render());
        }
    }

    pub(super) async fn export_diff(&self) -> Done {
        let (target, rest) = self.image().await?;
        let path = self.path(rest).ok_or_else(|| bad("path was not specified"))?;
        let image = target.open_to_read().await?;
        let done = match open_output(path) {
            Ok(file) => {
                let progress = self.progress("Exporting image");
                let mut out = BufWriter::with_capacity(BUFFER, file);
                let options = self.diff_options();
                let exported = image
                    .export_diff(&options, Format::V1, &mut out, &progress.listener())
                    .await;
                let exported = exported
                    .map_err(|e| e.errno())
                    .and_then(|()| out.flush().map_err(|e| Errno::from(&e)));
                if exported.is_err() {
                    remove_part(path);
                }
                progress.end(exported)
            }
            Err(e) => Err(Errno::from(&e)),
        };
        let done = done.map_err(|e| complain(e, format!("export-diff error: {}", e)));
        close(image, done).await
    }

    /// The length of runs of zeros that are not written.
    pub(super) fn sparse_size(&self) -> Result<u64, Exit> {
        match &self.args.sparse_size {
            Some(text) => size("sparse-size", text, 1),
            None => Ok(SPARSE),
        }
    }

    pub(super) async fn import_diff(&self) -> Done {
        let path = self.path(&self.words);
        let path = path.ok_or_else(|| bad("path was not specified"))?.to_owned();
        let rest = match self.args.path {
            Some(_) => &self.words[..],
            None => self.words.get(1..).unwrap_or_default(),
        };
        let target = self.image_of(rest).await?.0.without_snap()?;
        let block = self.sparse_size()?;
        let image = target.open(Options::default()).await?;
        let import_failed = |e: Errno| complain(e, format!("import-diff failed: {}", e));
        let (input, len) = match open_input(&path) {
            Ok(opened) => opened,
            Err(e) => {
                eprintln!("rbd: error opening {path}");
                return close(image, Err(import_failed(Errno::from(&e)))).await;
            }
        };
        let count = Cell::new(0);
        let mut file = match RecordReader::new(Counted::new(input, &count), Format::V1) {
            Ok(file) => file,
            Err(e) => {
                let what = match e.is(errno::EINVAL) {
                    true => "invalid or unexpected diff banner",
                    false => "failed to decode diff banner",
                };
                eprintln!("rbd: {what}");
                return close(image, Err(import_failed(e.errno()))).await;
            }
        };
        let progress = self.progress("Importing image diff");
        // Of standard input only the image's size is known.
        let size = Cell::new(0);
        let imported = image
            .import_diff(&mut file, block, |news| match (news, len) {
                (ImportNews::Unknown(tag), _) => eprintln!("unrecognized tag byte {tag} in stream; skipping"),
                (_, Some(len)) => progress.update(count.get(), len),
                (ImportNews::Size(now), None) => size.set(now),
                (ImportNews::Offset(offset), None) => progress.update(offset, size.get()),
            })
            .await;
        if let Err(e) = &imported {
            say(e);
        }
        let done = progress.end(imported).map_err(|e| import_failed(e.errno()));
        close(image, done).await
    }
}

/// Merges two files into a third, for which no cluster is needed.
pub(super) fn merge(args: &Args, words: &[String]) -> Done {
    let word = |n: usize| words.get(n).filter(|w| !w.is_empty());
    let first = word(0).ok_or_else(|| bad("first diff was not specified"))?;
    let second = word(1).ok_or_else(|| bad("second diff was not specified"))?;
    let path = args.path.as_ref().or_else(|| word(2));
    let path = path.ok_or_else(|| bad("path was not specified"))?;
    let progress = Progress::new("Merging image diff", !args.no_progress);
    let merged = merge_files([first, second, path], &progress.listener());
    progress
        .end(merged)
        .map_err(|code| complain(code, "merge-diff error"))
}

/// Fails with the exit code after the reason was printed.
fn merge_files([first, second, path]: [&str; 3], progress: &spirula_rbd::Progress) -> Done {
    let opened = |path: &str| -> Result<_, Exit> {
        let input = open_input(path);
        let (input, _) = input.map_err(|e| complain(Errno::from(&e), format!("error opening {path}")))?;
        Ok(BufReader::with_capacity(BUFFER, input))
    };
    let (first, second) = (opened(first)?, opened(second)?);
    let out = open_output(path).map_err(|e| complain(Errno::from(&e), format!("error create {path}")))?;
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let merged = merge_diff(first, second, &mut out, progress).map_err(|e| {
        match &e {
            MergeError::NoSequel => eprintln!("{e}"),
            e => eprintln!("rbd: {e}"),
        }
        e.errno()
    });
    let merged = merged.and_then(|()| out.flush().map_err(|e| Errno::from(&e)));
    if merged.is_err() {
        remove_part(path);
    }
    merged.map_err(Exit::from)
}
