//! How a client that has taken the lock begins with the journal: it does what may be lacking, then
//! it appends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Mutex;

use super::commits::Commits;
use super::header::JournalHeader;
use super::player::Player;
use super::replay::Replay;
use super::{Journal, Recorder};
use crate::Result;
use crate::image::Inner;

impl Journal {
    /// Replays to `image` the events that it may lack, and begins to append under a new tag.
    /// `image` must be a view that does not append events of its own.
    ///
    /// # Errors
    /// `EROFS` where another cluster writes the journal, `EBADMSG` where it can't be read, `ENOSYS`
    /// where it tells of what can't be done here.
    pub(crate) async fn open(image: Rc<Inner>) -> Result<Self> {
        let (header, position) = JournalHeader::open(&image.site.io, &image.site.fixed.id).await?;
        let mut commits = Commits::new(header.width, position.clone());
        let mut player = Player::find(&header, &position).await?;
        let mut replay = Replay::new(image);
        let mut done = Vec::new();
        while let Some((entry, event)) = player.next().await? {
            replay.apply(event).await?;
            done.push(commits.begin(entry));
        }
        replay.finish().await?;
        if commits.done(&done) {
            tracing::info!("{} entries of a journal were done again", done.len());
        }
        if let Some(position) = commits.take_changed() {
            header.commit(&position).await?;
        }
        let tag = header.create_tag(commits.last().cloned()).await?;
        let set = *header.sets().await?.end();
        let mut sizes = Vec::new();
        for place in 0..header.width {
            sizes.push(header.size_of(header.object_of(set, place)).await?);
        }
        let recorder = Recorder {
            tag,
            number: 0,
            set,
            sizes,
            broken: false,
        };
        Ok(Self {
            header: Rc::new(header),
            recorder: Mutex::new(recorder),
            waiting: RefCell::default(),
            commits: RefCell::new(commits),
            telling: Mutex::default(),
            will_tell: Cell::default(),
            closed: Cell::default(),
            operations: Cell::default(),
        })
    }
}
