//! Images as files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::errno::{self, Errno};
use spirula_rbd::Image;
use tokio::task::JoinHandle;

use super::diffs::{BUFFER, open_output};
use super::{Done, Tool, close, complain, invalid};
use crate::rbd::Exit;

/// Reads under way at the same time.
const AHEAD: usize = 10;

/// The destination of an export.
enum Sink {
    Stdout,
    File(File),
}

impl Sink {
    /// Writes the next bytes. A file gets holes for zeros.
    fn take(&mut self, data: &Bytes) -> std::io::Result<()> {
        match self {
            Self::Stdout => std::io::stdout().lock().write_all(data),
            Self::File(file) if data.iter().all(|b| *b == 0) => {
                let len = i64::try_from(data.len()).unwrap_or(i64::MAX);
                file.seek(SeekFrom::Current(len)).map(drop)
            }
            Self::File(file) => file.write_all(data),
        }
    }

    fn finish(&mut self, size: u64) -> std::io::Result<()> {
        match self {
            Self::Stdout => std::io::stdout().lock().flush(),
            Self::File(file) => file.set_len(size),
        }
    }
}

impl Tool {
    /// The command's file: of an option, or else the first word; `None` if neither is given.
    pub(super) fn path<'a>(&'a self, words: &'a [String]) -> Option<&'a str> {
        self.args
            .path
            .as_ref()
            .or_else(|| words.first())
            .map(String::as_str)
    }

    /// Whether the file has the image with its snapshots (format 2).
    pub(super) fn with_snapshots(&self) -> Result<bool, Exit> {
        match self.args.export_format.as_deref() {
            None | Some("1") => Ok(false),
            Some("2") => Ok(true),
            Some(_) => Err(invalid("export-format")),
        }
    }

    pub(super) async fn export(&self) -> Done {
        let with_snapshots = self.with_snapshots()?;
        let (target, rest) = self.image().await?;
        let path = match self.path(rest) {
            Some(path) => path.to_owned(),
            None => target.spec.image.clone(),
        };
        let image = target.open_to_read().await?;
        if with_snapshots {
            let done = self.export_all(&image, &path).await;
            return close(image, done).await;
        }
        let mut sink = match path.as_str() {
            "-" => Sink::Stdout,
            path => Sink::File(
                File::create_new(path)
                    .map_err(|e| complain(Errno::from(&e), format!("export error: {}", Errno::from(&e))))?,
            ),
        };
        let image = Rc::new(image);
        let done = self.copy_out(&image, &mut sink).await;
        match Rc::into_inner(image) {
            Some(image) => close(image, done).await,
            None => done,
        }
    }

    async fn export_all(&self, image: &Image, path: &str) -> Done {
        let export_failed = |e: Errno| complain(e, format!("export error: {}", e));
        let file = open_output(path).map_err(|e| export_failed(Errno::from(&e)))?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let progress = self.progress("Exporting image");
        let exported = image.export_all(&mut out, &progress.listener()).await;
        let exported = exported.map_err(|e| e.errno());
        let exported = exported.and_then(|()| out.flush().map_err(|e| Errno::from(&e)));
        progress.end(exported).map_err(export_failed)
    }

    async fn copy_out(&self, image: &Rc<Image>, sink: &mut Sink) -> Done {
        let shown = !matches!(sink, Sink::Stdout);
        let progress = self.progress("Exporting image");
        let layout = image.fixed().layout;
        let (size, step) = (image.size(), layout.set_size());
        let mut reads: VecDeque<JoinHandle<spirula_rbd::Result<Bytes>>> = VecDeque::new();
        let (mut asked, mut written) = (0, 0);
        let result = loop {
            while asked < size && reads.len() < AHEAD {
                let (image, offset) = (Rc::clone(image), asked);
                let len = step.min(size - offset);
                reads.push_back(tokio::task::spawn_local(
                    async move { image.read(offset, len).await },
                ));
                asked += len;
            }
            let Some(read) = reads.pop_front() else {
                break sink.finish(size).map_err(|e| Errno::from(&e));
            };
            let data = match read.await {
                Ok(Ok(data)) => data,
                Ok(Err(e)) => break Err(e.errno()),
                Err(_) => break Err(errno::EIO),
            };
            if let Err(e) = sink.take(&data) {
                break Err(Errno::from(&e));
            }
            written += data.len() as u64;
            if shown {
                progress.update(written, size);
            }
        };
        for read in &reads {
            read.abort();
        }
        let result = if shown { progress.end(result) } else { result };
        result.map_err(|e| complain(e, format!("export error: {}", e)))
    }
}
