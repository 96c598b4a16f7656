//! A monitor alone, for trying out the official tools:
//! `cargo run -p spirula-mon --example mon_only DIR PORT`. Makes DIR with a `ceph.conf` and an
//! administrator's keyring when it is missing, then runs until it is killed.

use std::collections::BTreeMap;
use std::path::Path;

use spirula_cephx::{AuthName, CryptoKey, EntityAuth, Env, KeyType, Keyring};
use spirula_denc::{EntityType, Fsid, UTime};
use spirula_mon::{MkfsConfig, MonConfig, mkfs, run};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn entity(caps: &[(&str, &str)]) -> Result<EntityAuth> {
    let caps = caps
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    Ok(EntityAuth {
        key: CryptoKey::generate(KeyType::Aes, &Env::system(UTime::now()))?,
        caps,
    })
}

async fn start(dir: &Path, port: u16) -> Result<()> {
    let fsid = Fsid::parse("6f1b7c1e-43a5-4c3b-9f0a-000000000001").ok_or("fsid")?;
    let mut options = BTreeMap::from([("osd_crush_chooseleaf_type".to_owned(), "0".to_owned())]);
    options.insert("mon_allow_pool_delete".to_owned(), "true".to_owned());
    let config = MonConfig {
        data: dir.join("mon.a"),
        name: "a".to_owned(),
        fsid,
        bind: ([127, 0, 0, 1], port).into(),
        admin_socket: Some(spirula_asok::Place {
            path: dir.join("mon.a.asok"),
            mode: None,
        }),
        options,
    };
    if !dir.join("ceph.conf").exists() {
        std::fs::create_dir_all(dir)?;
        let all = [
            ("mon", "allow *"),
            ("osd", "allow *"),
            ("mds", "allow *"),
            ("mgr", "allow *"),
        ];
        let admin = AuthName::new(EntityType::CLIENT, "admin");
        let mut keyring = Keyring::default();
        keyring.entries.insert(admin.clone(), entity(&all)?);
        keyring
            .entries
            .insert(AuthName::monitors(), entity(&[("mon", "allow *")])?);
        mkfs(
            &config,
            &MkfsConfig {
                monitors: Vec::new(),
                keyring: keyring.clone(),
                key_type: KeyType::Aes,
            },
        )
        .await?;
        keyring.entries.retain(|n, _| *n == admin);
        std::fs::write(dir.join("keyring"), keyring.to_string())?;
        let conf = format!(
            "[global]\nfsid = {fsid}\nmon_host = [v2:127.0.0.1:{port}]\nkeyring = {0}/keyring\nadmin_socket = {0}/$name.asok\n",
            dir.display()
        );
        std::fs::write(dir.join("ceph.conf"), conf)?;
    }
    run(config, std::future::pending()).await?;
    Ok(())
}

fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let mut args = std::env::args().skip(1);
    let (dir, port) = (args.next().ok_or("DIR")?, args.next().ok_or("PORT")?.parse()?);
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()?;
    tokio::task::LocalSet::new().block_on(&rt, start(Path::new(&dir), port))
}
