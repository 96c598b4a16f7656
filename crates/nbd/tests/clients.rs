//! Official clients: QEMU's and libnbd's.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helper fails the test"
)]

mod common;

use std::path::Path;
use std::rc::Rc;

use common::{Memory, Running, pattern, run};
use spirula_nbd::{Limits, Tls, WriteBehind};
use tokio::process::Command;

const MIB: usize = 1 << 20;

/// Runs a command line and returns its success and all output.
async fn try_sh(directory: &Path, line: &str) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(directory)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

async fn sh(directory: &Path, line: &str) -> String {
    let (ok, text) = try_sh(directory, line).await;
    assert!(ok, "{line}: {text}");
    text
}

/// A sparse image: 24 MiB with data at some places.
fn image() -> Vec<u8> {
    let mut image = vec![0; 24 * MIB];
    for (seed, at) in [0, 3 * MIB + 5, 9 * MIB, 24 * MIB - 100_000]
        .into_iter()
        .enumerate()
    {
        image[at..at + 100_000].copy_from_slice(&pattern(100_000, seed as u32));
    }
    image
}

#[test]
fn images_go_in_and_out() {
    run(async {
        let image = image();
        for behind in [0, 8 * MIB] {
            let memory = Memory::new(image.len());
            let device = Rc::new(WriteBehind::new(memory.clone(), behind));
            let server = Running::one(device).await;
            let dir = &server.directory;
            std::fs::write(dir.join("in"), &image).unwrap();
            let unix = "nbd+unix:///disk?socket=nbd";
            let tcp = format!("nbd://127.0.0.1:{}/disk", server.port);
            sh(dir, &format!("qemu-img convert -n -f raw -O raw in '{unix}'")).await;
            assert_eq!(*memory.durable.borrow(), image);
            sh(
                dir,
                &format!("qemu-img convert -f raw -O raw '{tcp}' out && cmp in out"),
            )
            .await;
            sh(dir, &format!("qemu-img compare -f raw -F raw '{unix}' in")).await;
            memory.data.borrow_mut().fill(7);
            sh(dir, &format!("nbdcopy --flush --connections=4 in '{tcp}'")).await;
            assert_eq!(*memory.durable.borrow(), image);
            sh(
                dir,
                &format!("nbdcopy --connections=4 '{unix}' back && cmp in back"),
            )
            .await;
            let map = sh(dir, &format!("nbdinfo --map --totals '{unix}'")).await;
            assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
            server.stop().await;
        }
    });
}

#[test]
fn qemu_io_does_everything() {
    run(async {
        let memory = Memory::new(16 * MIB);
        let server = Running::one(memory.clone()).await;
        let dir = &server.directory;
        let script = [
            "write -P 1 0 8M",
            "write -P 2 -f 1M 64k",
            "write -z -n -u 2M 64k",
            "write -z -u 3M 64k",
            "discard 4M 1M",
            "aio_write -P 3 5M 1M",
            "aio_write -P 4 6M 1M",
            "aio_flush",
            "flush",
            "read -P 2 1M 64k",
            "read -P 0 2M 64k",
            "read -P 0 3M 64k",
            "read -P 3 5M 1M",
            "read -P 4 6M 1M",
            "read -P 1 7M 1M",
            "read -P 0 8M 8M",
        ];
        let args: String = script.iter().map(|line| format!(" -c '{line}'")).collect();
        let text = sh(
            dir,
            &format!("qemu-io -f raw{args} 'nbd+unix:///disk?socket=nbd'"),
        )
        .await;
        assert!(!text.contains("failed"), "{text}");
        assert!(memory.logged("trim 4194304") > 0 && memory.logged("zero 2097152") > 0);
        assert_eq!(*memory.durable.borrow(), *memory.data.borrow());
        server.stop().await;
    });
}

