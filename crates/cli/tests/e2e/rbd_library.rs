//! The image library against a model: random changes of a clone with snapshots, which the official
//! tool must find, too.

use std::path::Path;

use bytes::Bytes;
use spirula_client::{IoCtx, Rados, Source};
use spirula_random::Rng;
use spirula_rbd::Striping;
use spirula_rbd::{CloneFormat, CreateOptions, Image, Options, clone, create};

use crate::common::Cluster;

const SIZE: usize = 6 << 20;
const STEPS: usize = 600;

/// A range: often small, now and then whole objects.
fn range(random: &mut Rng) -> (usize, usize) {
    match random.below(8) {
        0 => (random.index(SIZE >> 18) << 18, 1 << 18),
        1 => {
            let from = random.index(SIZE);
            (from, 1 + random.index((SIZE - from).min(1 << 20)))
        }
        _ => {
            let from = random.index(SIZE - 5000);
            (from, 1 + random.index(5000))
        }
    }
}

async fn change(random: &mut Rng, image: &Image, model: &mut [u8]) {
    let (from, len) = range(random);
    let part = &mut model[from..from + len];
    let offset = from as u64;
    match random.below(10) {
        0..5 => {
            part.copy_from_slice(&random.bytes(len));
            // In two buffers, which need not end where objects do.
            let (front, back) = part.split_at(len / 3);
            let buffers = vec![Bytes::copy_from_slice(front), Bytes::copy_from_slice(back)];
            image.write(offset, buffers).await.unwrap();
        }
        5 => {
            part.fill(0);
            image.discard(offset, len as u64).await.unwrap();
        }
        6 => {
            part.fill(0);
            image.write_zeroes(offset, len as u64).await.unwrap();
        }
        7 => {
            // Within a stripe unit.
            let at = from & !511;
            let old = Bytes::copy_from_slice(&model[at..at + 512]);
            let new = Bytes::from(random.bytes(512));
            let offset = at as u64;
            let wrong = image.compare_and_write(offset, Bytes::from(vec![7; 512]), new.clone());
            assert_eq!(wrong.await.unwrap_err().errno(), spirula_client::errno::EILSEQ);
            image.compare_and_write(offset, old, new.clone()).await.unwrap();
            model[at..at + 512].copy_from_slice(&new);
        }
        _ => {
            let read = image.read(offset, len as u64).await.unwrap();
            assert_eq!(read[..], *part, "{from}~{len}");
        }
    }
}

async fn open(pool: &IoCtx, name: &str) -> Image {
    Image::open(pool, name, Options::default()).await.unwrap()
}

async fn run(conf: &Path, format: CloneFormat, name: &str, work: &Path) {
    let source = Source {
        conf: Some(conf.to_owned()),
        name: "client.admin".parse().unwrap(),
        ..Source::default()
    };
    let rados = Rados::connect(&source.read().unwrap()).await.unwrap();
    let pool = rados.pool("p").await.unwrap();
    let mut random = Rng::new(name.len() as u64);
    let parent = format!("{name}-parent");
    let options = CreateOptions {
        order: Some(18),
        ..CreateOptions::default()
    };
    create(&pool, &parent, SIZE as u64, &options).await.unwrap();
    let mut model = random.bytes(SIZE);
    model[1 << 20..2 << 20].fill(0);
    let image = open(&pool, &parent).await;
    image.write(0, Bytes::from(model.clone())).await.unwrap();
    image.create_snapshot("s").await.unwrap();
    image.protect_snapshot("s").await.unwrap();
    image.discard(0, SIZE as u64).await.unwrap();
    image.close().await.unwrap();
    let options = CreateOptions {
        order: Some(18),
        striping: Some(Striping {
            unit: 16 << 10,
            count: 3,
        }),
        clone_format: format,
        ..CreateOptions::default()
    };
    clone(&pool, &parent, "s", &pool, name, &options).await.unwrap();
    let image = open(&pool, name).await;
    let mut kept = Vec::new();
    for step in 0..STEPS {
        if step % 150 == 100 {
            let snap = format!("at{step}");
            image.create_snapshot(&snap).await.unwrap();
            kept.push((snap, model.clone()));
        }
        if step == 400 {
            image.resize(SIZE as u64 / 2 + 1000, true).await.unwrap();
            image.resize(SIZE as u64, false).await.unwrap();
            model[SIZE / 2 + 1000..].fill(0);
        }
        if step == 500 {
            image.flatten(&spirula_rbd::Progress::untold()).await.unwrap();
        }
        change(&mut random, &image, &mut model).await;
    }
    assert_eq!(image.read(0, SIZE as u64).await.unwrap(), model);
    image.close().await.unwrap();
    kept.push((String::new(), model));
    for (snap, data) in kept {
        let file = if snap.is_empty() {
            name.to_owned()
        } else {
            format!("{name}@{snap}")
        };
        std::fs::write(work.join(file), data).unwrap();
    }
}

#[test]
fn random_changes_of_clones_are_kept() {
    let c = Cluster::up("rbd-library", 1, &[]);
    c.sh("ceph osd pool create p 8 8 replicated");
    let (conf, work) = (c.conf(), c.dir().join("work"));
    std::fs::create_dir(&work).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (format, name) in [(CloneFormat::V1, "one"), (CloneFormat::V2, "second")] {
        let task = run(&conf, format, name, &work);
        tokio::task::LocalSet::new().block_on(&runtime, task);
    }
    c.sh("cd work; for i in *; do
            rbd export --no-progress p/$i - | cmp - $i || { echo $i >&2; exit 1; }
            rbd object-map check --no-progress p/$i
          done");
}
