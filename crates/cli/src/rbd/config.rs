//! The commands of `rbd config`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spirula_client::{
    IoCtx,
    errno::{self, Errno},
};
use spirula_conf::options;
use spirula_rbd::{
    Setting, SettingSource, pool_setting, pool_settings, remove_pool_setting, set_pool_setting,
};
use spirula_text::{Align, Table};

use super::{Done, Target, Tool, bad, close, complain, failed, features};
use crate::rbd::Exit;

/// The option that this tool sets for itself, as the official one does.
const OWN: (&str, &str) = ("rbd_cache_writethrough_until_flush", "false");
/// The option whose value is shown as a number.
const FEATURES: &str = "rbd_default_features";

/// The option's name, which follows the pool, image or entity.
fn key(word: Option<&String>) -> Result<&str, Exit> {
    let key = word.map(String::as_str).filter(|k| !k.is_empty());
    let key = key.ok_or_else(|| bad("config key was not specified"))?;
    if !key.starts_with("rbd_") {
        return Err(bad(format!("not rbd option: {key}")));
    }
    match options::find(key) {
        Some(_) => Ok(key),
        None => Err(bad(format!("invalid config key: {key}"))),
    }
}

fn source(source: SettingSource) -> &'static str {
    match source {
        SettingSource::Config => "config",
        SettingSource::Pool => "pool",
        SettingSource::Image => "image",
    }
}

/// Reports an option that can't be read or set.
fn refused(what: &str, key: &str, e: &spirula_rbd::Error) -> Exit {
    match (what, e.is(errno::ENOENT)) {
        ("get", true) => complain(errno::ENOENT, format!("{key} is not set")),
        _ => failed(format!("failed to {what} {key}"), e),
    }
}

/// An option that the monitors keep.
struct Kept {
    value: String,
    /// The section with this value.
    section: String,
}

impl Tool {
    /// The entity of a command.
    fn entity(&self) -> Result<&str, Exit> {
        let entity = self.words.first().map(String::as_str).unwrap_or_default();
        match matches!(entity, "global" | "client") || entity.starts_with("client.") {
            true => Ok(entity),
            false => Err(bad(format!(
                "invalid config entity: {entity} (must be global, client or client.<id>)"
            ))),
        }
    }

    /// Runs a command of the monitors. Fails with their message.
    async fn ask_monitors(&self, command: &Value, what: &str) -> Result<Vec<u8>, Exit> {
        let reply = self
            .rados
            .mon_command(&command.to_string(), bytes::Bytes::new())
            .await;
        let reply = reply.map_err(|e| complain(e.errno(), format!("{what}: {}", e.errno())))?;
        match Errno::of_result(reply.result) {
            None => Ok(reply.output.to_vec()),
            Some(errno) => Err(complain(errno, format!("{what}: {}", reply.status))),
        }
    }

    /// The monitors' options for an entity.
    async fn kept(&self, entity: &str) -> Result<BTreeMap<String, Kept>, Exit> {
        let command = json!({"prefix": "config dump", "format": "json"});
        let data = self.ask_monitors(&command, "error reading config").await?;
        let all: Vec<Value> = serde_json::from_slice(&data).map_err(|_| bad("error parsing config dump"))?;
        let mut kept = BTreeMap::new();
        // From the most general section to the most specific.
        for section in ["global", "client", entity] {
            let counts = match entity {
                "global" => section == "global",
                _ => true,
            };
            for option in all.iter().filter(|o| counts && o["section"] == section) {
                let text = |key: &str| option[key].as_str().unwrap_or_default().to_owned();
                if text("name").starts_with("rbd_") {
                    let option = Kept {
                        value: text("value"),
                        section: section.to_owned(),
                    };
                    kept.insert(text("name"), option);
                }
            }
        }
        Ok(kept)
    }

    pub(super) async fn config_global_list(&self) -> Done {
        let kept = self.kept(self.entity()?).await?;
        if self.format.is_structured() {
            let trees = kept
                .iter()
                .map(|(name, o)| json!({"name": name, "value": o.value, "section": o.section}));
            self.print(&trees.collect(), "config", "option");
        } else if !kept.is_empty() {
            let rows = kept.into_iter().map(|(name, o)| [name, o.value, o.section]);
            print_table("Section", rows);
        }
        Ok(())
    }

    pub(super) async fn config_global_get(&self) -> Done {
        let entity = self.entity()?;
        let key = key(self.words.get(1))?;
        match self.kept(entity).await?.get(key) {
            Some(option) if option.section == entity => {
                println!("{}", option.value);
                Ok(())
            }
            _ => Err(complain(errno::ENOENT, format!("{key} is not set"))),
        }
    }

    pub(super) async fn config_global_set(&self) -> Done {
        let entity = self.entity()?;
        let key = key(self.words.get(1))?;
        let value = self.words.get(2).map(String::as_str).unwrap_or_default();
        let command = json!({"prefix": "config set", "who": entity, "name": key, "value": value});
        let what = format!("error setting {key}");
        self.ask_monitors(&command, &what).await.map(drop)
    }

    pub(super) async fn config_global_remove(&self) -> Done {
        let entity = self.entity()?;
        let key = key(self.words.get(1))?;
        let command = json!({"prefix": "config rm", "who": entity, "name": key});
        let what = format!("error removing {key}");
        self.ask_monitors(&command, &what).await.map(drop)
    }

