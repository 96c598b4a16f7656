//! `export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use spirula_client::errno::Errno;
use spirula_client::{Error, IoCtx, Listed};

use super::dump::{DumpWriter, Kind};
use super::objects::unwritten;
use super::{Done, Tool, complain};

/// Bytes of a piece of data.
const PIECE: u64 = 4 << 20;
/// Values of a page of a map.
const PAGE: u64 = 512;

/// Why an export ends.
enum Failure {
    /// Reading this part of an object failed.
    Read(&'static str, Error),
    Write(io::Error),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::Write(e)
    }
}

type Exported = Result<(), Failure>;

/// Writes an object's data. Unreadable data is left out, as by the official tool.
async fn data(io: &IoCtx, listed: &Listed, out: &mut DumpWriter<impl Write>) -> Exported {
    let mut offset = 0;
    while let Ok(piece) = io.read(&listed.oid, offset, PIECE).await {
        if piece.is_empty() {
            break;
        }
        out.data(offset, &piece)?;
        offset += piece.len() as u64;
        if (piece.len() as u64) < PIECE {
            break;
        }
    }
    Ok(())
}

async fn map(io: &IoCtx, listed: &Listed, out: &mut DumpWriter<impl Write>) -> Exported {
    let header = io.omap_header(&listed.oid).await;
    out.omap_header(&header.map_err(|e| Failure::Read("omap header", e))?)?;
    let mut start_after = Bytes::new();
    loop {
        let page = io.omap_vals(&listed.oid, start_after, Bytes::new(), PAGE).await;
        let page = page.map_err(|e| Failure::Read("omap keys", e))?;
        let Some((last, _)) = page.vals.last_key_value() else {
            return Ok(());
        };
        start_after = last.clone();
        out.values(Kind::OMAP, &page.vals)?;
        if (page.vals.len() as u64) < PAGE && !page.more {
            return Ok(());
        }
    }
}

async fn object(io: &IoCtx, listed: &Listed, out: &mut DumpWriter<impl Write>) -> Exported {
    out.begin_object(listed)?;
    data(io, listed, out).await?;
    let attributes = io.getxattrs(&listed.oid).await;
    let attributes = attributes.map_err(|e| Failure::Read("xattr set", e))?;
    // On disk, and so in dumps of PGs, users' attributes begin with an underscore.
    let attributes = attributes
        .into_iter()
        .map(|(name, value)| (Bytes::from([b"_", &name[..]].concat()), value))
        .collect();
    out.values(Kind::ATTRS, &attributes)?;
    map(io, listed, out).await?;
    Ok(out.mark(Kind::OBJECT_END)?)
}

impl Tool {
    pub(super) async fn export(&self) -> Done {
        let (io, words) = self.pool_command(0)?;
        let out: Box<dyn Write> = match words {
            [] => Box::new(io::stdout()),
            [path] if path == "-" => Box::new(io::stdout()),
            [path] => Box::new(
                File::create(path)
                    .map_err(|e| complain(1, format!("Error opening '{path}': {}", Errno::from(&e))))?,
            ),
            _ => return Err(self.usage()),
        };
        let unwritable = |e: io::Error| match e.kind() {
            io::ErrorKind::BrokenPipe => unwritten(&e),
            _ => complain(1, format!("error from export: {}", Errno::from(&e))),
        };
        let mut out = DumpWriter::new(BufWriter::new(out)).map_err(unwritable)?;
        let mut list = io.list(true);
        let failed = |e: &Error| complain(1, format!("error from export: {}", e.errno()));
        while let Some(listed) = list.next().await.map_err(|e| failed(&e))? {
            let io = io
                .clone()
                .with_namespace(&listed.nspace)
                .with_locator(&listed.locator);
            match object(&io, &listed, &mut out).await {
                Ok(()) => {}
                Err(Failure::Write(e)) => return Err(unwritable(e)),
                Err(Failure::Read(what, e)) => {
                    eprintln!("error getting {what} {}: {}", listed.oid, e.errno());
                    return Err(failed(&e));
                }
            }
        }
        out.finish().map(drop).map_err(unwritable)
    }
}
