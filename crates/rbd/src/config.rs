//! Client options that are kept with a pool or an image, as metadata under keys that begin with
//! `conf_` (Ceph's `src/librbd/api/Config.cc`). An image's options override those of its pool, and
//! these override the client's own.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use spirula_client::{
    IoCtx,
    errno::{self, Errno},
};
use spirula_conf::options;

use crate::cls::{ask, tell};
use crate::error::unless;
use crate::header::text;
use crate::{Error, Image, Result, clones, names};

/// The prefix of metadata keys that are options.
const PREFIX: &str = "conf_";

/// Options that can be set neither for a pool nor for an image.
const NO_OVERRIDES: [&str; 11] = [
    "rbd_auto_exclusive_lock_until_manual_request",
    "rbd_config_pool_override_update_timestamp",
    "rbd_default_format",
    "rbd_default_pool",
    "rbd_discard_on_zeroed_write_same",
    "rbd_mirror_pool_replayers_refresh_interval",
    "rbd_op_thread_timeout",
    "rbd_op_threads",
    "rbd_tracing",
    "rbd_validate_names",
    "rbd_validate_pool",
];
/// Options about making images, which can't be set for an existing image.
const NO_IMAGE_OVERRIDES: [&str; 9] = [
    "rbd_default_clone_format",
    "rbd_default_data_pool",
    "rbd_default_features",
    "rbd_default_order",
    "rbd_default_stripe_count",
    "rbd_default_stripe_unit",
    "rbd_journal_order",
    "rbd_journal_pool",
    "rbd_journal_splay_width",
];
/// The prefix of the mirror daemon's options.
const OF_MIRRORING: &str = "rbd_mirror_";

/// Where the value of an option comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingSource {
    /// The client's configuration.
    Config,
    /// The pool.
    Pool,
    /// The image.
    Image,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The option's name.
    pub name: &'static str,
    /// Its value, as it was set.
    pub value: String,
    /// Where the value comes from.
    pub source: SettingSource,
}

/// The names of the options that can be set for pools, or for images.
fn overridable(of_images: bool) -> impl Iterator<Item = &'static str> {
    let is_one = move |name: &&'static str| {
        let is_creation = NO_IMAGE_OVERRIDES.contains(name) || name.starts_with(OF_MIRRORING);
        name.starts_with("rbd_") && !NO_OVERRIDES.contains(name) && !(of_images && is_creation)
    };
    let mut names: Vec<&'static str> = options::all().iter().map(|o| o.name).filter(is_one).collect();
    names.sort_unstable();
    names.into_iter()
}

/// Fails with `EINVAL` where the key is an option's and the option does not take this value.
pub(crate) fn check(key: &str, value: &str) -> Result<()> {
    let option = key.strip_prefix(PREFIX).and_then(options::find);
    match option.is_none_or(|o| o.parse(value).is_ok()) {
        true => Ok(()),
        false => Err(Error::os("option", errno::EINVAL)),
    }
}

/// A pool's metadata.
async fn noted(pool: &IoCtx) -> Result<BTreeMap<String, String>> {
    let all = unless(clones::metadata(pool, names::INFO).await, errno::ENOENT)?;
    let all = all.unwrap_or_default();
    Ok(all.iter().map(|(key, value)| (text(key), text(value))).collect())
}

/// The options of a pool, in the order of their names; `own` are those of the client.
///
/// # Errors
/// Where they can't be read.
pub async fn pool_settings(io: &IoCtx, own: impl Fn(&str) -> String) -> Result<Vec<Setting>> {
    let of_pool = noted(&io.clone().with_namespace("")).await?;
    Ok(settings(false, &of_pool, &BTreeMap::new(), own))
}

fn settings(
    of_images: bool,
    of_pool: &BTreeMap<String, String>,
    of_image: &BTreeMap<String, String>,
    own: impl Fn(&str) -> String,
) -> Vec<Setting> {
    let setting = |name: &'static str| {
        let key = format!("{PREFIX}{name}");
        let (value, source) = match (of_image.get(&key), of_pool.get(&key)) {
            (Some(value), _) => (value.clone(), SettingSource::Image),
            (None, Some(value)) => (value.clone(), SettingSource::Pool),
            (None, None) => (own(name), SettingSource::Config),
        };
        Setting { name, value, source }
    };
    overridable(of_images).map(setting).collect()
}

