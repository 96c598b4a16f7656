//! The `ceph.conf` that `spirula up` writes. Simple parsers read it too (OpenStack's, collectd's,
//! shell scripts), which know neither nonces in addresses nor metavariables.

use std::path::Path;

use spirula_conf::ConfFile;

use super::Spec;
use crate::daemon::Kind;

/// The file of a new cluster in `root`.
pub(super) fn text(root: &Path, spec: &Spec) -> String {
    let size = spec.osds.len().clamp(1, 3);
    let min_size = size - size / 2;
    let mons = spec.mons();
    let ids: Vec<&str> = mons.iter().map(|(id, _)| id.as_str()).collect();
    let sections: Vec<String> = mons
        .iter()
        .map(|(id, at)| format!("[mon.{id}]\nmon_addr = {at}\n"))
        .collect();
    let kinds = Kind::ALL.map(|kind| section(root, kind));
    format!(
        "\
[global]
fsid = {fsid}
{mon_host}
mon_initial_members = {ids}
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
public_addr = {ip}
# An OSD takes four ports, and here all of them share one address.
ms_bind_port_max = 32767
run_dir = {root}/run
{keyring}
osd_pool_default_size = {size}
osd_pool_default_min_size = {min_size}
# One host: replicas spread over OSDs. With several hosts this line goes, and they spread over hosts.
osd_crush_chooseleaf_type = 0

{admin}
{sections}
{kinds}",
        fsid = spec.fsid,
        mon_host = mon_host(spec, ""),
        ids = ids.join(","),
        keyring = keyring(root),
        admin = admin(root),
        sections = sections.join("\n"),
        kinds = kinds.join("\n"),
        ip = spec.mon.ip(),
        root = root.display(),
    )
}

/// The section of a kind of daemons.
fn section(root: &Path, kind: Kind) -> String {
    let own = kind.options(root);
    let root = root.display();
    format!(
        "\
[{kind}]
{own}keyring = {root}/$name/keyring
admin_socket = {root}/run/$name.asok
pid_file = {root}/run/$name.pid
log_file = {root}/log/$name.log
"
    )
}

/// The line with the monitors' addresses, `after` behind each.
fn mon_host(spec: &Spec, after: &str) -> String {
    let mons = spec.mons();
    let hosts: Vec<String> = mons.iter().map(|(_, at)| format!("[v2:{at}{after}]")).collect();
    format!("mon_host = {}", hosts.join(","))
}

/// The line that says where the keys of clients are.
fn keyring(root: &Path) -> String {
    format!("keyring = {}/$cluster.$name.keyring", root.display())
}

/// The administrator's section.
fn admin(root: &Path) -> String {
    let root = root.display();
    format!("[client.admin]\nkeyring = {root}/ceph.client.admin.keyring\n")
}

/// `old` as this version writes it, if an earlier version wrote it otherwise. Lines that `up` did
/// not write stay.
pub(super) fn mended(old: &str, root: &Path, spec: &Spec) -> Option<String> {
    // A file that can't be parsed is left as it is: the daemons name the line.
    let parsed = ConfFile::parse(old).ok()?;
    let has_admin = parsed.sections().any(|(name, _)| name == "client.admin");
    let (of_old, keyring) = (mon_host(spec, "/0"), keyring(root));
    let mut wants_admin = !has_admin && old.lines().any(|line| line == keyring);
    let mut new = String::new();
    let mut sections = 0;
    for line in old.lines() {
        sections += u32::from(line.trim_start().starts_with('['));
        if sections == 2 && wants_admin {
            new += &admin(root);
            new.push('\n');
            wants_admin = false;
        }
        match line == of_old {
            true => new += &mon_host(spec, ""),
            false => new += line,
        }
        new.push('\n');
    }
    (new.trim_end() != old.trim_end()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        serde_json::from_str(
            r#"{"version": 1, "fsid": "f", "mon": "127.0.0.1:1", "more_mons": ["127.0.0.1:2"], "osds": 3, "osd_size": 1}"#,
        )
        .unwrap()
    }

    #[test]
    fn what_simple_parsers_look_for_is_plain() {
        let new = text("/x".as_ref(), &spec());
        assert!(new.contains("\nmon_host = [v2:127.0.0.1:1],[v2:127.0.0.1:2]\n"));
        assert!(new.contains("\n[client.admin]\nkeyring = /x/ceph.client.admin.keyring\n"));
        assert_eq!(mended(&new, "/x".as_ref(), &spec()), None);
        let conf = ConfFile::parse(&new).unwrap();
        let reader = conf.get("client.reader", "keyring");
        assert_eq!(reader.as_deref(), Some("/x/ceph.client.reader.keyring"));
    }

    #[test]
    fn only_what_an_earlier_version_wrote_is_mended() {
        let (root, spec) = (Path::new("/x"), spec());
        let new = text(root, &spec);
        let old = new
            .replace(&mon_host(&spec, ""), &mon_host(&spec, "/0"))
            .replace(&format!("{}\n", admin(root)), "");
        let own = "[global]\nmon_host = [v2:10.0.0.9:3300/0]\n  # mine\n[client.x]\nkeyring = y\n";
        let (old, new) = (format!("{old}{own}"), format!("{new}{own}"));
        assert_eq!(mended(&old, root, &spec), Some(new));
        // Another directory's, an administrator's own section, a file that can't be parsed.
        assert_eq!(mended(own, root, &spec), None);
        let mine = format!("{old}[client.admin]\nkeyring = mine\n").replace("/0],", "],");
        assert_eq!(mended(&mine, root, &spec), None);
        assert_eq!(mended(&format!("{old}nonsense\n"), root, &spec), None);
    }
}
