//! Damage in the index: it is found, no read returns what is wrong, and the store goes on.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Checked, Config, Depth, Devices, Event, IndexDamage, IndexPage, Lookup, Lost, MkfsOptions, Notify,
    ObjectKey, Op, PageLimit, Read, Store, StoreError, Token, Transaction, Way, fsck_on, mend_on, mkfs_on,
    remake_on,
};

const BLOCK: usize = 4096;
/// Blocks of a group of a small store, and of a leaf of its index.
const GROUP: usize = 64;
const OBJECTS: usize = 500;
/// Every so many objects have an omap.
const WITH_OMAP: usize = 5;
const RECORDS: usize = 300;

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    let config = Config {
        memtable_bytes: 512 << 10,
        index_cache_bytes: 256 << 10,
        ..Config::default()
    };
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    Store::open_on(devices, config, Notify::new().unwrap(), false)
}

fn key(i: usize) -> ObjectKey {
    ObjectKey::from(format!("object-{i:05}").as_str())
}

fn info(i: usize) -> Vec<u8> {
    vec![i as u8; 200 + i % 100]
}

fn pairs(i: usize) -> Vec<(Bytes, Bytes)> {
    let pair = |n: usize| (format!("pair-{n:03}"), vec![(i + n) as u8; 200]);
    (0..20)
        .map(pair)
        .map(|(k, v)| (k.into(), Bytes::from(v)))
        .collect()
}

fn record(i: usize) -> (Bytes, Bytes) {
    (format!("record-{i:05}").into(), vec![i as u8; 150].into())
}

fn settle(store: &mut Store) -> Result<(), StoreError> {
    store.checkpoint();
    let mut events = Vec::new();
    for _ in 0..100_000 {
        store.poll(&mut events);
        if let Some(e) = events.drain(..).find_map(|e| match e {
            Event::Fatal(e) => Some(e),
            _ => None,
        }) {
            return Err(e);
        }
        if store.is_idle() && !store.is_busy() {
            return Ok(());
        }
    }
    panic!("never idle");
}

fn wait<T>(store: &mut Store, answer: impl Fn(Event) -> Option<T>) -> Result<T, StoreError> {
    let mut events = Vec::new();
    for _ in 0..100_000 {
        store.poll(&mut events);
        for e in events.drain(..) {
            if let Event::Fatal(e) = e {
                return Err(e);
            }
            if let Some(answer) = answer(e) {
                return Ok(answer);
            }
        }
    }
    panic!("no answer");
}

fn lookup(store: &mut Store, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
    let found = match store.lookup(key, Token(1))? {
        Lookup::Ready(found) => found,
        Lookup::Pending => wait(store, |e| match e {
            Event::Lookup(_, found) => Some(found),
            _ => None,
        })??,
    };
    Ok(found.map(|o| o.info().clone()))
}

fn list(
    store: &mut Store,
    call: impl Fn(&mut Store, &[u8]) -> Result<(), StoreError>,
) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let (mut out, mut from) = (Vec::new(), Bytes::new());
    loop {
        call(store, &from)?;
        let page = wait(store, |e| match e {
            Event::Pairs(_, page) => Some(page),
            _ => None,
        })??;
        out.extend(page.pairs);
        match page.next {
            Some(next) => from = next,
            None => return Ok(out),
        }
    }
}

fn omap(store: &mut Store, key: &ObjectKey) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    list(store, |store, from| {
        store.omap_list(key, from, None, PageLimit::new(7, usize::MAX), Token(2))
    })
}

fn records(store: &mut Store) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    list(store, |store, from| store.meta_list(from, None, 50, Token(3)))
}

