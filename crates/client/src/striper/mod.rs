//! Striped objects, compatible with libradosstriper.
//!
//! The pieces of `name` are the objects `name.0000000000000000` and so on. The first has layout and
//! size as attributes in decimal text (`striper.layout.*`, `striper.size`) and the whole's own
//! attributes; missing pieces are holes. Readers and writers hold a shared lock on the first piece;
//! a client that truncates or removes the whole holds an exclusive one (Ceph's
//! `src/libradosstriper/RadosStriperImpl.cc` describes it at its head).

mod layout;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use spirula_denc::UTime;
use spirula_maps::ObjectName;
use spirula_proto::osd::{CmpMode, CmpOp, OpArgs, OpCode, OpFlags, OsdFlags, OsdOpIn, XattrArgs};
use spirula_proto::osd_op_data::{XattrInput, Xattrs};
use tokio::task::JoinSet;

use crate::ioctx::flagged;
use crate::lock::lock_op;
use crate::{Error, IoCtx, LockRequest, LockType, Result, errno};

pub use layout::{Layout, Piece};

const STRIPE_UNIT: &str = "striper.layout.stripe_unit";
const STRIPE_COUNT: &str = "striper.layout.stripe_count";
const OBJECT_SIZE: &str = "striper.layout.object_size";
const SIZE: &str = "striper.size";
const LOCK: &str = "striper.lock";
/// The attribute of the lock.
const LOCK_ATTRIBUTE: &str = "lock.striper.lock";
/// The number of pieces that are removed at the same time.
const REMOVALS: usize = 16;

/// Striped objects in a pool.
#[derive(Clone)]
pub struct Striper {
    io: IoCtx,
    layout: Layout,
}

/// A striped object whose first piece is locked.
struct Open {
    first: ObjectName,
    cookie: String,
    layout: Layout,
    size: u64,
}

/// The name of a piece.
fn piece_name(soid: &ObjectName, number: u64) -> ObjectName {
    [soid.as_bytes(), format!(".{number:016x}").as_bytes()]
        .concat()
        .into()
}

fn set(name: &str, value: &str) -> OsdOpIn {
    XattrInput::op(
        OpCode::SETXATTR,
        name.as_bytes(),
        value.as_bytes(),
        XattrArgs::default(),
    )
}

/// Parses a decimal attribute.
fn number<T: std::str::FromStr>(attributes: &Xattrs, name: &str) -> Result<T> {
    let value = attributes.get(name.as_bytes());
    let text = value.ok_or(Error::os("striped object", errno::ENOENT))?;
    let parsed = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    parsed.ok_or(Error::os("striped object", errno::EINVAL))
}

