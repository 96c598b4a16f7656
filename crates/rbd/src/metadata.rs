//! Metadata that users keep with an image: keys and values. Keys that begin with `conf_` are
//! options of clients that open it.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::cls::{ask, tell};
use crate::header::text;
use crate::image::{Image, Inner};
use crate::journal::Operation;
use crate::operating::Operating;
use crate::{Result, clones, config};

impl Operating<'_> {
    async fn set_metadata(&self, key: String, value: String) -> Result<()> {
        let values = BTreeMap::from([(key.clone(), Bytes::from(value.clone()))]);
        let set = tell(&self.site.io, self.site.header_oid(), "metadata_set", &values);
        self.noted(Operation::MetadataSet { key, value }, set).await?;
        self.site.announce_header().await;
        Ok(())
    }

    async fn remove_metadata(&self, key: String) -> Result<()> {
        let _: Bytes = ask(&self.site.io, self.site.header_oid(), "metadata_get", &key).await?;
        let remove = tell(&self.site.io, self.site.header_oid(), "metadata_remove", &key);
        let operation = Operation::MetadataRemove { key: key.clone() };
        self.noted(operation, remove).await?;
        self.site.announce_header().await;
        Ok(())
    }
}

impl Image {
    /// The value of a key.
    ///
    /// # Errors
    /// `ENOENT` where there is no such key.
    pub async fn metadata(&self, key: &str) -> Result<String> {
        let value: Bytes = ask(
            &self.inner.site.io,
            self.inner.site.header_oid(),
            "metadata_get",
            &key.to_owned(),
        )
        .await?;
        Ok(text(&value))
    }

    /// All keys with their values.
    ///
    /// # Errors
    /// Where that can't be read.
    pub async fn metadata_list(&self) -> Result<BTreeMap<String, String>> {
        let all = clones::metadata(&self.inner.site.io, &self.inner.site.header_oid()).await?;
        Ok(all.iter().map(|(key, value)| (text(key), text(value))).collect())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// `EROFS` where the image is open for reading, `EINVAL` where the key is that of an option
    /// which can't have the value.
    pub async fn set_metadata(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (key.to_owned(), value.to_owned());
        let set = |inner: Rc<Inner>| async move {
            config::check(&key, &value)?;
            inner.begin_operation().await?.set_metadata(key, value).await
        };
        self.inner.start(set).await
    }

    /// Removes a key.
    ///
    /// # Errors
    /// `ENOENT` where there is no such key.
    pub async fn remove_metadata(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        let remove =
            |inner: Rc<Inner>| async move { inner.begin_operation().await?.remove_metadata(key).await };
        self.inner.start(remove).await
    }
}
