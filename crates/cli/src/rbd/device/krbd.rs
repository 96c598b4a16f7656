//! The kernel's RBD client: images as `/dev/rbdN`, by the files of
//! [`/sys/bus/rbd`](https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-rbd).

use std::fs;
use std::io;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};
use spirula_cephx::CryptoKey;
use spirula_client::errno;
use spirula_client::errno::Errno;
use spirula_denc::encode_to_vec;
use spirula_rbd::Features;
use zeroize::Zeroizing;

use super::kernel;
use super::options::{MapOptions, UnmapOptions};
use super::{Mapped, Wanted};
use crate::rbd::Exit;
use crate::rbd::complain;

/// How often the kernel and udev are asked whether they are done.
const PAUSE: Duration = Duration::from_millis(20);
/// How long udev may take to see a device.
const UDEV: Duration = Duration::from_secs(30);
/// A file that exists while udev runs.
const UDEV_CONTROL: &str = "/run/udev/control";

/// The client, as sysfs shows it.
pub(super) struct KernelRbd {
    bus: PathBuf,
}

/// The user for a mapping.
pub(super) struct User<'a> {
    /// The monitors.
    pub(super) monitors: Vec<SocketAddr>,
    /// The name without its type.
    pub(super) id: &'a str,
    /// Its key.
    pub(super) key: &'a CryptoKey,
}

/// How the kernel gets the user's key.
enum KeyOption {
    /// By the name of a key in its keyring.
    Named,
    /// With the mapping, as the kernel is too old for keyrings.
    Told,
}

/// A device of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Device {
    id: String,
    image: Wanted,
    /// Its number.
    number: Number,
}

impl Device {
    fn path(&self) -> String {
        format!("/dev/rbd{}", self.id)
    }
}

impl KernelRbd {
    pub(super) fn new() -> Self {
        Self {
            bus: PathBuf::from("/sys/bus/rbd"),
        }
    }

    /// Whether the kernel has the RBD client.
    pub(super) fn is_there(&self) -> bool {
        self.bus.exists()
    }

    /// Loads the RBD client, if it is not loaded.
    ///
    /// # Errors
    /// The message of `modprobe`.
    pub(super) fn load(&self) -> Result<(), String> {
        kernel::load_module("rbd", &["single_major=Y".to_owned()], &self.bus)
    }

