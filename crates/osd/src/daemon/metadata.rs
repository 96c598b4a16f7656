//! The daemon's description of itself and its host, as `ceph osd metadata` shows it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use spirula_denc::{EntityAddr, EntityAddrVec};
use spirula_host::{Disks, interface_of, network_numa};

use super::admin;
use super::setup::Setup;

fn flag(on: bool) -> String {
    u8::from(on).to_string()
}

/// The class of the device that the store lies on; empty if the device can't be looked at.
pub(super) fn class_of_device(setup: &Setup) -> &'static str {
    Disks::of(&setup.cfg.device).map_or("", |d| d.class())
}

/// The metadata with which the daemon boots, with a store of `size` bytes.
pub(super) fn all(setup: &Setup, size: u64) -> BTreeMap<String, String> {
    let mut all = setup.host.system();
    all.extend(disks(setup, size));
    all.extend(network(setup));
    let own = [
        ("ceph_version", admin::version_text()),
        ("ceph_version_short", admin::CEPH_VERSION.to_owned()),
        ("ceph_release", admin::CEPH_RELEASE.to_owned()),
        ("osd_objectstore", "spirula".to_owned()),
        ("bluestore_min_alloc_size", spirula_store::BLOCK.to_string()),
    ];
    all.extend(own.map(|(k, v)| (k.to_owned(), v)));
    all
}

fn disks(setup: &Setup, size: u64) -> BTreeMap<String, String> {
    let device = &setup.cfg.device;
    let mut all = BTreeMap::new();
    if let Some(data) = device.parent() {
        all.insert("osd_data".to_owned(), data.display().to_string());
    }
    let Ok(disks) = Disks::of(device) else {
        return all;
    };
    let log = setup.cfg.log_device.as_ref().and_then(|l| Disks::of(l).ok());
    let log = log.as_ref().unwrap_or(&disks);
    all.extend(disks.devices());
    all.extend(disks.objectstore_numa());
    all.extend(disks.store("bluestore_bdev_", device, size, spirula_store::BLOCK as u64));
    let own = [
        ("default_device_class", disks.class().to_owned()),
        ("journal_rotational", flag(log.is_rotational())),
        ("rotational", flag(disks.is_rotational())),
    ];
    all.extend(own.map(|(k, v)| (k.to_owned(), v)));
    all
}

fn network(setup: &Setup) -> BTreeMap<String, String> {
    let a = &setup.addrs;
    let iface = |a: &EntityAddr| a.socket.and_then(|s| interface_of(s.ip())).unwrap_or_default();
    let (front, back) = (iface(&a.public), iface(&a.cluster));
    let text = |a: EntityAddr| EntityAddrVec::from(a).to_string();
    let mut all = network_numa([("front_iface", front.as_str()), ("back_iface", back.as_str())]);
    let own = [
        ("back_addr", text(a.cluster)),
        ("front_addr", text(a.public)),
        ("hb_back_addr", text(a.heartbeat_back)),
        ("hb_front_addr", text(a.heartbeat_front)),
        ("back_iface", back),
        ("front_iface", front),
    ];
    all.extend(own.map(|(k, v)| (k.to_owned(), v)));
    all
}

/// The disks below a path, as `list_devices` shows them.
pub(super) fn list_devices(path: &Path) -> Value {
    let disks = Disks::of(path).map(|d| d.disks).unwrap_or_default();
    let shown = disks
        .into_iter()
        .map(|d| json!({"device": format!("/dev/{}", d.name), "device_id": d.id.unwrap_or_default()}));
    shown.collect()
}