/// A store with all kinds of entries in its index, everything of which is there.
fn filled() -> SimDisk {
    let disk = SimDisk::new(14 << 20, 1);
    let opts = MkfsOptions {
        log_bytes: 512 << 10,
        ..MkfsOptions::default()
    };
    mkfs_on(&io(&disk), None, &opts).unwrap();
    let mut store = open(&disk).unwrap();
    for round in 0..2 {
        for i in 0..OBJECTS {
            let mut txn = Transaction::new();
            txn.write(&key(i), 0, Bytes::from(vec![round as u8; 5000]))
                .set_info(&key(i), info(i));
            if i.is_multiple_of(WITH_OMAP) {
                let (key, pairs) = (key(i), pairs(i));
                txn.push(Op::OmapSet { key, pairs });
            }
            if i < RECORDS {
                let (k, v) = record(i);
                txn.meta_put(k, v);
            }
            store.submit(txn, Token(0)).unwrap();
            if i % 100 == 0 {
                settle(&mut store).unwrap();
            }
        }
        settle(&mut store).unwrap();
    }
    disk
}

/// Offsets of the pages of the index in use, by their numbers, and of the newest tables.
struct IndexPlaces {
    pages: BTreeMap<u64, usize>,
    tables: Vec<usize>,
    maps: [usize; 2],
}

fn places(disk: &SimDisk) -> IndexPlaces {
    let read = |at: usize, len: usize| {
        let mut buf = vec![0; len];
        disk.read_at(at as u64, &mut buf).unwrap();
        buf
    };
    let u32_at = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let u64_at = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
    let maps = [128 << 10, 192 << 10];
    let map = maps
        .map(|at| read(at, 64 << 10))
        .into_iter()
        .max_by_key(|m| u32_at(m, 4))
        .unwrap();
    let (mut pages, mut tables) = (BTreeMap::new(), Vec::new());
    for leaf in 0..u32_at(&map, 16) as usize {
        let first = u32_at(&map, 40 + 8 * leaf) as usize * GROUP * BLOCK;
        let copies = [first, first + BLOCK].map(|at| (read(at, BLOCK), at));
        let valid = copies
            .into_iter()
            .filter(|(b, _)| &b[..4] == b"SPIL" && u32_at(b, 4) as usize == leaf);
        let (table, at) = valid.max_by_key(|(b, _)| u64_at(b, 16)).unwrap();
        tables.push(at);
        for i in 0..u32_at(&table, 12) as usize {
            if u32_at(&table, 32 + 4 * i) != 0 {
                pages.insert((leaf * (GROUP - 2) + i) as u64, first + (2 + i) * BLOCK);
            }
        }
    }
    IndexPlaces { pages, tables, maps }
}

/// Walks over the whole index.
fn check(store: &mut Store) -> (Vec<IndexPage>, u64, u64) {
    let (mut from, mut damaged, mut mended, mut read) = (Some(0), Vec::new(), 0, 0);
    while let Some(at) = from {
        store.check_index(at, Token(7)).unwrap();
        let piece: Checked = wait(store, |e| match e {
            Event::Checked(Token(7), piece) => Some(piece),
            _ => None,
        })
        .unwrap();
        assert!(
            piece.read <= 128 && piece.next.is_none_or(|next| next > at),
            "in pieces"
        );
        damaged.extend(piece.damaged);
        mended += piece.mended;
        read += piece.read;
        from = piece.next;
    }
    (damaged, mended, read)
}

fn judge(store: &mut Store, pages: Vec<IndexPage>) -> IndexDamage {
    store.judge_index(pages, Token(8)).unwrap();
    wait(store, |e| match e {
        Event::Judged(Token(8), damage) => Some(damage),
        _ => None,
    })
    .unwrap()
    .unwrap()
}

