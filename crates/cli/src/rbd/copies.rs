//! Copies of images.

use super::{Done, Tool, close, failed};

impl Tool {
    pub(super) async fn copy(&self) -> Done {
        let (target, rest) = self.image().await?;
        let dest = self.dest(rest, None, None).await?.without_snap()?;
        let (options, block) = (self.create_options()?, self.sparse_size()?);
        let image = target.open_to_read().await?;
        let progress = self.progress("Image copy");
        let copied = image
            .copy(&dest.io, &dest.spec.image, &options, block, &progress.listener())
            .await;
        close(image, progress.end(copied).map_err(|e| failed("copy failed", &e))).await
    }

    pub(super) async fn deep_copy(&self) -> Done {
        let (target, rest) = self.image().await?;
        let dest = self.dest(rest, None, None).await?.without_snap()?;
        let (options, flat) = (self.create_options()?, self.args.flatten);
        let image = target.open_to_read().await?;
        let progress = self.progress("Image deep copy");
        let copied = image
            .deep_copy(&dest.io, &dest.spec.image, &options, flat, &progress.listener())
            .await;
        close(
            image,
            progress.end(copied).map_err(|e| failed("deep copy failed", &e)),
        )
        .await
    }
}