#[test]
fn exports_are_listed_and_kept_apart() {
    run(async {
        let one = Memory::new(MIB);
        let two = Rc::new(Memory {
            read_only: true,
            ..Memory::unshared(2 * MIB)
        });
        let exports = vec![("pool/one", one), ("pool/two@snap", two)];
        let server = Running::start(exports, |_| None, Limits::default()).await;
        let dir = &server.directory;
        let list = sh(dir, "nbdinfo --list 'nbd+unix:///?socket=nbd'").await;
        for part in [
            "pool/one",
            "pool/two@snap",
            "export-size: 1048576",
            "export-size: 2097152",
            "base:allocation",
            "can_multi_conn: true",
            "block_size_preferred: 4096",
        ] {
            assert!(list.contains(part), "{part} in {list}");
        }
        let size = sh(dir, "nbdinfo --size 'nbd+unix:///pool/two@snap?socket=nbd'").await;
        assert_eq!(size.trim(), "2097152");
        let write = "qemu-io -f raw -c 'write 0 4k' 'nbd+unix:///pool/two@snap?socket=nbd'";
        let (ok, text) = try_sh(dir, write).await;
        assert!(!ok && text.contains("Permission denied"), "{text}");
        let (ok, text) = try_sh(dir, "nbdinfo 'nbd+unix:///nothing?socket=nbd'").await;
        assert!(!ok && text.contains("No such file"), "{text}");
        server.stop().await;
    });
}

/// An authority, a server's and a client's certificate, and those of an unknown authority.
const CERTIFICATES: &str = r"
set -e
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout $1.key -out $1.pem -subj /CN=$1
}
sign() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $3/$2-key.pem -out $2.csr -subj /CN=localhost
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' >ext
    openssl x509 -req -in $2.csr -CA $1.pem -CAkey $1.key -CAcreateserial -days 2 -extfile ext -out $3/$2-cert.pem
    cp ca.pem $3/ca-cert.pem
}
mkdir server client stranger anonymous
authority ca
authority other
sign ca server server
sign ca client client
sign other client stranger
cp ca.pem anonymous/ca-cert.pem
";

fn tls(directory: &Path, client_ca: bool, required: bool) -> Option<Tls> {
    let made = std::process::Command::new("sh")
        .args(["-c", CERTIFICATES])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let at = directory.join("server");
    let ca = at.join("ca-cert.pem");
    let client_ca = client_ca.then_some(ca.as_path());
    let tls = Tls::from_files(
        &at.join("server-cert.pem"),
        &at.join("server-key.pem"),
        client_ca,
        required,
    );
    Some(tls.unwrap())
}

#[test]
fn tls_is_required_and_checks_certificates() {
    run(async {
        let memory = Memory::new(4 * MIB);
        let exports = vec![("disk", memory.clone())];
        let server = Running::start(exports, |d| tls(d, true, true), Limits::default()).await;
        let dir = &server.directory;
        let port = server.port;
        let uri = |who: &str| {
            format!(
                "nbds://localhost:{port}/disk?tls-certificates={}/{who}",
                dir.display()
            )
        };
        std::fs::write(dir.join("in"), pattern(4 * MIB, 1)).unwrap();
        sh(dir, &format!("nbdcopy in '{}' --flush", uri("client"))).await;
        assert_eq!(*memory.durable.borrow(), pattern(4 * MIB, 1));
        let qemu = |who: &str| {
            format!(
                "qemu-img convert --object tls-creds-x509,id=tls0,endpoint=client,dir={who} --image-opts -O raw \
                 driver=nbd,host=localhost,port={port},export=disk,tls-creds=tls0 out && cmp in out"
            )
        };
        sh(dir, &qemu("client")).await;
        for who in ["stranger", "anonymous"] {
            let (ok, text) = try_sh(dir, &format!("nbdinfo '{}'", uri(who))).await;
            assert!(!ok, "{who}: {text}");
            let (ok, text) = try_sh(dir, &qemu(who)).await;
            assert!(!ok, "{who}: {text}");
        }
        let (ok, text) = try_sh(dir, &format!("nbdinfo nbd://localhost:{port}/disk")).await;
        assert!(!ok && text.to_lowercase().contains("tls"), "{text}");
        server.stop().await;
    });
}

#[test]
fn tls_may_be_optional() {
    run(async {
        let memory = Memory::new(MIB);
        let exports = vec![("disk", memory.clone())];
        let server = Running::start(exports, |d| tls(d, false, false), Limits::default()).await;
        let dir = &server.directory;
        let port = server.port;
        let certificates = format!("{}/anonymous", dir.display());
        for uri in [
            format!("nbd://localhost:{port}/disk"),
            format!("nbds://localhost:{port}/disk?tls-certificates={certificates}"),
        ] {
            let size = sh(dir, &format!("nbdinfo --size '{uri}'")).await;
            assert_eq!(size.trim(), "1048576");
        }
        let missing = Tls::from_files(&dir.join("nothing"), &dir.join("nothing"), None, false);
        assert!(missing.err().unwrap().to_string().contains("nothing"));
        server.stop().await;
    });
}
