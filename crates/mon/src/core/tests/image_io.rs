//! The clients' I/O on block images, from the question to the answer.

use spirula_manager::{ImagesToName, News, Request};
use spirula_maps::PoolId;
use spirula_proto::internal::image_io::{ImageIo, ImageIoCounts, ImageIoPoll, ImageIoQuery, ImageIoReport};

use super::*;

/// Two OSDs and a pool of images, whose id is 1.
fn with_pool() -> World {
    let mut w = World::new();
    let admin = w.admin();
    (0..2).for_each(|o| w.boot(o));
    for json in [
        r#"{"prefix":"osd pool create","pool":"p","pg_num":4,"pgp_num":4}"#,
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#,
    ] {
        assert_eq!(w.command(admin, json).result, 0);
    }
    w.pass(Duration::from_secs(1));
    w
}

fn say(w: &mut World, what: &str) -> (i32, String, String) {
    let ack = w.command(1, &format!(r#"{{"prefix":"rbd perf image {what}}}"#));
    let text = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
    (ack.result, ack.status, text)
}

/// The questions that this OSD was asked.
fn polls(w: &mut World, osd: SessionId) -> Vec<ImageIoPoll> {
    let inbox = w.inbox.entry(100 + osd).or_default();
    let asked = inbox.iter().filter(|m| m.kind() == MsgType::IMAGE_IO_QUERY);
    let polls = asked.map(|m| m.decode::<ImageIoQuery>().unwrap());
    polls.map(|ImageIoQuery::Poll(poll)| poll).collect()
}

fn answer(w: &mut World, osd: SessionId, images: Vec<ImageIo>) {
    let round = polls(w, osd).last().unwrap().round;
    let counts = ImageIoCounts { round, images };
    w.send(100 + osd, ImageIoReport::Counts(counts).to_message());
}

#[test]
fn osds_are_asked_while_somebody_wants_to_know_and_the_answer_is_the_modules() {
    let mut w = with_pool();
    assert!(polls(&mut w, 0).is_empty());
    let (code, status, text) = say(&mut w, r#"stats","pool_spec":"p""#);
    assert_eq!((code, status.as_str()), (0, ""));
    let nothing = r#".0, "stat_descriptors": ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"], "pool_descriptors": {}, "stats": []}"#;
    assert!(
        text.starts_with(r#"{"timestamp": "#) && text.ends_with(nothing),
        "{text}"
    );
    assert_eq!(polls(&mut w, 0), polls(&mut w, 1));
    assert_eq!(polls(&mut w, 0)[0].pools, [1].map(PoolId::new));
    (0..2).for_each(|osd| answer(&mut w, osd, Vec::new()));
    w.pass(Duration::from_secs(5));
    for osd in 0..2 {
        let image = ImageIo {
            pool: PoolId::new(1),
            id: "abc".into(),
            write_ops: 5 * (osd + 1),
            write_bytes: 4096,
            ..ImageIo::default()
        };
        answer(&mut w, osd, vec![image]);
    }
    w.pass(Duration::from_secs(1));
    let wanted = ImagesToName {
        pool: PoolId::new(1),
        namespace: String::new(),
        ids: vec!["abc".into()],
    };
    let asked = w.asked.pop().unwrap();
    assert!(
        matches!(&asked, Request::NameImages(images) if *images == wanted),
        "{asked:?}"
    );
    let names = BTreeMap::from([("abc".to_owned(), "größe".to_owned())]);
    w.mon.module_news(News::Named(wanted, names), w.now);
    w.settle();
    let (_, _, text) = say(&mut w, r#"stats","pool_spec":"p","sort_by":"read_bytes""#);
    let some = r#""pool_descriptors": {"0": "p"}, "stats": [{"0/gr\u00f6\u00dfe": [3.0, 0.0, 1638.4, 0.0, 0.0, 0.0]}]}"#;
    assert!(text.ends_with(some), "{text}");
    let (_, _, text) = say(&mut w, r#"counters","pool_spec":"p""#);
    assert!(
        text.contains(r#""counter_descriptors": ["write_ops", "#),
        "{text}"
    );
    assert!(
        text.ends_with(r#""counters": [{"0/gr\u00f6\u00dfe": [15, 0, 8192, 0, 0, 0]}]}"#),
        "{text}"
    );
    w.pass(Duration::from_secs(70));
    let before = polls(&mut w, 0).len();
    w.pass(Duration::from_secs(20));
    assert_eq!(polls(&mut w, 0).len(), before);
}

#[test]
fn what_cannot_be_asked_is_refused_in_the_modules_words() {
    let mut w = with_pool();
    for (what, code, status) in [
        (
            r#"stats","pool_spec":"q""#,
            -2,
            "[errno 2] RADOS object not found (Pool 'q' not found)",
        ),
        (r#"stats","pool_spec":"p/n/i""#, -22, "Invalid pool spec: p/n/i"),
        (r#"counters","sort_by":"size""#, -22, "'size' is not in list"),
    ] {
        assert_eq!(
            say(&mut w, what),
            (code, status.to_owned(), String::new()),
            "{what}"
        );
    }
}

#[test]
fn only_osds_are_heard() {
    let mut w = with_pool();
    say(&mut w, r#"stats""#);
    (0..2).for_each(|osd| answer(&mut w, osd, Vec::new()));
    w.pass(Duration::from_secs(5));
    let round = polls(&mut w, 0).last().unwrap().round;
    let images = vec![ImageIo {
        pool: PoolId::new(1),
        id: "abc".into(),
        write_ops: 1,
        ..ImageIo::default()
    }];
    let counts = ImageIoCounts { round, images };
    w.send(1, ImageIoReport::Counts(counts).to_message());
    w.pass(Duration::from_secs(2));
    assert!(w.asked.is_empty(), "{:?}", w.asked);
}