/// Reads everything: what can be read is right. Returns how much can't be.
fn read_all(store: &mut Store) -> Result<usize, StoreError> {
    let mut lost = 0;
    let mut judge = |is_right: Result<bool, StoreError>, what: &str| match is_right {
        Ok(true) => Ok(()),
        Ok(false) => panic!("{what} is wrong"),
        Err(e) if e.is_damage() => {
            lost += 1;
            Ok(())
        }
        Err(e) => Err(e),
    };
    for i in 0..OBJECTS {
        let found = lookup(store, &key(i)).map(|found| found == Some(info(i).into()));
        judge(found, "an object")?;
        if i.is_multiple_of(WITH_OMAP) {
            let found = omap(store, &key(i)).map(|found| found == pairs(i));
            judge(found, "an omap")?;
        }
    }
    let all: Vec<(Bytes, Bytes)> = (0..RECORDS).map(record).collect();
    let found = records(store).map(|found| found == all);
    judge(found, "a record")?;
    Ok(lost)
}

#[test]
fn each_page_of_the_index_that_rots_is_found_and_never_believed() {
    let disk = filled();
    let places = places(&disk);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (page, at) in &places.pages {
        let disk = disk.copied(2);
        disk.flip_bit(at + 77 * *page as usize % BLOCK, *page as u32 % 8);
        let mut store = match open(&disk) {
            Ok(store) => store,
            Err(StoreError::Ruined { .. }) => {
                let report = fsck_on(&io(&disk), None, Depth::Shallow);
                assert!(!report.is_clean(), "page {page}");
                *kinds.entry("needed at once").or_default() += 1;
                continue;
            }
            Err(e) => panic!("page {page}: {e}"),
        };
        let (damaged, mended, _) = check(&mut store);
        if damaged.is_empty() {
            // The header, of which there is a copy, or a page that the opening has written.
            assert!(*page == 0 || mended == 0, "page {page}");
            *kinds.entry("written anew").or_default() += 1;
            assert_eq!(read_all(&mut store).unwrap(), 0, "page {page}");
            continue;
        }
        assert_eq!(damaged.iter().map(IndexPage::number).collect::<Vec<_>>(), [*page]);
        let damage = judge(&mut store, damaged);
        let kind = match &damage {
            d if d.is_harmless() => "unused",
            d if !d.ruins.is_empty() => "vital",
            d if d.lost[0].contains("objects") => "objects",
            _ => "pairs",
        };
        *kinds.entry(kind).or_default() += 1;
        let (lost, again) = match (read_all(&mut store), read_all(&mut store)) {
            // Its library can't be opened anew.
            (Err(StoreError::Ruined { .. }), _) | (_, Err(StoreError::Ruined { .. })) if kind == "vital" => {
                continue;
            }
            (lost, again) => (
                lost,
                again.unwrap_or_else(|e| panic!("page {page}, {kind}: {e}: {damage}")),
            ),
        };
        let lost = lost.unwrap_or_else(|e| panic!("page {page}, {kind}: {e}: {damage}"));
        assert_eq!(lost, again, "the store goes on");
        match kind {
            "unused" => assert_eq!(lost, 0, "page {page}"),
            "objects" | "pairs" => assert!(lost > 0 && lost < OBJECTS / 4, "page {page}: {lost}"),
            _ => {}
        }
        // What lies elsewhere can be changed, and a change that must touch the page ends the store.
        let mut txn = Transaction::new();
        txn.set_info(&ObjectKey::from("zzz"), vec![1; 10]);
        let submitted = store.submit(txn, Token(1));
        match submitted.and_then(|()| settle(&mut store)) {
            Ok(()) => {
                assert_eq!(
                    lookup(&mut store, &ObjectKey::from("zzz")).unwrap(),
                    Some(vec![1; 10].into())
                );
                assert_eq!(read_all(&mut store).unwrap(), lost, "page {page}");
                *kinds.entry("goes on").or_default() += 1;
            }
            Err(StoreError::Ruined { pages, .. }) => {
                assert_eq!(pages[..], [*page]);
                *kinds.entry("ends").or_default() += 1;
            }
            Err(e) => panic!("page {page}: {e}"),
        }
    }
    println!("{kinds:?} of {}", places.pages.len());
    for kind in [
        "needed at once",
        "written anew",
        "unused",
        "vital",
        "objects",
        "pairs",
        "goes on",
        "ends",
    ] {
        assert!(kinds.contains_key(kind), "{kind}: {kinds:?}");
    }
}

