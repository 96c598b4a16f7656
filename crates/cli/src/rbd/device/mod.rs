//! `rbd map`, `unmap` and `showmapped`: images as block devices of this machine, by the kernel's
//! RBD client or, where it has none, by its NBD client.

mod kernel;
mod krbd;
mod nbd;
mod options;

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use krbd::{KernelRbd, User};
use options::{MapOptions, UnmapOptions};
use rustix::fs::major;
use serde_json::{Map, Value, json};
use spirula_client::errno;
use spirula_msgr::ConMode;
use spirula_rbd::{Features, Options};
use spirula_text::{Align, Table};

use super::spec::Spec;
use super::{Asked, DEFAULT_POOL, Done, Target, Tool, bad, close, complain, invalid, print};
use crate::rbd::Exit;

pub(crate) use nbd::{PROCESS as NBD_PROCESS, run as run_nbd};

/// The number of NBD's block devices, `NBD_MAJOR` of `linux/major.h`.
const NBD_MAJOR: u32 = 43;

/// Features that can be disabled for an image.
const MUTABLE: Features = Features::EXCLUSIVE_LOCK
    .with(Features::OBJECT_MAP)
    .with(Features::FAST_DIFF)
    .with(Features::DEEP_FLATTEN)
    .with(Features::JOURNALING);

/// What serves a mapped image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceType {
    /// The kernel's RBD client.
    Krbd,
    /// The kernel's NBD client, and a process for each device.
    Nbd,
}

// The options of mappings. A doc comment would become the text above all options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What makes the device: krbd or nbd [nbd where the kernel has no RBD client]
    #[arg(short = 't', long, value_name = "TYPE")]
    device_type: Option<String>,
    /// Options of the kind of device, with commas between them
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// A name of the device that others must know to change it; of nbd
    #[arg(long)]
    cookie: Option<String>,
    /// Say it
    #[arg(long)]
    show_cookie: bool,
}

impl Args {
    /// The requested kind of device.
    fn kind(&self) -> Result<Option<DeviceType>, Exit> {
        match self.device_type.as_deref() {
            None => Ok(None),
            Some("krbd") => Ok(Some(DeviceType::Krbd)),
            Some("nbd") => Ok(Some(DeviceType::Nbd)),
            Some("ggate") => Err(complain(errno::EOPNOTSUPP, "ggate is only supported on FreeBSD")),
            Some(_) => Err(invalid("device-type")),
        }
    }
}

/// An image or snapshot by all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    pool: String,
    namespace: String,
    image: String,
    snap: Option<String>,
}

impl Wanted {
    fn new(spec: &Spec) -> Self {
        Self {
            pool: spec.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            namespace: spec.namespace.clone().unwrap_or_default(),
            image: spec.image.clone(),
            snap: spec.snap.clone(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Spec::parse(text).map(|spec| Self::new(&spec))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Spec::name(&self.pool, &self.namespace, &self.image))?;
        match &self.snap {
            Some(snap) => write!(f, "@{snap}"),
            None => Ok(()),
        }
    }
}

/// A mapped image.
struct Mapped {
    /// Its id among its kind: the device's number, or the process that serves it.
    id: String,
    image: Wanted,
    /// The path of its device.
    path: String,
    /// The device's cookie, if its kind has one.
    cookie: Option<String>,
}

/// The requested kind, or the one that this machine has.
fn kind(given: Option<DeviceType>) -> DeviceType {
    match given {
        Some(kind) => kind,
        None if KernelRbd::new().is_there() => DeviceType::Krbd,
        None => DeviceType::Nbd,
    }
}

/// The kind of a new device: by default krbd, or NBD where no module for krbd can be loaded.
fn kind_to_map(given: Option<DeviceType>) -> DeviceType {
    if given.is_none()
        && let Err(why) = KernelRbd::new().load()
    {
        eprintln!("rbd: the kernel has no RBD client ({why}), its NBD client is used");
    }
    kind(given)
}

impl Tool {
    pub(super) async fn device_map(&self) -> Done {
        let given = self.args.device.kind()?;
        let (target, _) = self.image().await?;
        let wanted = Wanted::new(&target.spec);
        match kind_to_map(given) {
            DeviceType::Krbd => self.map_by_kernel(&target, &wanted).await,
            DeviceType::Nbd => self.map_by_nbd(&wanted).await,
        }
    }

    async fn map_by_nbd(&self, wanted: &Wanted) -> Done {
        let device = &self.args.device;
        let mut args = nbd::Args::new(wanted, &device.options)?;
        if self.args.serve.read_only {
            args.set_read_only();
        }
        if self.args.serve.exclusive {
            args.set_exclusive();
        }
        args.set_cookie(device.cookie.clone(), device.show_cookie);
        print!("{}", nbd::map(&args, &self.connection).await?);
        Ok(())
    }

