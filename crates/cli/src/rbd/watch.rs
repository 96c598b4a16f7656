//! `rbd watch`: shows the notifications between clients of an image.

use std::io::{Read, stdin};

use spirula_client::WatchNews;
use spirula_rbd::notification_name;

use super::{Done, Tool, close, complain};

impl Tool {
    pub(super) async fn watch(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let header = format!("rbd_header.{}", image.fixed().id);
        let watched = image.pool().watch(header, 0).await;
        let mut watch = watched.map_err(|e| {
            eprintln!("rbd: watch failed");
            complain(e.errno(), format!("watch failed: {}", e.errno()))
        })?;
        println!("press enter to exit...");
        let entered = tokio::task::spawn_blocking(|| {
            // A line that can't be read is the end, too.
            let _ = stdin().read(&mut [0]);
        });
        tokio::pin!(entered);
        let name = image.name();
        loop {
            let news = tokio::select! {
                news = watch.next() => news,
                _ = &mut entered => break,
            };
            match news {
                Some(WatchNews::Notify {
                    id,
                    notifier,
                    payload,
                }) => {
                    let op = notification_name(&payload).map(|op| format!(", notify_op={op}"));
                    println!(
                        "{name} received notification: notify_id={id}, cookie={}, notifier_id={notifier}, bl.length={}{}",
                        watch.cookie(),
                        payload.len(),
                        op.unwrap_or_default()
                    );
                    if let Err(e) = watch.ack(id, bytes::Bytes::new()).await {
                        tracing::debug!("answer to a notification: {e}");
                    }
                }
                Some(WatchNews::Lost(errno)) => {
                    eprintln!("{name} received error: cookie={}, err={}", watch.cookie(), errno);
                }
                None => {
                    // As the official tool: it ends when it is told.
                    let _ = (&mut entered).await;
                    break;
                }
            }
        }
        let done = watch.unwatch().await.map_err(|e| {
            eprintln!("rbd: unwatch failed");
            complain(e.errno(), format!("watch failed: {}", e.errno()))
        });
        close(image, done).await
    }
}