#[test]
fn what_is_known_otherwise_is_written_anew() {
    let disk = filled();
    let places = places(&disk);
    let superblocks = [0, 64 << 10];
    for at in places.tables.iter().chain(&places.maps).chain(&superblocks) {
        let disk = disk.copied(2);
        let mut store = open(&disk).unwrap();
        // So that all tables are in memory.
        assert_eq!(read_all(&mut store).unwrap(), 0);
        settle(&mut store).unwrap();
        assert_eq!(check(&mut store).1, 0, "nothing is wrong");
        let places = self::places(&disk);
        let mut now = places.tables.iter().chain(&places.maps).chain(&superblocks);
        // Tables alternate between two places.
        let at = *now.find(|now| *now / (2 * BLOCK) == at / (2 * BLOCK)).unwrap();
        disk.flip_bit(at + 100, 3);
        let (damaged, mended, _) = check(&mut store);
        assert_eq!((damaged, mended), (vec![], 1), "at {at}");
        settle(&mut store).unwrap();
        assert_eq!(check(&mut store), (vec![], 0, check(&mut store).2), "at {at}");
        drop(store);
        let mut store = open(&disk).unwrap();
        assert_eq!(read_all(&mut store).unwrap(), 0);
    }
}

/// A map of the index that a crash has torn is no damage, and one that has rotted is not passed over.
#[test]
fn fsck_names_a_map_that_is_not_valid() {
    let disk = filled();
    let version = |at: &usize| {
        let mut buf = [0; 4];
        disk.read_at(*at as u64 + 4, &mut buf).unwrap();
        u32::from_le_bytes(buf)
    };
    let mut maps = places(&disk).maps;
    maps.sort_by_key(version);
    assert!(version(&maps[0]) > 0, "both places have a map");
    for (at, is_older) in maps.into_iter().zip([true, false]) {
        let disk = disk.copied(3);
        let before = fsck_on(&io(&disk), None, Depth::Deep);
        assert_eq!(
            (before.errors, before.notes),
            (0, vec![]),
            "{:?}",
            before.problems
        );
        disk.flip_bit(at + 100, 3);
        let report = fsck_on(&io(&disk), None, Depth::Deep);
        let found = (report.problems.len(), report.notes.len());
        match is_older {
            true => assert!(found == (0, 1), "{report:?}"),
            // Where the map before it lacks something, that is named too.
            false => assert!(found != (0, 0), "{report:?}"),
        }
    }
}

#[test]
fn what_nothing_refers_to_is_forgotten() {
    let disk = filled();
    let mut store = open(&disk).unwrap();
    settle(&mut store).unwrap();
    let places = places(&disk);
    for at in places.pages.values() {
        disk.flip_bit(at + 5, 1);
    }
    let (damaged, ..) = check(&mut store);
    let count = damaged.len();
    let damage = judge(&mut store, damaged);
    assert!(damage.unused > 0 && damage.unused < count, "{damage}");
    let (left, ..) = check(&mut store);
    assert_eq!(left.len(), count - damage.unused);
}

#[test]
fn lost_tables_are_not_taken_for_an_empty_index() {
    let disk = filled();
    let places = places(&disk);
    for at in &places.tables {
        let disk = disk.copied(2);
        let first = at / (GROUP * BLOCK) * GROUP * BLOCK;
        disk.flip_bit(first + 50, 0);
        disk.flip_bit(first + BLOCK + 50, 0);
        match open(&disk) {
            Ok(mut store) => {
                let (damaged, ..) = check(&mut store);
                let damage = judge(&mut store, damaged);
                assert!(!damage.ruins.is_empty());
                read_all(&mut store).unwrap();
            }
            Err(e) => assert!(matches!(e, StoreError::Ruined { .. }), "{e}"),
        }
    }
    // An older table does not match what was written since.
    for at in &places.tables {
        let disk = disk.copied(2);
        disk.flip_bit(at + 50, 0);
        match open(&disk) {
            Ok(mut store) => drop(read_all(&mut store)),
            Err(e) => assert!(matches!(e, StoreError::Ruined { .. }), "{e}"),
        }
    }
}

