//! `rbd object-map` and `rbd sparsify`.

use spirula_client::errno;
use spirula_rbd::{Image, Options};

use super::{Done, Tool, close, failed, size};
use crate::rbd::Exit;

/// The default size of the pieces of zeros that sparsify frees, in bytes.
const PIECE: u64 = 4096;

impl Tool {
    /// Opens the image of the command for writing; returns it with the snapshot if one is named.
    async fn with_map(&self) -> Result<(Image, Option<u64>), Exit> {
        let (target, _) = self.image().await?;
        let image = target.open(Options::default()).await?;
        let Some(name) = &target.spec.snap else {
            return Ok((image, None));
        };
        let found = image.header().user_snapshot(name).map(|s| s.id);
        match found {
            Some(id) => Ok((image, Some(id))),
            None => {
                eprintln!("error setting snapshot context: {}", errno::ENOENT);
                close(image, Err(errno::ENOENT.into())).await?;
                Err(errno::ENOENT.into())
            }
        }
    }

    pub(super) async fn object_map_rebuild(&self) -> Done {
        let (image, snap) = self.with_map().await?;
        let progress = self.progress("Object Map Rebuild");
        let done = progress.end(image.rebuild_object_map(snap, &progress.listener()).await);
        close(
            image,
            done.map_err(|e| failed("rebuilding object map failed", &e)),
        )
        .await
    }

    pub(super) async fn object_map_check(&self) -> Done {
        let (image, snap) = self.with_map().await?;
        let progress = self.progress("Object Map Check");
        let done = progress.end(image.check_object_map(snap, &progress.listener()).await);
        close(image, done.map_err(|e| failed("checking object map failed", &e))).await
    }

    pub(super) async fn sparsify(&self) -> Done {
        let (target, _) = self.image().await?;
        let target = target.without_snap()?;
        let piece = match &self.args.sparse_size {
            Some(text) => size("sparse-size", text, 1)?,
            None => PIECE,
        };
        let image = target.open(Options::default()).await?;
        let progress = self.progress("Image sparsify");
        let done = progress.end(image.sparsify(piece, &progress.listener()).await);
        close(image, done.map_err(|e| failed("sparsify error", &e))).await
    }
}