    async fn map_by_kernel(&self, target: &Target, wanted: &Wanted) -> Done {
        let options = self.map_options()?;
        // The kernel says little of why it can't.
        let read_only = Options {
            read_only: true,
            ..Options::default()
        };
        let image = target.open(read_only).await?;
        let features = image.header().features;
        close(image, Ok(())).await?;
        self.map_by_kernel_with(options, wanted, features)
            .map_err(|code| {
                println!("In some cases useful info is found in syslog - try \"dmesg | tail\".");
                complain(code, format!("map failed: {}", code))
            })
    }

    fn map_by_kernel_with(&self, mut options: MapOptions, wanted: &Wanted, features: Features) -> Done {
        let rbd = KernelRbd::new();
        if let Err(why) = rbd.load() {
            eprintln!("rbd: failed to load rbd kernel module ({why})");
        }
        let source = self.connection.source().map_err(bad)?;
        let client = source.read().map_err(bad)?;
        options.set_default_mode(mode(&client.modes.mon_client));
        if options.is_legacy() {
            // This client knows the others only, and so does a cluster of this project.
            return Err(complain(
                errno::ENOENT,
                "failed to get mon address (possible ms_mode mismatch)",
            ));
        }
        let user = User {
            monitors: client.monitors.iter().filter_map(|m| m.socket).collect(),
            id: &client.name.id,
            key: &client.key,
        };
        let mapped = rbd.map(wanted, &user, &options);
        let path = mapped.inspect_err(|exit| {
            if *exit == errno::ENXIO.into() {
                tell_of_features(&rbd, wanted, features);
            }
        })?;
        println!("{path}");
        Ok(())
    }

    /// The options from the configuration and the command line.
    fn map_options(&self) -> Result<MapOptions, Exit> {
        let mut options = MapOptions::new();
        let entity = self.connection.entity().map_err(bad)?.to_string();
        let source = self.connection.source().map_err(bad)?;
        let usual = source.option(&entity, "rbd_default_map_options");
        let usual = usual.map_err(|e| complain(Exit::USAGE, e))?.unwrap_or_default();
        let added = options.add(&usual);
        added.map_err(|_| bad("couldn't parse default map options"))?;
        for text in &self.args.device.options {
            let added = options.add(text);
            added.map_err(|_| bad("couldn't parse map options"))?;
        }
        if self.args.serve.read_only {
            options.set_read_only();
        }
        if self.args.serve.exclusive {
            options.set_exclusive();
        }
        Ok(options)
    }
}

/// The `ms_mode` for the kernel that matches the client's own modes.
fn mode(modes: &[ConMode]) -> &'static str {
    match modes {
        [ConMode::SECURE] => "secure",
        [ConMode::SECURE, ..] => "prefer-secure",
        [ConMode::CRC] => "crc",
        _ => "prefer-crc",
    }
}

/// Prints which features of an image the kernel does not know.
fn tell_of_features(rbd: &KernelRbd, wanted: &Wanted, features: Features) {
    let unknown = rbd.features().map(|known| features.without(known));
    let fixed = unknown.map(|features| features.without(MUTABLE));
    let names = |features: Features| features.names().collect::<Vec<_>>().join(" ");
    let text = match (unknown, fixed) {
        (_, Some(fixed)) if !fixed.is_empty() => format!(
            "This image cannot be mapped because the following immutable features are unsupported by the kernel: {}",
            names(fixed)
        ),
        (Some(unknown), _) if !unknown.is_empty() => format!(
            "You can disable features unsupported by the kernel with \"rbd feature disable {} {}\".",
            Wanted {
                snap: None,
                ..wanted.clone()
            },
            names(unknown)
        ),
        _ => "Try disabling features unsupported by the kernel with \"rbd feature disable\".".to_owned(),
    };
    println!("RBD image feature set mismatch. {text}");
}

impl Asked {
    /// The image of `unmap`; `None` if the command names a device.
    fn mapped_image(&self) -> Result<Option<Wanted>, Exit> {
        let args = &self.args;
        let spec = match (&args.image, self.words.first()) {
            (Some(image), _) => Spec {
                image: image.clone(),
                ..Spec::default()
            },
            (None, Some(word)) => Spec::parse(word).ok_or_else(|| bad(format!("invalid spec '{word}'")))?,
            (None, None) => return Ok(None),
        };
        let spec = spec.or(&args.pool, &args.namespace, &args.snap);
        Ok(Some(Wanted::new(&spec)))
    }

