//! The commands of `rbd image-meta`.

use serde_json::{Map, Value, json};
use spirula_client::errno;
use spirula_rbd::{Image, Options};
use spirula_text::{Align, Table};

use super::{Done, Tool, bad, close, failed};
use crate::rbd::Exit;

impl Tool {
    /// Opens the image of the command; returns it with the key and the words after that.
    async fn image_and_key(&self, options: Options) -> Result<(Image, &str, &[String]), Exit> {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        let Some((key, rest)) = rest.split_first() else {
            return Err(bad("metadata key was not specified"));
        };
        Ok((target.open(options).await?, key, rest))
    }

    pub(super) async fn metadata_list(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let listed = image.metadata_list().await;
        let done = match listed {
            Ok(pairs) => {
                let pairs = pairs.into_iter().collect::<Vec<_>>();
                self.print_metadata(&pairs);
                Ok(())
            }
            Err(e) => Err(failed("listing metadata failed", &e)),
        };
        close(image, done).await
    }

    fn print_metadata(&self, pairs: &[(String, String)]) {
        if self.format.is_structured() {
            // As the official tool has it: nothing at all where there is nothing.
            if !pairs.is_empty() {
                let tree: Map<String, Value> = pairs.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
                self.print(&Value::Object(tree), "metadatas", "");
            }
            return;
        }
        match pairs.len() {
            0 => println!("There are 0 metadata on this image."),
            n => {
                let (are, data) = if n == 1 {
                    ("is", "metadatum")
                } else {
                    ("are", "metadata")
                };
                println!("There {are} {n} {data} on this image:\n");
                let mut table = Table::new(&[
                    ("Key", Align::Left, Align::Left),
                    ("Value", Align::Left, Align::Left),
                ]);
                pairs.iter().for_each(|(k, v)| table.row([k.clone(), v.clone()]));
                print!("{}", table.render());
            }
        }
    }

    pub(super) async fn metadata_get(&self) -> Done {
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let (image, key, _) = self.image_and_key(options).await?;
        let done = match image.metadata(key).await {
            Ok(value) => {
                println!("{value}");
                Ok(())
            }
            Err(e) => {
                eprintln!("failed to get metadata {key} of image : {}", e.errno());
                Err(failed("getting metadata failed", &e))
            }
        };
        close(image, done).await
    }

    pub(super) async fn metadata_set(&self) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        let [key, value, ..] = rest else {
            return Err(bad(match rest.is_empty() {
                true => "metadata key was not specified",
                false => "metadata value was not specified",
            }));
        };
        let image = target.open(Options::default()).await?;
        let done = image.set_metadata(key, value).await;
        let done = done.map_err(|e| {
            eprintln!("failed to set metadata {key} of image : {}", e.errno());
            failed("setting metadata failed", &e)
        });
        close(image, done).await
    }

    pub(super) async fn metadata_remove(&self) -> Done {
        let (image, key, _) = self.image_and_key(Options::default()).await?;
        let done = image.remove_metadata(key).await.map_err(|e| {
            if e.is(errno::ENOENT) {
                eprintln!("rbd: no existing metadata key {key} of image : {}", e.errno());
            } else {
                eprintln!("failed to remove metadata {key} of image : {}", e.errno());
            }
            failed("removing metadata failed", &e)
        });
        close(image, done).await
    }
}