fn cookie() -> Result<String> {
    let mut random = [0; 16];
    spirula_random::fill(&mut random).map_err(|e| Error::Config(format!("no randomness: {e}")))?;
    let hex: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

async fn join(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    let mut first = Ok(());
    while let Some(done) = tasks.join_next().await {
        let done = done.unwrap_or(Err(Error::Mon(spirula_monc::Error::ShutDown)));
        first = first.and(done);
    }
    first
}

impl Striper {
    /// Striped objects in the pool of `io`, with the default layout for new ones.
    pub fn new(io: IoCtx) -> Self {
        Self {
            io,
            layout: Layout::default(),
        }
    }

    /// Striped objects with another layout for new ones.
    ///
    /// # Errors
    /// `EINVAL` for an impossible layout.
    pub fn with_layout(mut self, layout: Layout) -> Result<Self> {
        if !layout.is_valid() {
            return Err(Error::os("layout", errno::EINVAL));
        }
        self.layout = layout;
        Ok(self)
    }

    /// Locks the first piece, where it exists, and reads layout and size.
    async fn open(&self, soid: &ObjectName, kind: LockType) -> Result<Open> {
        let first = piece_name(soid, 0);
        let cookie = cookie()?;
        let lock = LockRequest {
            name: LOCK.to_owned(),
            kind,
            cookie: cookie.clone(),
            // Those that share a lock must agree on a tag.
            tag: if kind == LockType::SHARED { "Tag" } else { "" }.to_owned(),
            description: String::new(),
            duration: Duration::ZERO,
            flags: 0,
        };
        let exists = OsdOpIn::new(OpCode::STAT, OpArgs::None, Bytes::new());
        let io = self.io.clone().with_flags(OsdFlags::WRITE);
        io.operate("lock", &first, vec![exists, lock_op(&lock)?]).await?;
        match self.describe(&first).await {
            Ok((layout, size)) => Ok(Open {
                first,
                cookie,
                layout,
                size,
            }),
            Err(e) => {
                self.unlock(&first, &cookie).await;
                Err(e)
            }
        }
    }

    async fn describe(&self, first: &ObjectName) -> Result<(Layout, u64)> {
        let attributes = self.io.getxattrs(first).await?;
        let layout = Layout {
            stripe_unit: number(&attributes, STRIPE_UNIT)?,
            stripe_count: number(&attributes, STRIPE_COUNT)?,
            object_size: number(&attributes, OBJECT_SIZE)?,
        };
        if !layout.is_valid() {
            return Err(Error::os("striped object", errno::EINVAL));
        }
        Ok((layout, number(&attributes, SIZE)?))
    }

    async fn unlock(&self, first: &ObjectName, cookie: &str) {
        // The operation is done; the next client may break a lock that stays.
        if let Err(e) = self.io.unlock(first, LOCK, cookie).await {
            tracing::debug!("unlocking {first}: {e}");
        }
    }

    /// Creates the first piece if it does not exist.
    async fn create(&self, soid: &ObjectName, size: u64) -> Result<()> {
        let layout = &self.layout;
        let create = OsdOpIn::new(OpCode::CREATE, OpArgs::None, Bytes::new());
        let ops = vec![
            flagged(create, OpFlags::EXCL),
            set(OBJECT_SIZE, &layout.object_size.to_string()),
            set(STRIPE_UNIT, &layout.stripe_unit.to_string()),
            set(STRIPE_COUNT, &layout.stripe_count.to_string()),
            set(SIZE, &size.to_string()),
        ];
        let created = self.io.operate("create", piece_name(soid, 0), ops).await;
        match created {
            Err(e) if e.errno() != errno::EEXIST => Err(e),
            _ => Ok(()),
        }
    }

    /// Raises the stored size to `size` if it is smaller.
    async fn raise(&self, first: &ObjectName, size: u64) -> Result<()> {
        let compare = XattrArgs {
            cmp_op: CmpOp::GT,
            cmp_mode: CmpMode::U64,
            ..XattrArgs::default()
        };
        let smaller = XattrInput::op(OpCode::CMPXATTR, SIZE.as_bytes(), &size.to_le_bytes(), compare);
        let ops = vec![smaller, set(SIZE, &size.to_string())];
        match self.io.operate("grow", first, ops).await {
            Err(e) if e.errno() != errno::ECANCELED => Err(e),
            _ => Ok(()),
        }
    }

    /// Writes at `offset`, and creates the object where there is none.
    ///
    /// # Errors
    /// `EBUSY` while somebody truncates or removes it.
    pub async fn write(&self, soid: impl Into<ObjectName>, offset: u64, data: Bytes) -> Result<()> {
        let soid = soid.into();
        let end = offset.saturating_add(data.len() as u64);
        self.create(&soid, end).await?;
        let open = self.open(&soid, LockType::SHARED).await?;
        let mut written = self.raise(&open.first, end).await;
        if written.is_ok() {
            written = self.write_pieces(&soid, open.layout, offset, data).await;
        }
        self.unlock(&open.first, &open.cookie).await;
        written
    }

    /// Appends, and creates the object where there is none.
    ///
    /// # Errors
    /// `EBUSY` while somebody truncates or removes it.
    pub async fn append(&self, soid: impl Into<ObjectName>, data: Bytes) -> Result<()> {
        let soid = soid.into();
        let open = match self.open(&soid, LockType::SHARED).await {
            Err(e) if e.errno() == errno::ENOENT => {
                self.create(&soid, 0).await?;
                self.open(&soid, LockType::SHARED).await?
            }
            open => open?,
        };
        let end = open.size.saturating_add(data.len() as u64);
        let mut written = self.raise(&open.first, end).await;
        if written.is_ok() {
            written = self.write_pieces(&soid, open.layout, open.size, data).await;
        }
        self.unlock(&open.first, &open.cookie).await;
        written
    }

    async fn write_pieces(&self, soid: &ObjectName, layout: Layout, offset: u64, data: Bytes) -> Result<()> {
        let mut tasks = JoinSet::new();
        let mut rest = data;
        for Piece { object, offset, len } in layout.pieces(offset, rest.len() as u64) {
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
            let (io, name, part) = (self.io.clone(), piece_name(soid, object), rest.split_to(len));
            tasks.spawn_local(async move { io.write(name, offset, part).await });
        }
        join(tasks).await
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// `EBUSY` while somebody uses it.
    pub async fn write_full(&self, soid: impl Into<ObjectName>, data: Bytes) -> Result<()> {
        let soid = soid.into();
        match self.truncate(&soid, 0).await {
            Err(e) if e.errno() != errno::ENOENT => return Err(e),
            _ => {}
        }
        self.write(soid, 0, data).await
    }

    /// Reads up to `len` bytes from `offset`; short at the object's end.
    ///
    /// # Errors
    /// `ENOENT` where there is no object, `EBUSY` while somebody truncates or removes it.
    pub async fn read(&self, soid: impl Into<ObjectName>, offset: u64, len: u64) -> Result<Bytes> {
        let soid = soid.into();
        let open = self.open(&soid, LockType::SHARED).await?;
        let len = len.min(open.size.saturating_sub(offset));
        let read = self.read_pieces(&soid, open.layout, offset, len).await;
        self.unlock(&open.first, &open.cookie).await;
        read
    }

    async fn read_pieces(&self, soid: &ObjectName, layout: Layout, offset: u64, len: u64) -> Result<Bytes> {
        let mut tasks = JoinSet::new();
        let mut starts = Vec::new();
        let mut total = 0usize;
        for (index, piece) in layout.pieces(offset, len).enumerate() {
            starts.push(total);
            total += usize::try_from(piece.len).unwrap_or(usize::MAX);
            let (io, name) = (self.io.clone(), piece_name(soid, piece.object));
            tasks.spawn_local(async move {
                match io.read(name, piece.offset, piece.len).await {
                    // A hole.
                    Err(e) if e.errno() == errno::ENOENT => Ok((index, Bytes::new())),
                    data => data.map(|data| (index, data)),
                }
            });
        }
        let mut out = BytesMut::zeroed(total);
        let mut whole = None;
        while let Some(done) = tasks.join_next().await {
            let (index, data) = done.unwrap_or(Err(Error::Mon(spirula_monc::Error::ShutDown)))?;
            if data.len() == total {
                whole = Some(data);
                continue;
            }
            let start = starts.get(index).copied().unwrap_or(total);
            let Some(place) = out.get_mut(start..start + data.len()) else {
                return Err(Error::Malformed("more data than asked for".into()));
            };
            place.copy_from_slice(&data);
        }
        Ok(whole.unwrap_or_else(|| out.freeze()))
    }

    /// Cuts or extends the object to `size` bytes.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EBUSY` while somebody uses it.
    pub async fn truncate(&self, soid: impl Into<ObjectName>, size: u64) -> Result<()> {
        let soid = soid.into();
        let open = self.open(&soid, LockType::EXCLUSIVE).await?;
        let mut done = Ok(());
        if size < open.size {
            done = self.cut(&soid, &open, size).await;
        }
        if done.is_ok() && size != open.size {
            done = self
                .io
                .setxattr(&open.first, SIZE, size.to_string().as_bytes())
                .await;
        }
        self.unlock(&open.first, &open.cookie).await;
        done
    }

    /// Removes the data behind `size`, the last pieces first: after a failure the stored size still
    /// covers the remaining ones.
    async fn cut(&self, soid: &ObjectName, open: &Open, size: u64) -> Result<()> {
        let layout = open.layout;
        let keep = size / layout.set_size() * u64::from(layout.stripe_count);
        let count = layout.objects(open.size);
        let behind = keep.saturating_add(layout.stripe_count.into()).min(count);
        self.remove_pieces(soid, behind..count).await?;
        for number in (keep..behind).rev() {
            let len = layout.object_len(number, size);
            let name = piece_name(soid, number);
            let done = if len > 0 || number == 0 {
                self.io.truncate(name, len).await
            } else {
                self.io.remove(name).await
            };
            match done {
                Err(e) if e.errno() != errno::ENOENT => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes pieces by their numbers; missing ones are no error.
    async fn remove_pieces(&self, soid: &ObjectName, numbers: std::ops::Range<u64>) -> Result<()> {
        let mut tasks = JoinSet::new();
        let mut first = Ok(());
        for number in numbers.rev() {
            if tasks.len() >= REMOVALS
                && let Some(done) = tasks.join_next().await
            {
                first = first.and(done.unwrap_or(Err(Error::Mon(spirula_monc::Error::ShutDown))));
            }
            let (io, name) = (self.io.clone(), piece_name(soid, number));
            tasks.spawn_local(async move {
                match io.remove(name).await {
                    Err(e) if e.errno() != errno::ENOENT => Err(e),
                    _ => Ok(()),
                }
            });
        }
        let rest = join(tasks).await;
        first.and(rest)
    }

    /// Removes the object, its first piece last.
    ///
    /// # Errors
    /// `EBUSY` while somebody uses it. An object that does not exist is created by the lock and
    /// removed again, as libradosstriper does.
    pub async fn remove(&self, soid: impl Into<ObjectName>) -> Result<()> {
        let soid = soid.into();
        let first = piece_name(&soid, 0);
        let lock = LockRequest {
            name: LOCK.to_owned(),
            kind: LockType::EXCLUSIVE,
            cookie: cookie()?,
            tag: String::new(),
            description: String::new(),
            duration: Duration::ZERO,
            flags: 0,
        };
        self.io.lock(&first, &lock).await?;
        let count = match self.describe(&first).await {
            Ok((layout, size)) => layout.objects(size),
            Err(_) => self.count_pieces(&soid).await,
        };
        self.remove_pieces(&soid, 1..count.max(1)).await?;
        self.io.remove(first).await
    }

    /// The number of pieces up to the first hole.
    async fn count_pieces(&self, soid: &ObjectName) -> u64 {
        let mut count = 0;
        while self.io.stat(piece_name(soid, count)).await.is_ok() {
            count += 1;
        }
        count
    }

    /// The object's size in bytes, and when its first piece was last modified.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `ENODATA` where it is not a striped object's.
    pub async fn stat(&self, soid: impl Into<ObjectName>) -> Result<(u64, UTime)> {
        let first = piece_name(&soid.into(), 0);
        let (_, mtime) = self.io.stat(&first).await?;
        let value = self.io.getxattr(&first, SIZE).await?;
        let size = std::str::from_utf8(&value).ok().and_then(|t| t.parse().ok());
        Ok((size.ok_or(Error::os("stat", errno::EINVAL))?, mtime))
    }

    /// The first piece, whose attributes are the whole's.
    pub fn first_piece(&self, soid: impl Into<ObjectName>) -> ObjectName {
        piece_name(&soid.into(), 0)
    }

    /// All attributes except the striper's own.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn getxattrs(&self, soid: impl Into<ObjectName>) -> Result<Xattrs> {
        let mut all = self.io.getxattrs(self.first_piece(soid)).await?;
        for own in [STRIPE_UNIT, STRIPE_COUNT, OBJECT_SIZE, SIZE, LOCK_ATTRIBUTE] {
            all.remove(own.as_bytes());
        }
        Ok(all)
    }

    /// The name of the whole with this first piece; `None` if it is not the name of one.
    pub fn whole_name(first: &ObjectName) -> Option<ObjectName> {
        let whole = first.as_bytes().strip_suffix(b".0000000000000000")?;
        (!whole.is_empty()).then(|| whole.into())
    }
}
