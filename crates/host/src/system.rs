//! Kernel, distribution, processor, memory, and the container around the daemon.

use std::path::Path;

use crate::Metadata;
use crate::text::{field, read, value};

/// Environment variables that orchestrators set, and their keys in the metadata.
const CONTAINER: [(&str, &str); 3] = [
    ("POD_NAME", "pod_name"),
    ("CONTAINER_NAME", "container_name"),
    ("CONTAINER_IMAGE", "container_image"),
];

/// The system's properties: `arch`, `cpu`, `distro*`, `hostname`, `kernel_*`, `mem_*`, `os`, and
/// the container's names.
pub fn system() -> Metadata {
    let mut found = kernel();
    found.extend(files(Path::new("/")));
    container(|name| std::env::var(name).ok(), &mut found);
    found
}

/// A process's pages in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Bytes of all pages.
    pub bytes: usize,
    /// Bytes of pages of files.
    pub of_files: usize,
}

/// This process's pages in memory; from `/proc/self/status`.
pub fn resident() -> Option<Resident> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Resident {
        bytes: bytes("VmRSS")?,
        of_files: bytes("RssFile")?.saturating_add(bytes("RssShmem")?),
    })
}

/// The load of the machine in the last minute, for each of its processors; from `/proc/loadavg`.
pub fn load() -> Option<f64> {
    let averages = std::fs::read_to_string("/proc/loadavg").ok()?;
    let minute: f64 = averages.split_whitespace().next()?.parse().ok()?;
    let processors = std::thread::available_parallelism().ok()?;
    Some(minute / processors.get() as f64)
}

fn pairs<const N: usize>(pairs: [(&str, Option<String>); N]) -> Metadata {
    let known = pairs.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?)));
    known.collect()
}

fn kernel() -> Metadata {
    let u = rustix::system::uname();
    let text = |s: &std::ffi::CStr| value(&s.to_string_lossy());
    pairs([
        ("arch", text(u.machine())),
        ("hostname", text(u.nodename())),
        ("kernel_description", text(u.version())),
        ("kernel_version", text(u.release())),
        ("os", text(u.sysname())),
    ])
}

/// The properties from files below `root`: distribution, processor and memory.
fn files(root: &Path) -> Metadata {
    let text = |path: &str| read(&root.join(path)).unwrap_or_default();
    let release = text("etc/os-release");
    let release = |key| value(field(&release, key, '=')?.trim_matches(['"', '\'']));
    let memory = text("proc/meminfo");
    let kb = |key| value(field(&memory, key, ':')?.trim_end_matches("kB"));
    pairs([
        ("cpu", field(&text("proc/cpuinfo"), "model name", ':')),
        ("distro", release("ID")),
        ("distro_description", release("PRETTY_NAME")),
        ("distro_version", release("VERSION_ID")),
        ("mem_swap_kb", kb("SwapTotal")),
        ("mem_total_kb", kb("MemTotal")),
    ])
}

/// Within a container the host's name is the one that the orchestrator gives.
fn container(var: impl Fn(&str) -> Option<String>, found: &mut Metadata) {
    let var = |name| value(&var(name)?);
    let names = CONTAINER.map(|(name, key)| (key, var(name)));
    if names.iter().all(|(_, v)| v.is_none()) {
        return;
    }
    found.extend(pairs(names));
    if let Some(node) = var("NODE_NAME")
        && let Some(own) = found.insert("hostname".to_owned(), node)
    {
        found.insert("container_hostname".to_owned(), own);
    }
    found.extend(pairs([("pod_namespace", var("POD_NAMESPACE"))]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("spirula-system-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn files_are_read_as_they_are_and_what_is_missing_is_left_out() {
        let root = tree(&[
            (
                "etc/os-release",
                b"PRETTY_NAME=\"Some Linux 1 (one)\"\nID='some'\nVERSION_ID=\n",
            ),
            (
                "proc/meminfo",
                b"MemTotal:       24684084 kB\nMemFree: 1 kB\nSwapTotal:  0 kB\n",
            ),
            (
                "proc/cpuinfo",
                b"processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n",
            ),
        ]);
        let want = pairs([
            ("cpu", Some("A: B".into())),
            ("distro", Some("some".into())),
            ("distro_description", Some("Some Linux 1 (one)".into())),
            ("mem_swap_kb", Some("0".into())),
            ("mem_total_kb", Some("24684084".into())),
        ]);
        assert_eq!(files(&root), want);
        let root = tree(&[
            ("etc/os-release", b"\xff\xfe=\n=\n\"\n"),
            ("proc/meminfo", b"MemTotal"),
        ]);
        assert_eq!(files(&root), Metadata::new());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_system_has_a_name_and_a_kernel() {
        let all = system();
        for key in [
            "arch",
            "hostname",
            "kernel_description",
            "kernel_version",
            "mem_total_kb",
            "os",
        ] {
            assert!(all.contains_key(key), "{key} of {all:?}");
        }
        assert_eq!(all["os"], "Linux");
    }

    #[test]
    fn a_container_names_its_host() {
        let of = |vars: &[(&str, &str)]| {
            let mut found = pairs([("hostname", Some("inner".into()))]);
            let var = |name: &str| {
                vars.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| (*v).to_owned())
            };
            container(var, &mut found);
            found
                .into_iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            of(&[("NODE_NAME", "outer"), ("POD_NAMESPACE", "n")]),
            "hostname=inner"
        );
        assert_eq!(of(&[("CONTAINER_NAME", "c")]), "container_name=c hostname=inner");
        let all = of(&[("POD_NAME", "p"), ("NODE_NAME", "outer"), ("POD_NAMESPACE", "n")]);
        assert_eq!(
            all,
            "container_hostname=inner hostname=outer pod_name=p pod_namespace=n"
        );
    }
}
