//! The commands of `rbd lock`: locks taken by hand, under the same name as clients' exclusive lock.

use serde_json::json;
use spirula_client::errno;
use spirula_rbd::Options;
use spirula_text::{Align, Table, addr_legacy};

use super::{Done, Tool, bad, close, complain, failed};

impl Tool {
    pub(super) async fn lock_list(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let done = match image.lockers().await {
            Ok(held) => {
                self.print_lockers(&held);
                Ok(())
            }
            Err(e) => Err(failed("listing locks failed", &e)),
        };
        close(image, done).await
    }

    fn print_lockers(&self, held: &spirula_client::LockInfo) {
        if self.format.is_structured() {
            let locks = held.lockers.iter().map(
                |l| json!({"id": l.cookie, "locker": l.name.to_string(), "address": addr_legacy(&l.addr)}),
            );
            self.print(&locks.collect(), "locks", "lock");
            return;
        }
        let (count, is_exclusive) = (
            held.lockers.len(),
            held.kind == spirula_client::LockType::EXCLUSIVE,
        );
        if count == 0 {
            return;
        }
        let (are, s) = if count == 1 { ("is", "") } else { ("are", "s") };
        let kind = if is_exclusive { "exclusive" } else { "shared" };
        println!("There {are} {count} {kind} lock{s} on this image.");
        if !is_exclusive {
            println!("Lock tag: {}", held.tag);
        }
        let left = |name| (name, Align::Left, Align::Left);
        let mut table = Table::new(&[left("Locker"), left("ID"), left("Address")]);
        for l in &held.lockers {
            table.row([l.name.to_string(), l.cookie.clone(), addr_legacy(&l.addr)]);
        }
        print!("{}", table.render());
    }

    pub(super) async fn lock_add(&self) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        let Some(cookie) = rest.first() else {
            return Err(bad("lock id was not specified"));
        };
        let image = target.open(Options::default()).await?;
        let shared = self.args.shared.as_deref();
        let done = image
            .lock_by_hand(cookie, shared)
            .await
            .map_err(|e| match e.errno() {
                errno::EBUSY | errno::EEXIST if shared.is_some() => complain(
                    e.errno(),
                    "lock is already held by someone else with a different tag",
                ),
                errno::EBUSY | errno::EEXIST => complain(e.errno(), "lock is already held by someone else"),
                _ => failed("taking lock failed", &e),
            });
        close(image, done).await
    }

    pub(super) async fn lock_remove(&self) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        let [cookie, locker, ..] = rest else {
            return Err(bad(match rest.is_empty() {
                true => "lock id was not specified",
                false => "locker was not specified",
            }));
        };
        let image = target.open(Options::default()).await?;
        let done = image.break_lock_by_hand(locker, cookie).await;
        close(image, done.map_err(|e| failed("releasing lock failed", &e))).await
    }
}