/// An option as it was set for a pool.
///
/// # Errors
/// `ENOENT` where it was not.
pub async fn pool_setting(io: &IoCtx, name: &str) -> Result<String> {
    let pool = io.clone().with_namespace("");
    let value: Bytes = ask(&pool, names::INFO, "metadata_get", &format!("{PREFIX}{name}")).await?;
    Ok(text(&value))
}

/// Sets an option for a pool's images.
///
/// # Errors
/// `EINVAL` where the option can't have this value.
pub async fn set_pool_setting(io: &IoCtx, name: &str, value: &str) -> Result<()> {
    let key = format!("{PREFIX}{name}");
    check(&key, value)?;
    let values = BTreeMap::from([(key, Bytes::from(value.to_owned()))]);
    tell(
        &io.clone().with_namespace(""),
        names::INFO,
        "metadata_set",
        &values,
    )
    .await?;
    announce_change(io).await
}

/// Removes a pool's value of an option, so that the client's own counts again.
///
/// # Errors
/// `ENOENT` where it was not set.
pub async fn remove_pool_setting(io: &IoCtx, name: &str) -> Result<()> {
    pool_setting(io, name).await?;
    let pool = io.clone().with_namespace("");
    tell(&pool, names::INFO, "metadata_remove", &format!("{PREFIX}{name}")).await?;
    announce_change(io).await
}

/// Notifies clients of a pool's images of the change: they watch the monitors' options.
async fn announce_change(io: &IoCtx) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let command = format!(
        r#"{{"prefix": "config set", "who": "global", "name": "rbd_config_pool_override_update_timestamp", "value": "{}"}}"#,
        now.as_secs()
    );
    let reply = io.rados().mon_command(&command, Bytes::new()).await?;
    match Errno::of_result(reply.result) {
        None => Ok(()),
        Some(errno) => Err(Error::os("announce an option", errno)),
    }
}

impl Image {
    /// The options of the image, in the order of their names; `own` are those of the client.
    ///
    /// # Errors
    /// Where they can't be read.
    pub async fn settings(&self, own: impl Fn(&str) -> String) -> Result<Vec<Setting>> {
        let of_pool = noted(&self.pool().clone().with_namespace("")).await?;
        let of_image = self.metadata_list().await?;
        Ok(settings(true, &of_pool, &of_image, own))
    }

    /// An option as it was set for the image.
    ///
    /// # Errors
    /// `ENOENT` where it was not.
    pub async fn setting(&self, name: &str) -> Result<String> {
        self.metadata(&format!("{PREFIX}{name}")).await
    }

    /// Sets an option for the image.
    ///
    /// # Errors
    /// As [`Image::set_metadata`].
    pub async fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        self.set_metadata(&format!("{PREFIX}{name}"), value).await
    }

    /// Removes the image's value of an option, so that the pool's or client's counts again.
    ///
    /// # Errors
    /// `ENOENT` where it was not set.
    pub async fn remove_setting(&self, name: &str) -> Result<()> {
        self.remove_metadata(&format!("{PREFIX}{name}")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as Ceph 16.2.15 lists.
    #[test]
    fn images_have_fewer_options_than_pools() {
        assert_eq!((overridable(false).count(), overridable(true).count()), (109, 77));
    }

    #[test]
    fn the_image_counts_before_its_pool() {
        let key = "conf_rbd_cache".to_owned();
        let pool = BTreeMap::from([(key.clone(), "false".to_owned())]);
        let image = BTreeMap::from([(key, "1".to_owned())]);
        let cache = |of_pool, of_image| {
            let all = settings(true, of_pool, of_image, |_| "own".to_owned());
            let found = all.into_iter().find(|s| s.name == "rbd_cache").unwrap();
            (found.value, found.source)
        };
        let none = BTreeMap::new();
        assert_eq!(cache(&none, &none), ("own".to_owned(), SettingSource::Config));
        assert_eq!(cache(&pool, &none), ("false".to_owned(), SettingSource::Pool));
        assert_eq!(cache(&pool, &image), ("1".to_owned(), SettingSource::Image));
    }

    #[test]
    fn only_options_are_checked() {
        assert!(check("conf_rbd_cache", "maybe").is_err() && check("conf_rbd_cache", "false").is_ok());
        assert!(check("rbd_cache", "maybe").is_ok() && check("conf_nothing", "maybe").is_ok());
    }
}