    /// A device's attribute; empty if this kernel has no such attribute, or the device is gone.
    fn attribute(&self, id: &str, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.bus.join("devices").join(id).join(name)).ok()?;
        Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }

    fn device(&self, id: &str) -> Option<Device> {
        let number = |name| self.attribute(id, name)?.parse().ok();
        let snap = self.attribute(id, "current_snap")?;
        Some(Device {
            id: id.to_owned(),
            image: Wanted {
                pool: self.attribute(id, "pool")?,
                namespace: self.attribute(id, "pool_ns").unwrap_or_default(),
                image: self.attribute(id, "name")?,
                snap: Some(snap).filter(|s| s != "-"),
            },
            number: Number {
                major: number("major")?,
                minor: number("minor").unwrap_or(0),
            },
        })
    }

    /// The devices, in the order of their names.
    fn devices(&self) -> Vec<Device> {
        let entries = fs::read_dir(self.bus.join("devices"));
        let names = entries.into_iter().flatten().flatten();
        let mut ids: Vec<String> = names
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        ids.sort();
        ids.iter().filter_map(|id| self.device(id)).collect()
    }

    /// The mapped images.
    pub(super) fn mapped(&self) -> Vec<Mapped> {
        let told = |device: Device| Mapped {
            path: device.path(),
            id: device.id,
            image: device.image,
            cookie: None,
        };
        self.devices().into_iter().map(told).collect()
    }

    /// The features of images that the client knows.
    pub(super) fn features(&self) -> Option<Features> {
        let text = fs::read_to_string(self.bus.join("supported_features")).ok()?;
        u64::from_str_radix(text.trim().trim_start_matches("0x"), 16)
            .ok()
            .map(Features)
    }

    /// Writes to a control file, whose name differs where all devices share a major number.
    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let open = |name: &str| fs::OpenOptions::new().write(true).open(self.bus.join(name));
        let file = match open(&format!("{name}_single_major")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => open(name),
            opened => opened,
        };
        // The kernel takes it as one piece.
        file?.write_all(text)
    }

    /// Maps an image and returns the path of its device.
    ///
    /// # Errors
    /// The kernel's errno, after the reason was printed.
    pub(super) fn map(&self, image: &Wanted, user: &User<'_>, options: &MapOptions) -> Result<String, Exit> {
        let before = self.devices();
        if let Some(device) = before.iter().find(|d| d.image == *image) {
            eprintln!("rbd: warning: image already mapped as {}", device.path());
        }
        let key = self.give_key(user)?;
        let text = Zeroizing::new(map_text(image, user, &key, &options.text()));
        self.write("add", text.as_bytes()).map_err(|e| refused(&e))?;
        let is_new = |d: &Device| d.image == *image && !before.contains(d);
        let Some(device) = self.devices().into_iter().rfind(is_new) else {
            return Err(complain(errno::ENXIO, "mapping succeeded but its device is gone"));
        };
        if options.udev {
            wait_for_udev(device.number);
        }
        check_node(&device)?;
        Ok(device.path())
    }

    /// Gives the kernel the user's key.
    fn give_key(&self, user: &User<'_>) -> Result<KeyOption, Exit> {
        let name = format!("client.{}", user.id);
        let secret = Zeroizing::new(encode_to_vec(user.key));
        match kernel::add_key(&name, &secret) {
            Ok(()) => Ok(KeyOption::Named),
            Err(e) if matches!(Errno::from(&e), errno::ENODEV | errno::ENOSYS) => Ok(KeyOption::Told),
            Err(e) => Err(complain(
                Errno::from(&e),
                format!("failed to add secret '{name}' to kernel"),
            )),
        }
    }

    /// Unmaps the device at a path, or the disk of the partition there.
    ///
    /// # Errors
    /// The kernel's errno, after the reason was printed.
    pub(super) fn unmap_path(&self, path: &str, options: UnmapOptions) -> Result<(), Exit> {
        let not = |what: &str| complain(errno::EINVAL, format!("'{path}' is not {what}"));
        let number = fs::metadata(path)
            .ok()
            .filter(|m| m.file_type().is_block_device())
            .map(|m| whole_disk(Number::of(m.rdev())))
            .ok_or_else(|| not("a block device"))?;
        let device = self.devices().into_iter().find(|d| d.number == number);
        self.unmap(&device.ok_or_else(|| not("an rbd device"))?, options)
    }

    /// Unmaps the device of an image.
    ///
    /// # Errors
    /// The kernel's errno, after the reason was printed.
    pub(super) fn unmap_image(&self, image: &Wanted, options: UnmapOptions) -> Result<(), Exit> {
        let found = self.devices().into_iter().filter(|d| d.image == *image);
        let found: Vec<Device> = found.collect();
        let Some(device) = found.first() else {
            return Err(complain(
                errno::EINVAL,
                format!("{image}: not a mapped image or snapshot"),
            ));
        };
        if found.len() > 1 {
            eprintln!(
                "rbd: {image}: mapped more than once, unmapping {} only",
                device.path()
            );
        }
        self.unmap(device, options)
    }

    /// Unmaps a device, in three attempts: udev examines a device that was just closed, which keeps
    /// it busy for a moment.
    fn unmap(&self, device: &Device, options: UnmapOptions) -> Result<(), Exit> {
        let text = match options.force {
            true => format!("{} force", device.id),
            false => device.id.clone(),
        };
        let is_busy = |done: &io::Result<()>| done.as_ref().is_err_and(|e| Errno::from(e) == errno::EBUSY);
        let mut done = self.write("remove", text.as_bytes());
        if is_busy(&done) {
            sleep(Duration::from_millis(250));
            done = self.write("remove", text.as_bytes());
        }
        if is_busy(&done) && options.udev {
            settle();
            done = self.write("remove", text.as_bytes());
        }
        done.map_err(|e| refused(&e))?;
        let begun = Instant::now();
        while Path::new(&device.path()).exists() && begun.elapsed() < UDEV {
            if !options.udev {
                break;
            }
            sleep(PAUSE);
        }
        Ok(())
    }
}

