//! `watch`, `notify`, `listwatchers`.

use std::io::{self, Read};

use bytes::Bytes;
use spirula_client::errno::Errno;
use spirula_client::{Watch, WatchNews};
use spirula_denc::Writer;
use spirula_proto::osd_op_data::WatcherId;
use spirula_text::addr_legacy;

use super::format::hexdump;
use super::objects::print;
use super::{Done, OnObject, Tool, last_words};

/// Seconds for which a notifier waits.
const NOTIFY_TIMEOUT: u32 = 10;

async fn tell(watch: &Watch, news: WatchNews) -> Done {
    let cookie = watch.cookie();
    match news {
        WatchNews::Notify {
            id,
            notifier,
            payload,
        } => {
            let head = format!("NOTIFY cookie {cookie} notify_id {id} from {notifier}\n");
            print([head, hexdump(&payload)].concat().as_bytes())?;
            // An answer that comes too late is nobody's business here.
            if let Err(e) = watch.ack(id, payload).await {
                tracing::debug!("{e}");
            }
            Ok(())
        }
        WatchNews::Lost(errno) => print(format!("ERROR cookie {cookie} err {}\n", errno).as_bytes()),
    }
}

impl Tool {
    pub(super) async fn watch(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let mut watch = io.watch(&oid, 0).await.map_err(|e| {
            eprintln!("error calling watch: {}", e.errno());
            last_words(e.errno())
        })?;
        print(b"press enter to exit...\n")?;
        let mut enter = tokio::task::spawn_blocking(|| io::stdin().read(&mut [0]));
        let mut lost = false;
        loop {
            tokio::select! {
                _ = &mut enter => break,
                news = watch.next(), if !lost => match news {
                    Some(news) => tell(&watch, news).await?,
                    None => lost = true,
                },
            }
        }
        // The official tool does not look at the outcome: the object may be gone.
        if let Err(e) = watch.unwatch().await {
            tracing::debug!("{e}");
        }
        Ok(())
    }

    pub(super) async fn notify(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(1..)?;
        let mut message = Writer::new();
        message.string(rest.first().map_or("", String::as_str));
        let payload = Bytes::from(message.into_vec());
        let failed = |errno: Errno| {
            eprintln!("error calling notify: {errno}");
            errno
        };
        let outcome = io.notify(&oid, payload, NOTIFY_TIMEOUT).await;
        let outcome = outcome.map_err(|e| last_words(failed(e.errno())))?;
        let errno = Errno::of_result(outcome.result).map(failed);
        for (WatcherId { client, cookie }, reply) in &outcome.replies.replies {
            let head = format!("reply client.{client} cookie {cookie} : {} bytes\n", reply.len());
            print([head, hexdump(reply)].concat().as_bytes())?;
        }
        for WatcherId { client, cookie } in &outcome.replies.missed {
            println!("timeout client.{client} cookie {cookie}");
        }
        errno.map_or(Ok(()), |e| Err(last_words(e)))
    }

    pub(super) async fn list_watchers(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let watchers = io.list_watchers(&oid).await;
        for w in watchers.map_err(|e| self.failed("error listing watchers", &oid, &e))? {
            let (addr, name, cookie) = (addr_legacy(&w.addr), w.name, w.cookie);
            println!("watcher={addr} {name} cookie={cookie}");
        }
        Ok(())
    }
}