/// Pages whose damage loses objects, pairs, or all.
fn by_kind(disk: &SimDisk, kind: &str) -> Vec<(u64, usize)> {
    let places = places(disk);
    let of_kind = |(page, at): &(u64, usize)| {
        let disk = disk.copied(3);
        disk.flip_bit(at + 9, 2);
        let Ok(mut store) = open(&disk) else {
            return kind == "vital";
        };
        let (damaged, ..) = check(&mut store);
        let damage = judge(&mut store, damaged);
        match (damage.is_harmless(), damage.lost.first()) {
            (true, _) => false,
            (false, None) => kind == "vital" && *page > 0,
            (false, Some(lost)) => lost.contains(kind),
        }
    };
    places.pages.into_iter().filter(of_kind).collect()
}

fn is_lost(lost: &Lost, key: &ObjectKey) -> bool {
    let within = lost.ranges.iter().any(|r| {
        r.after.as_ref().is_none_or(|after| key > after) && r.upto.as_ref().is_none_or(|upto| key <= upto)
    });
    within || lost.torn.contains(key)
}

/// Acts on what is lost as an owner does: what is torn goes.
fn act(store: &mut Store, lost: &Lost) {
    for key in &lost.torn {
        let mut txn = Transaction::new();
        txn.remove(key);
        store.submit(txn, Token(1)).unwrap();
    }
    settle(store).unwrap();
    store.settle_lost().unwrap();
}

#[test]
fn damaged_leaves_are_cut_out_and_nothing_else_is_lost() {
    let disk = filled();
    for kind in ["'objects'", "'pairs'"] {
        let all = by_kind(&disk, kind);
        assert!(all.len() > 10, "{kind}: {}", all.len());
        let mut objects = 0;
        for (page, at) in all.into_iter().step_by(3) {
            let disk = disk.copied(2);
            disk.flip_bit(at + 99, 5);
            let sound = mend_on(&io(&disk), &[page + 1]).unwrap();
            assert!(sound.lost.is_empty(), "that page is sound");
            if kind == "'pairs'" && !can_be_cut(&disk, page) {
                continue; // It has records, too.
            }
            let mended = mend_on(&io(&disk), &[page]).unwrap();
            assert_eq!(mended.lost.len(), 1);
            let mut store = open(&disk).unwrap();
            let lost = store.lost().unwrap().unwrap();
            assert_eq!(lost.ranges.is_empty(), kind == "'pairs'");
            let mut count = 0;
            for i in 0..OBJECTS {
                let found = lookup(&mut store, &key(i)).unwrap();
                if is_lost(&lost, &key(i)) {
                    count += 1;
                    continue;
                }
                assert_eq!(found, Some(info(i).into()), "page {page}");
                if i.is_multiple_of(WITH_OMAP) {
                    assert_eq!(omap(&mut store, &key(i)).unwrap(), pairs(i), "page {page}");
                }
            }
            assert!(count > 0 && count < 60, "page {page}: {count}");
            objects += count;
            assert_eq!(records(&mut store).unwrap().len(), RECORDS);
            act(&mut store, &lost);
            drop(store);
            let report = fsck_on(&io(&disk), None, Depth::Deep);
            assert!(report.is_clean() && !report.notes.is_empty(), "{report}");
            // All can be made again.
            let mut store = open(&disk).unwrap();
            assert_eq!(store.lost().unwrap(), None);
            for i in (0..OBJECTS).filter(|i| is_lost(&lost, &key(*i))) {
                assert_eq!(lookup(&mut store, &key(i)).unwrap(), None);
                let mut txn = Transaction::new();
                txn.write(&key(i), 0, Bytes::from(vec![1; 5000]))
                    .set_info(&key(i), info(i));
                if i.is_multiple_of(WITH_OMAP) {
                    let (key, pairs) = (key(i), pairs(i));
                    txn.push(Op::OmapSet { key, pairs });
                }
                store.submit(txn, Token(1)).unwrap();
            }
            settle(&mut store).unwrap();
            assert_eq!(check(&mut store).0, []);
            drop(store);
            let mut store = open(&disk).unwrap();
            assert_eq!(read_all(&mut store).unwrap(), 0);
        }
        assert!(objects >= OBJECTS / WITH_OMAP / 4, "{kind}: {objects}");
    }
}