    /// Unmaps a device: by its path, or by its image.
    pub(super) fn device_unmap(&self) -> Done {
        let given = self.args.device.kind()?;
        let options = &self.args.device.options;
        if let Some(path) = self.words.first().filter(|w| w.starts_with("/dev/")) {
            return match given {
                None if is_nbd(path) => unmap_nbd_path(path, options),
                Some(DeviceType::Nbd) => unmap_nbd_path(path, options),
                _ => unmap_kernel_path(path, options),
            };
        }
        let Some(image) = self.mapped_image()? else {
            return Err(bad("unmap requires either image name or device path"));
        };
        let is_nbds = given.is_none() && nbd::mapped().iter().any(|m| m.image == image);
        let is_kernels = || KernelRbd::new().mapped().iter().any(|m| m.image == image);
        match kind(given) {
            DeviceType::Krbd if !is_nbds || is_kernels() => {
                let options = UnmapOptions::parse(options)?;
                let unmapped = KernelRbd::new().unmap_image(&image, options);
                unmapped.map_err(|code| complain(code, format!("unmap failed: {}", code)))
            }
            _ => nbd::unmap_image(&image, UnmapOptions::parse(options)?.force),
        }
    }

    /// Shows the devices of a kind.
    pub(super) fn device_list(&self) -> Done {
        let kind = kind(self.args.device.kind()?);
        let mapped = match kind {
            DeviceType::Krbd => KernelRbd::new().mapped(),
            DeviceType::Nbd => nbd::mapped(),
        };
        if self.format.is_structured() {
            let trees = mapped.iter().map(|m| tree(kind, m)).collect();
            print(self.format, &trees, "devices", "device");
            return Ok(());
        }
        if mapped.is_empty() {
            return Ok(());
        }
        let mut names = vec!["id", "pool", "namespace", "image", "snap", "device"];
        names.extend((kind == DeviceType::Nbd).then_some("cookie"));
        let columns: Vec<_> = names.into_iter().map(|n| (n, Align::Left, Align::Left)).collect();
        let mut table = Table::new(&columns);
        for m in mapped {
            let snap = m.image.snap.unwrap_or_else(|| "-".to_owned());
            let mut row = vec![m.id, m.image.pool, m.image.namespace, m.image.image, snap, m.path];
            row.extend(m.cookie);
            table.row(row);
        }
        print!("{}", table.render());
        Ok(())
    }
}

/// A device in a structured list. The two kinds have different fields, as in Ceph.
fn tree(kind: DeviceType, mapped: &Mapped) -> Value {
    let image = &mapped.image;
    let mut v = Map::new();
    let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
    let snap = image.snap.as_deref();
    match kind {
        DeviceType::Krbd => {
            put("id", json!(mapped.id));
            put("pool", json!(image.pool));
            put("namespace", json!(image.namespace));
            put("name", json!(image.image));
            put("snap", json!(snap.unwrap_or("-")));
        }
        DeviceType::Nbd => {
            put("id", json!(mapped.id.parse::<u32>().unwrap_or_default()));
            put("pool", json!(image.pool));
            put("namespace", json!(image.namespace));
            put("image", json!(image.image));
            put("snap", json!(snap.unwrap_or_default()));
        }
    }
    put("device", json!(mapped.path));
    if let Some(cookie) = &mapped.cookie {
        put("cookie", json!(cookie));
    }
    Value::Object(v)
}

/// Whether a path is an NBD device.
fn is_nbd(path: &str) -> bool {
    let is_nbds = |m: fs::Metadata| m.file_type().is_block_device() && major(m.rdev()) == NBD_MAJOR;
    fs::metadata(path).is_ok_and(is_nbds)
}

fn unmap_kernel_path(path: &str, options: &[String]) -> Done {
    let options = UnmapOptions::parse(options)?;
    let unmapped = KernelRbd::new().unmap_path(path, options);
    unmapped.map_err(|code| complain(code, format!("unmap failed: {}", code)))
}

fn unmap_nbd_path(path: &str, options: &[String]) -> Done {
    nbd::unmap_path(path, UnmapOptions::parse(options)?.force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_talks_as_the_client_would() {
        for (modes, want) in [
            (&[ConMode::CRC, ConMode::SECURE][..], "prefer-crc"),
            (&[ConMode::SECURE, ConMode::CRC], "prefer-secure"),
            (&[ConMode::SECURE], "secure"),
            (&[ConMode::CRC], "crc"),
            (&[], "prefer-crc"),
        ] {
            assert_eq!(mode(modes), want);
        }
    }

    #[test]
    fn lists_are_those_of_their_kinds() {
        let mapped = |cookie: Option<&str>| Mapped {
            id: "7".into(),
            image: Wanted::parse("p/n/i").unwrap(),
            path: "/dev/x".into(),
            cookie: cookie.map(str::to_owned),
        };
        assert_eq!(
            tree(DeviceType::Krbd, &mapped(None)).to_string(),
            r#"{"id":"7","pool":"p","namespace":"n","name":"i","snap":"-","device":"/dev/x"}"#
        );
        assert_eq!(
            tree(DeviceType::Nbd, &mapped(Some("c"))).to_string(),
            r#"{"id":7,"pool":"p","namespace":"n","image":"i","snap":"","device":"/dev/x","cookie":"c"}"#
        );
    }
}