    /// The client's own values of options: from the command line, the file, the monitors, or
    /// defaults.
    async fn own_values(&self) -> Result<impl Fn(&str) -> String, Exit> {
        let entity = self.connection.entity().map_err(bad)?.to_string();
        let command = json!({"prefix": "config get", "who": entity, "format": "json"});
        let data = self.ask_monitors(&command, "error reading config").await?;
        let central: BTreeMap<String, Value> = serde_json::from_slice(&data).unwrap_or_default();
        let source = self.connection.source().map_err(bad)?;
        let mut values = BTreeMap::new();
        for option in options::all().iter().filter(|o| o.name.starts_with("rbd_")) {
            let set = source.option(&entity, option.name);
            let set = set.map_err(|e| complain(Exit::USAGE, e))?;
            let kept = || central.get(option.name).and_then(|v| v["value"].as_str());
            let own = || (option.name == OWN.0).then_some(OWN.1);
            let text = set
                .as_deref()
                .or_else(own)
                .or_else(kept)
                .unwrap_or(option.default);
            let shown = match option.name {
                FEATURES => features::parse(&[text.to_owned()]).map(|f| f.0.to_string()),
                _ => None,
            };
            values.insert(option.name, shown.unwrap_or_else(|| option.shown(text)));
        }
        Ok(move |name: &str| values.get(name).cloned().unwrap_or_default())
    }

    fn print_settings(&self, settings: Vec<Setting>) {
        if self.format.is_structured() {
            let trees = settings
                .iter()
                .map(|s| json!({"name": s.name, "value": s.value, "source": source(s.source)}));
            self.print(&trees.collect(), "config", "option");
            return;
        }
        let row = |s: Setting| [s.name.to_owned(), s.value, source(s.source).to_owned()];
        print_table("Source", settings.into_iter().map(row));
    }

    /// The pool of a command.
    async fn pool_with_settings(&self) -> Result<IoCtx, Exit> {
        let name = self.words.first().filter(|w| !w.is_empty());
        let name = name.ok_or_else(|| bad("pool name was not specified"))?;
        self.pool(Some(name), None).await
    }

    pub(super) async fn config_pool_list(&self) -> Done {
        let io = self.pool_with_settings().await?;
        let listed = pool_settings(&io, self.own_values().await?).await;
        self.print_settings(listed.map_err(|e| failed("failed to list config", &e))?);
        Ok(())
    }

    /// The pool and the option of a command.
    async fn pool_and_key(&self) -> Result<(IoCtx, &str), Exit> {
        if self.words.is_empty() {
            return Err(bad("pool name was not specified"));
        }
        let key = key(self.words.get(1))?;
        Ok((self.pool_with_settings().await?, key))
    }

    pub(super) async fn config_pool_get(&self) -> Done {
        let (io, key) = self.pool_and_key().await?;
        let value = pool_setting(&io, key).await;
        println!("{}", value.map_err(|e| refused("get", key, &e))?);
        Ok(())
    }

    pub(super) async fn config_pool_set(&self) -> Done {
        let (io, key) = self.pool_and_key().await?;
        let value = self.words.get(2).map(String::as_str).unwrap_or_default();
        let set = set_pool_setting(&io, key, value).await;
        set.map_err(|e| refused("set", key, &e))
    }

    pub(super) async fn config_pool_remove(&self) -> Done {
        let (io, key) = self.pool_and_key().await?;
        let removed = remove_pool_setting(&io, key).await;
        removed.map_err(|e| refused("remove", key, &e))
    }

    pub(super) async fn config_image_list(&self) -> Done {
        let (target, _) = self.image().await?;
        let image = target.without_snap()?.open_to_read().await?;
        let listed = image.settings(self.own_values().await?).await;
        let settings = listed.map_err(|e| failed("failed to list config", &e))?;
        if !self.format.is_structured() {
            println!("There are {} values:", settings.len());
        }
        self.print_settings(settings);
        close(image, Ok(())).await
    }

    /// The image and the option of a command, and the words behind them.
    async fn image_and_setting(&self) -> Result<(Target, &str, &[String]), Exit> {
        let (target, rest) = self.image().await?;
        let key = key(rest.first())?;
        Ok((target.without_snap()?, key, rest.get(1..).unwrap_or_default()))
    }

    pub(super) async fn config_image_get(&self) -> Done {
        let (target, key, _) = self.image_and_setting().await?;
        let image = target.open_to_read().await?;
        let done = match image.setting(key).await {
            Ok(value) => {
                println!("{value}");
                Ok(())
            }
            Err(e) => Err(refused("get", key, &e)),
        };
        close(image, done).await
    }

    pub(super) async fn config_image_set(&self) -> Done {
        let (target, key, rest) = self.image_and_setting().await?;
        let Some(value) = rest.first() else {
            return Err(bad("image config value was not specified"));
        };
        let image = target.open(Default::default()).await?;
        let set = image.set_setting(key, value).await;
        close(image, set.map_err(|e| refused("set", key, &e))).await
    }

    pub(super) async fn config_image_remove(&self) -> Done {
        let (target, key, _) = self.image_and_setting().await?;
        let image = target.open(Default::default()).await?;
        let removed = image.remove_setting(key).await;
        close(image, removed.map_err(|e| refused("remove", key, &e))).await
    }
}

fn print_table(last: &'static str, rows: impl Iterator<Item = [String; 3]>) {
    let mut table = Table::new(&["Name", "Value", last].map(|name| (name, Align::Left, Align::Left)));
    rows.for_each(|row| table.row(row));
    print!("{}", table.render());
}