/// Reports the kernel's refusal.
fn refused(e: &io::Error) -> Exit {
    complain(Errno::from(e), "sysfs write failed")
}

/// The kernel's text for mapping an image.
fn map_text(image: &Wanted, user: &User<'_>, key: &KeyOption, options: &str) -> String {
    let monitors: Vec<String> = user.monitors.iter().map(SocketAddr::to_string).collect();
    let mut text = format!("{} name={}", monitors.join(","), user.id);
    match key {
        KeyOption::Named => text.push_str(&format!(",key=client.{}", user.id)),
        KeyOption::Told => text.push_str(&format!(",secret={}", user.key.to_base64())),
    }
    if !options.is_empty() {
        text.push_str(&format!(",{options}"));
    }
    if !image.namespace.is_empty() {
        text.push_str(&format!(",_pool_ns={}", image.namespace));
    }
    let snap = image.snap.as_deref().unwrap_or("-");
    format!("{text} {} {} {snap}", image.pool, image.image)
}

/// A block device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    major: u32,
    minor: u32,
}

impl Number {
    /// The number that Linux packs into `rdev`.
    fn of(rdev: u64) -> Self {
        Self {
            major: major(rdev),
            minor: minor(rdev),
        }
    }
}

/// `252:16`.
impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The number of a partition's disk, or of the disk itself.
fn whole_disk(part: Number) -> Number {
    let device = PathBuf::from(format!("/sys/dev/block/{part}"));
    if !device.join("partition").exists() {
        return part;
    }
    let number = || {
        let parent = fs::canonicalize(&device).ok()?.parent()?.join("dev");
        let text = fs::read_to_string(parent).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(Number {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    };
    number().unwrap_or(part)
}

/// Waits until udev, if it runs, has processed a device: then the device has its other names, and
/// udev does not keep it busy.
fn wait_for_udev(number: Number) {
    if !Path::new(UDEV_CONTROL).exists() {
        return;
    }
    // The file that udev writes for a processed device.
    let known = PathBuf::from(format!("/run/udev/data/b{number}"));
    let begun = Instant::now();
    while !known.exists() {
        if begun.elapsed() > UDEV {
            eprintln!("rbd: udev has not seen the device after {} s", UDEV.as_secs());
            return;
        }
        sleep(PAUSE);
    }
}

/// Waits until udev has processed its events.
fn settle() {
    let settled = Command::new("udevadm")
        .args(["settle", "--timeout", "10"])
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .stdin(Stdio::null())
        .status();
    if let Err(e) = settled {
        tracing::debug!("udevadm: {e}");
    }
}

/// Checks that a device's file exists and belongs to that device.
fn check_node(device: &Device) -> Result<(), Exit> {
    let path = device.path();
    let stat = fs::metadata(&path)
        .ok()
        .filter(|m| m.file_type().is_block_device());
    let Some(stat) = stat else {
        return Err(complain(
            errno::EINVAL,
            format!("mapping succeeded but {path} is not accessible, is host /dev mounted?"),
        ));
    };
    let found = Number::of(stat.rdev());
    if found != device.number {
        let expected = device.number;
        return Err(complain(
            errno::EINVAL,
            format!("mapping succeeded but {path} ({found}) does not match expected {expected}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user<'a>(monitors: &[&str], key: &'a CryptoKey) -> User<'a> {
        User {
            monitors: monitors.iter().map(|m| m.parse().unwrap()).collect(),
            id: "joe",
            key,
        }
    }

    fn image(namespace: &str, snap: Option<&str>) -> Wanted {
        Wanted {
            pool: "p".into(),
            namespace: namespace.into(),
            image: "i".into(),
            snap: snap.map(str::to_owned),
        }
    }

    #[test]
    fn the_kernel_is_told_of_monitors_user_options_and_image() {
        let secret = "AQBMbCBpAAAAABAAZBAGZ1iWXMqvo0B1K2Lq1w==";
        let key = CryptoKey::from_base64(secret).unwrap();
        let user = user(&["10.0.0.1:3300", "[::1]:3301"], &key);
        assert_eq!(
            map_text(&image("", None), &user, &KeyOption::Named, ""),
            "10.0.0.1:3300,[::1]:3301 name=joe,key=client.joe p i -"
        );
        assert_eq!(
            map_text(
                &image("n", Some("s")),
                &user,
                &KeyOption::Told,
                "ms_mode=secure,ro"
            ),
            format!("10.0.0.1:3300,[::1]:3301 name=joe,secret={secret},ms_mode=secure,ro,_pool_ns=n p i s")
        );
    }

    /// A directory that looks like sysfs with two devices, and one that is just being removed.
    struct Sysfs {
        root: PathBuf,
        rbd: KernelRbd,
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.root).unwrap();
        }
    }

    fn sysfs(test: &str) -> Sysfs {
        let bus = std::env::temp_dir().join(format!("spirula-krbd-{test}-{}", std::process::id()));
        let device = |id: &str, attributes: &[(&str, &str)]| {
            let device = bus.join("devices").join(id);
            fs::create_dir_all(&device).unwrap();
            for (name, value) in attributes {
                fs::write(device.join(name), format!("{value}\n")).unwrap();
            }
        };
        let numbers = |minor| [("major", "252"), ("minor", minor)];
        let names = [
            ("pool", "p"),
            ("pool_ns", "n"),
            ("name", "i"),
            ("current_snap", "-"),
        ];
        device("0", &[&names[..], &numbers("0")].concat());
        // As before Linux 4.19.
        let names = [("pool", "p"), ("name", "i"), ("current_snap", "s")];
        device("10", &[&names[..], &numbers("160")].concat());
        device("2", &[("pool", "p")]);
        fs::write(bus.join("supported_features"), "0x1ff\n").unwrap();
        fs::write(bus.join("remove_single_major"), "").unwrap();
        Sysfs {
            root: bus.clone(),
            rbd: KernelRbd { bus },
        }
    }

    #[test]
    fn sysfs_tells_what_is_mapped() {
        let sysfs = sysfs("mapped");
        let told: Vec<String> = sysfs
            .rbd
            .mapped()
            .iter()
            .map(|m| format!("{} {} {}", m.id, m.image, m.path))
            .collect();
        assert_eq!(told, ["0 p/n/i /dev/rbd0", "10 p/i@s /dev/rbd10"]);
        assert_eq!(sysfs.rbd.features(), Some(Features(0x1ff)));
    }

    #[test]
    fn unmapping_names_the_device() {
        let sysfs = sysfs("unmap");
        let file = sysfs.root.join("remove_single_major");
        let written = || fs::read_to_string(&file).unwrap();
        let options = |force| UnmapOptions { force, udev: false };
        let rbd = &sysfs.rbd;
        assert_eq!(rbd.unmap_image(&image("", Some("s")), options(false)), Ok(()));
        assert_eq!(written(), "10");
        assert_eq!(rbd.unmap_image(&image("n", None), options(true)), Ok(()));
        assert_eq!(written(), "0 force");
        assert_eq!(
            rbd.unmap_image(&image("", None), options(false)),
            Err(errno::EINVAL.into())
        );
        assert_eq!(
            rbd.unmap_path("/dev/null", options(false)),
            Err(errno::EINVAL.into())
        );
    }
}