/// Whether a damaged page of pairs has no records.
fn can_be_cut(disk: &SimDisk, page: u64) -> bool {
    match mend_on(&io(&disk.copied(4)), &[page]) {
        Ok(_) => true,
        Err(StoreError::Ruined { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn what_all_depends_on_is_not_cut_out() {
    let disk = filled();
    let all = by_kind(&disk, "vital");
    assert!(all.len() > 10);
    for (page, at) in all {
        let disk = disk.copied(2);
        disk.flip_bit(at + 99, 5);
        let refused = mend_on(&io(&disk), &[page]);
        assert!(
            matches!(refused, Err(StoreError::Ruined { .. })),
            "page {page}: {refused:?}"
        );
    }
}

fn contents(store: &mut Store, key: &ObjectKey) -> Option<Bytes> {
    let read = store.read(key, 0, u64::MAX, Way::Cached, Token(4)).unwrap();
    let found = match read {
        Read::Ready(found) => found,
        Read::Pending => wait(store, |e| match e {
            Event::Read(_, found) => Some(found),
            _ => None,
        })
        .unwrap(),
    };
    match found {
        Ok(found) => Some(found),
        Err(StoreError::NoObject(_)) => None,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn the_log_is_replayed_over_what_is_lost() {
    let disk = filled();
    let pages = by_kind(&disk, "'objects'");
    let mut store = open(&disk).unwrap();
    // Changes that the log alone has: in place, of copies, of objects that become others.
    let copy = |i: usize| ObjectKey::from(format!("copy-{i:05}").as_str());
    let is_changed = |i: usize| i.is_multiple_of(3);
    for i in (0..OBJECTS).filter(|i| is_changed(*i)) {
        let mut txn = Transaction::new();
        txn.write(&key(i), 100, Bytes::from(vec![9; 300]))
            .set_info(&key(i), vec![9; 50]);
        let (from, to) = (key(i), copy(i));
        match i % 4 {
            0 => drop(txn.push(Op::Clone {
                from,
                to,
                pairs: i.is_multiple_of(40),
            })),
            1 => drop(txn.push(Op::Move { from, to })),
            _ => {}
        }
        store.submit(txn, Token(i as u64)).unwrap();
    }
    let mut events = Vec::new();
    while !events.iter().any(|e| matches!(e, Event::Committed(Token(498)))) {
        store.poll(&mut events);
    }
    assert_eq!(store.checkpoints(), 0);
    drop(store);
    let expected = |i: usize| {
        let mut data = vec![1; 5000];
        if is_changed(i) {
            data[100..400].fill(9);
        }
        data
    };
    let mut found = 0;
    for (page, at) in pages.into_iter().step_by(3) {
        let disk = disk.copied(2);
        disk.flip_bit(at + 99, 5);
        match open(&disk) {
            Err(StoreError::Ruined { pages, .. }) => assert_eq!(pages[..], [page]),
            other => panic!("{:?}", other.err()),
        }
        mend_on(&io(&disk), &[page]).unwrap();
        let mut store = open(&disk).unwrap();
        let lost = store.lost().unwrap().unwrap();
        assert!(!lost.torn.is_empty());
        act(&mut store, &lost);
        for i in 0..OBJECTS {
            let is = |kinds: [usize; 2]| is_changed(i) && kinds.contains(&(i % 4));
            for (key, is_there) in [(key(i), !is([1, 1])), (copy(i), is([0, 1]))] {
                let contents = contents(&mut store, &key);
                let is_right = contents.as_deref() == Some(&expected(i)[..]) && is_there
                    || contents.is_none() && !is_there;
                assert!(
                    is_right || is_lost(&lost, &key) && contents.is_none(),
                    "page {page}: {key}"
                );
                found += usize::from(contents.is_some());
            }
        }
        drop(store);
        let report = fsck_on(&io(&disk), None, Depth::Deep);
        assert!(report.is_clean(), "{report}");
    }
    assert!(found > 5000, "{found}");
}

#[test]
fn power_cuts_while_damage_is_cut_out_do_no_more_harm() {
    let disk = filled();
    let (page, at) = by_kind(&disk, "'objects'")[5];
    for cut in (0..).step_by(3) {
        let disk = disk.copied(2);
        disk.flip_bit(at + 99, 5);
        disk.arm(Fault {
            cut_after: Some(cut),
            ..Fault::default()
        });
        let mended = mend_on(&io(&disk), &[page]);
        let disk = disk.power_cycle(cut);
        let lost = mend_on(&io(&disk), &[page]).unwrap().lost.len();
        let mut store = open(&disk).unwrap();
        assert!(
            lost == 1 || mended.is_ok() || store.lost().unwrap().is_some(),
            "after {cut}"
        );
        let lost = store.lost().unwrap().unwrap();
        act(&mut store, &lost);
        let missing = (0..OBJECTS).filter(|i| lookup(&mut store, &key(*i)).unwrap().is_none());
        assert!(missing.count() < 40);
        drop(store);
        assert!(fsck_on(&io(&disk), None, Depth::Deep).is_clean());
        if mended.is_ok() {
            break;
        }
    }
}

#[test]
fn a_store_that_is_made_anew_is_empty_and_the_same() {
    let disk = filled();
    let store = open(&disk).unwrap();
    let before = store.superblock().clone();
    drop(store);
    for cut in (0..).step_by(5) {
        let disk = disk.copied(2);
        disk.arm(Fault {
            cut_after: Some(cut),
            ..Fault::default()
        });
        let done = remake_on(&io(&disk), None).is_ok();
        let disk = disk.power_cycle(cut);
        match open(&disk) {
            Ok(mut store) => {
                let left = (0..OBJECTS)
                    .filter(|i| lookup(&mut store, &key(*i)).unwrap().is_some())
                    .count();
                assert!(left == 0 || left == OBJECTS && !done, "after {cut}: {left}");
            }
            Err(e) => assert!(
                matches!(e, StoreError::Ruined { .. }) && !done,
                "after {cut}: {e}"
            ),
        }
        remake_on(&io(&disk), None).unwrap();
        let mut store = open(&disk).unwrap();
        let sb = store.superblock();
        assert_eq!(
            (sb.fsid, sb.osd_uuid, sb.whoami, sb.blocks, sb.log_blocks),
            (
                before.fsid,
                before.osd_uuid,
                before.whoami,
                before.blocks,
                before.log_blocks
            )
        );
        assert!(sb.mounts > before.mounts);
        assert_eq!(
            (store.statfs().objects, records(&mut store).unwrap().len()),
            (0, 0)
        );
        drop(store);
        let report = fsck_on(&io(&disk), None, Depth::Deep);
        assert!(report.is_clean(), "{report}");
        if done {
            break;
        }
    }
}
