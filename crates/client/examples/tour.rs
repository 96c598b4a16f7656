//! A tour of the client against whatever cluster `CEPH_CONF` names:
//! `cargo run -p spirula-client --example tour POOL`.

use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::AuthName;
use spirula_client::{Options, Rados};
use spirula_denc::EntityType;
use spirula_maps::OsdId;

async fn tour(pool: &str) -> spirula_client::Result<()> {
    let name = AuthName::new(EntityType::CLIENT, "admin");
    let options = Options::load(None, &name, None, None, Some(Duration::from_secs(10)))?;
    let rados = Rados::connect(&options).await?;
    println!(
        "connected to {} as client.{}",
        rados.fsid().await?,
        rados.monitors().global_id()
    );
    let status = rados.mon_command(r#"{"prefix":"status"}"#, Bytes::new()).await?;
    println!("{}", String::from_utf8_lossy(&status.output));
    println!("pools: {:?}", rados.pools().await?);
    println!("space: {:?}", rados.statfs(None).await?);
    let io = rados.pool(pool).await?.with_namespace("tour");
    for i in 0..10 {
        io.write_full(&format!("o{i}"), Bytes::from(vec![i; 5000]))
            .await?;
    }
    io.append("o1", Bytes::from_static(b"more")).await?;
    io.setxattr("o1", "colour", b"blue").await?;
    println!(
        "o1: {:?} bytes, {:?}",
        io.stat("o1").await?.0,
        io.getxattrs("o1").await?
    );
    assert_eq!(io.read("o1", 4999, 100).await?, Bytes::from_static(b"\x01more"));
    let mut list = io.list(false);
    let mut n = 0;
    while let Some(object) = list.next().await? {
        io.remove(&object.oid.to_string()).await?;
        n += 1;
    }
    println!(
        "{n} objects listed and removed; a missing one: {:?}",
        io.read("o1", 0, 1).await.map_err(|e| e.errno())
    );
    let version = rados
        .osd_command(OsdId::new(0), r#"{"prefix":"version"}"#, Bytes::new())
        .await?;
    println!("osd.0: {}", String::from_utf8_lossy(&version.output));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let pool = std::env::args().nth(1).ok_or("usage: tour POOL")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, tour(&pool))?)
}
