//! Files as images.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::errno::{self, Errno};
use spirula_rbd::diff_file::{Format, RecordReader};
use spirula_rbd::{CreateOptions, Image, ImageHead, Options, create, read_image_head};
use tokio::task::JoinHandle;

use super::diffs::{BUFFER, say};
use super::{Done, Target, Tool, bad, close, complain};

/// Writes under way at the same time.
const AT_ONCE: usize = 10;

/// The parts of a chunk that are not zeros, in whole blocks.
fn parts(chunk: &Bytes, block: usize) -> Vec<(usize, Bytes)> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for piece in chunk.chunks(block.max(1)) {
        let end = at + piece.len();
        if piece.iter().any(|b| *b != 0) {
            match parts.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => parts.push(at..end),
            }
        }
        at = end;
    }
    parts.into_iter().map(|r| (r.start, chunk.slice(r))).collect()
}

/// A file that is being imported.
struct Input {
    reader: Box<dyn Read>,
    /// Its size, where it is known.
    size: Option<u64>,
    is_directory: bool,
}

impl Input {
    fn open(path: &str) -> std::io::Result<Self> {
        if path == "-" {
            return Ok(Self {
                reader: Box::new(std::io::stdin()),
                size: None,
                is_directory: false,
            });
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let size = match metadata.is_file() {
            true => Some(metadata.len()),
            // A device or pipe tells its size by its end.
            false => None,
        };
        Ok(Self {
            reader: Box::new(file),
            size,
            is_directory: metadata.is_dir(),
        })
    }

    /// The next bytes, fewer than asked for at the end only.
    fn next(&mut self, len: u64) -> std::io::Result<Bytes> {
        let mut data = Vec::new();
        self.reader.by_ref().take(len).read_to_end(&mut data)?;
        Ok(data.into())
    }
}

impl Tool {
    pub(super) async fn import(&self) -> Done {
        let with_snapshots = self.with_snapshots()?;
        let path = self.path(&self.words);
        let path = path.ok_or_else(|| bad("path was not specified"))?.to_owned();
        let rest = match self.args.path {
            Some(_) => &self.words[..],
            None => self.words.get(1..).unwrap_or_default(),
        };
        let name = Path::new(&path)
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        let name = name.filter(|_| path != "-");
        let words = match (&self.args.image, rest, name) {
            (Some(image), _, _) => vec![image.clone()],
            (None, [], Some(name)) => vec![name],
            (None, [], None) if self.args.dest.is_none() => {
                return Err(bad("image name must be specified when importing from stdin"));
            }
            (None, rest, _) => rest.to_vec(),
        };
        let (pool, namespace) = (self.args.pool.as_deref(), self.args.namespace.as_deref());
        let dest = self.dest(&words, pool, namespace).await?.without_snap()?;
        let block = self.sparse_size()?;
        let import_failed = |e: Errno| complain(e, format!("import failed: {}", e));
        let mut input = Input::open(&path).map_err(|e| {
            eprintln!("rbd: error opening {path}");
            import_failed(Errno::from(&e))
        })?;
        let progress = self.progress("Importing image");
        if input.is_directory {
            eprintln!("rbd: cannot import a directory");
            return progress.end(Err(errno::EISDIR)).map_err(import_failed);
        }
        let options = self.create_options()?;
        if with_snapshots {
            let progress = self.progress("Importing image");
            let imported = import_all(&mut input, &dest, &options, block, &progress).await;
            return progress.end(imported).map_err(import_failed);
        }
        let first_size = input.size.unwrap_or(0);
        let created = create(&dest.io, &dest.spec.image, first_size, &options).await;
        if let Err(e) = created {
            eprintln!("rbd: image creation failed");
            return progress.end(Err(e.errno())).map_err(import_failed);
        }
        let image = Rc::new(dest.open(Options::default()).await?);
        let copied = copy_in(&image, &mut input, block, |done, all| progress.update(done, all)).await;
        let copied = progress.end(copied);
        let done = copied.map_err(import_failed);
        let done = match Rc::into_inner(image) {
            Some(image) => close(image, done).await,
            None => done,
        };
        if done.is_err() {
            // The failure of the import counts, not this one's.
            let _ = spirula_rbd::remove(&dest.io, &dest.spec.image, &spirula_rbd::Progress::untold()).await;
        }
        done
    }
}

/// Imports a file of an image with its snapshots. Fails with a negative errno after the reason was
/// printed.
async fn import_all(
    input: &mut Input,
    dest: &Target,
    options: &CreateOptions,
    block: u64,
    progress: &super::Progress,
) -> Result<(), Errno> {
    let mut reader = BufReader::with_capacity(BUFFER, &mut input.reader);
    let head = read_image_head(&mut reader).map_err(|e| {
        let what = match e.is(errno::EINVAL) {
            true => "invalid or unexpected diff banner",
            false => "failed to decode diff banner",
        };
        eprintln!("rbd: {what}\nrbd: import header failed.");
        e.errno()
    })?;
    let (io, name) = (&dest.io, &dest.spec.image);
    if let Err(e) = create(io, name, 0, &head.options(options)).await {
        eprintln!("rbd: image creation failed");
        return Err(e.errno());
    }
    let imported = match Image::open(io, name, Options::default()).await {
        Ok(image) => {
            let imported = fill(&image, &head, &mut reader, block, progress).await;
            let closed = image.close().await.map_err(|e| e.errno());
            imported.and(closed)
        }
        Err(e) => Err(e.errno()),
    };
    if imported.is_err() {
        eprintln!("rbd: failed to import image");
        // The failure of the import counts, not this one's.
        let _ = spirula_rbd::remove(io, name, &spirula_rbd::Progress::untold()).await;
    }
    imported
}

async fn fill(
    image: &Image,
    head: &ImageHead,
    reader: &mut impl Read,
    block: u64,
    progress: &super::Progress,
) -> Result<(), Errno> {
    for (key, value) in &head.metadata {
        image.set_metadata(key, value).await.map_err(|e| {
            eprintln!("rbd: failed to import image-meta");
            e.errno()
        })?;
    }
    for n in 0..head.diffs {
        let mut file = RecordReader::new(&mut *reader, Format::V2).map_err(|e| e.errno())?;
        let imported = image.import_diff(&mut file, block, |_| {}).await;
        imported.map_err(|e| {
            say(&e);
            eprintln!("rbd: import-diff failed: {}", e.errno());
            e.errno()
        })?;
        progress.update(n + 1, head.diffs);
    }
    Ok(())
}

async fn copy_in(
    image: &Rc<Image>,
    input: &mut Input,
    block: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), Errno> {
    let block = usize::try_from(block).unwrap_or(usize::MAX);
    let step = image.fixed().layout.set_size();
    let mut writes: VecDeque<JoinHandle<spirula_rbd::Result<()>>> = VecDeque::new();
    let mut at = 0;
    loop {
        let chunk = input.next(step).map_err(|e| Errno::from(&e))?;
        let end = at + chunk.len() as u64;
        if end > image.size() {
            // Where the size is not known it grows in great steps, and is cut at the end.
            let size = match input.size {
                Some(_) => end,
                None => end.max(image.size().saturating_mul(2)),
            };
            image.resize(size, true).await.map_err(|e| e.errno())?;
        }
        let is_last = (chunk.len() as u64) < step;
        for (offset, data) in parts(&chunk, block) {
            if writes.len() >= AT_ONCE {
                finish(writes.pop_front()).await?;
            }
            let (image, offset) = (Rc::clone(image), at + offset as u64);
            writes.push_back(tokio::task::spawn_local(async move {
                image.write(offset, data).await
            }));
        }
        at = end;
        if let Some(size) = input.size {
            progress(at, size);
        }
        if is_last {
            break;
        }
    }
    while let Some(write) = writes.pop_front() {
        finish(Some(write)).await?;
    }
    if input.size.is_none() && image.size() != at {
        image.resize(at, true).await.map_err(|e| e.errno())?;
    }
    Ok(())
}

async fn finish(write: Option<JoinHandle<spirula_rbd::Result<()>>>) -> Result<(), Errno> {
    match write {
        None => Ok(()),
        Some(write) => match write.await {
            Ok(done) => done.map_err(|e| e.errno()),
            Err(_) => Err(errno::EIO),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out_in_whole_blocks() {
        let mut data = vec![0; 50];
        data[12] = 1;
        data[20] = 2;
        data[49] = 3;
        let data = Bytes::from(data);
        let parts = parts(&data, 10);
        assert_eq!(parts, [(10, data.slice(10..30)), (40, data.slice(40..50))]);
    }
}
