use serde_json::{Value, json};
use spirula_maps::PoolId;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn counts(pool: PoolId, nspace: &str, id: &str, writes: u64) -> Counts {
    Counts {
        pool,
        nspace: nspace.into(),
        id: id.into(),
        write_ops: writes,
        write_bytes: writes * 4096,
        write_latency: writes * 1_000_000,
        ..Counts::default()
    }
}

/// Queries of two OSDs.
#[derive(Default)]
struct World {
    io: ImageIo,
    polls: Vec<ImageIoPoll>,
    asked: Vec<ImagesToName>,
}

impl World {
    fn tick(&mut self, now: Duration) {
        for action in self.io.tick(now, || BTreeSet::from([0, 1].map(OsdId::new))) {
            match action {
                Action::Poll(osds, poll) => {
                    assert_eq!(osds, BTreeSet::from([0, 1].map(OsdId::new)));
                    self.polls.push(poll);
                }
                Action::Name(unnamed) => self.asked.push(unnamed),
            }
        }
    }

    /// Runs the round that is due at this time, with the first OSD's counts.
    fn round(&mut self, now: Duration, images: Vec<Counts>) {
        let before = self.polls.len();
        self.tick(now);
        assert_eq!(self.polls.len(), before + 1, "no round was due");
        let round = self.polls[before].round;
        self.io.answer(OsdId::new(0), ImageIoCounts { round, images });
        let images = Vec::new();
        self.io.answer(OsdId::new(1), ImageIoCounts { round, images });
        self.tick(now + Duration::from_millis(250));
    }

    /// Names the images after their ids.
    fn name_all(&mut self) {
        for unnamed in std::mem::take(&mut self.asked) {
            let names = unnamed.ids.iter().map(|id| (id.clone(), format!("image-{id}")));
            self.io.named(&unnamed, &names.collect());
        }
    }

    fn report(&self, scope: &Scope, kind: Kind, sort_by: usize) -> Value {
        let pools = BTreeMap::from(
            [(1, "p".to_owned()), (2, "q".to_owned())].map(|(id, name)| (PoolId::new(id), name)),
        );
        self.io.report(scope, kind, sort_by, &pools, 1000)
    }
}

fn pool(id: u32) -> Scope {
    Scope::Pool(PoolId::new(id), String::new())
}

#[test]
fn rates_and_sums_come_after_a_period_and_go_with_the_work() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.round(at(0), vec![counts(PoolId::new(1), "", "a", 7)]);
    assert_eq!(w.polls[0].pools, [1].map(PoolId::new));
    // Counts from before the first round are of an unknown time.
    let nothing = json!({
        "timestamp": 1000.0, "stat_descriptors": DESCRIPTORS, "pool_descriptors": {}, "stats": [],
    });
    assert_eq!(w.report(&pool(1), Kind::Stats, 0), nothing);
    w.tick(at(4));
    w.round(
        at(5),
        vec![
            counts(PoolId::new(1), "", "a", 50),
            counts(PoolId::new(1), "n", "b", 5),
        ],
    );
    // Nobody knows the name yet.
    assert_eq!(w.report(&pool(1), Kind::Stats, 0), nothing);
    w.name_all();
    let report = w.report(&pool(1), Kind::Stats, 0);
    assert_eq!(report["pool_descriptors"], json!({"0": "p"}));
    // 10 writes a second, each of a millisecond.
    assert_eq!(
        report["stats"],
        json!([{"0/image-a": [10.0, 0.0, 40960.0, 0.0, 1_000_000.0, 0.0]}])
    );
    w.round(at(10), vec![counts(PoolId::new(1), "", "a", 10)]);
    w.round(at(15), Vec::new());
    assert_eq!(w.report(&pool(1), Kind::Stats, 0)["stats"], json!([]));
    assert_eq!(
        w.report(&pool(1), Kind::Counters, 0)["counters"],
        json!([{"0/image-a": [60, 0, 245_760, 0, 60_000_000, 0]}])
    );
}

#[test]
fn all_pools_are_told_of_in_the_order_of_what_they_do_now() {
    let mut w = World::default();
    w.io.ask(&Scope::All, at(0));
    w.round(at(0), Vec::new());
    assert!(w.polls[0].pools.is_empty());
    let few = counts(PoolId::new(1), "", "few", 1);
    let large = Counts {
        write_bytes: 1 << 30,
        ..counts(PoolId::new(2), "", "large", 2)
    };
    let unlisted = counts(PoolId::new(3), "", "unlisted", 5);
    w.round(
        at(5),
        vec![few, large, counts(PoolId::new(2), "n", "many", 1000), unlisted],
    );
    w.name_all();
    let names = |sort_by| -> Vec<String> {
        let report = w.report(&Scope::All, Kind::Stats, sort_by);
        let stats = report["stats"].as_array().unwrap().clone();
        let name = |s: &Value| s.as_object().unwrap().keys().next().unwrap().clone();
        stats.iter().map(name).collect()
    };
    assert_eq!(names(0), ["0/image-many", "1/image-large", "2/image-few"]);
    assert_eq!(names(2), ["0/image-large", "1/image-many", "2/image-few"]);
    let specs = &w.report(&Scope::All, Kind::Stats, 0)["pool_descriptors"];
    assert_eq!(specs, &json!({"0": "q/n", "1": "q", "2": "p"}));
}

#[test]
fn a_query_ends_a_minute_after_the_last_request() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.io.ask(&pool(2), at(0));
    w.tick(at(0));
    assert_eq!(w.polls[0].pools, [1, 2].map(PoolId::new));
    w.io.ask(&pool(2), at(30));
    w.tick(at(61));
    assert_eq!(w.polls.last().unwrap().pools, [2].map(PoolId::new));
    let polls = w.polls.len();
    w.tick(at(91));
    w.tick(at(100));
    assert_eq!(w.polls.len(), polls);
    assert!(w.io.queries.is_empty() && w.io.names.get(&key("a")).is_none());
}

fn key(id: &str) -> ImageKey {
    ImageKey {
        pool: PoolId::new(1),
        nspace: String::new(),
        id: id.into(),
    }
}

#[test]
fn a_new_query_does_not_wait_for_the_period() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.round(at(0), Vec::new());
    w.io.ask(&pool(2), at(2));
    w.round(at(2), Vec::new());
    assert_eq!(w.polls[1].pools, [1, 2].map(PoolId::new));
    // But not at once after another round.
    w.io.ask(&Scope::All, at(2));
    w.tick(at(2));
    assert_eq!(w.polls.len(), 2);
    w.round(at(3), Vec::new());
}

#[test]
fn who_does_not_answer_is_not_waited_for() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.round(at(0), Vec::new());
    w.tick(at(5));
    let round = w.polls[1].round;
    let images = vec![counts(PoolId::new(1), "", "a", 5)];
    w.io.answer(OsdId::new(0), ImageIoCounts { round, images });
    w.tick(at(5) + Duration::from_millis(500));
    assert!(w.asked.is_empty());
    w.tick(at(6));
    assert_eq!(w.asked.len(), 1);
    // A late answer counts in the next round.
    let images = vec![counts(PoolId::new(1), "", "a", 10)];
    w.io.answer(OsdId::new(1), ImageIoCounts { round, images });
    w.round(at(10), Vec::new());
    w.name_all();
    let sums = w.report(&pool(1), Kind::Counters, 0);
    assert_eq!(sums["counters"][0]["0/image-a"][0], json!(15));
}

#[test]
fn names_are_asked_once_and_again_later_and_who_has_none_is_forgotten() {
    let mut w = World::default();
    let ask = |w: &mut World, now| w.io.ask(&pool(1), now);
    ask(&mut w, at(0));
    w.round(at(0), Vec::new());
    let both = || {
        vec![
            counts(PoolId::new(1), "", "a", 5),
            counts(PoolId::new(1), "", "b", 5),
        ]
    };
    w.round(at(5), both());
    w.round(at(10), both());
    let unnamed = ImagesToName {
        pool: PoolId::new(1),
        namespace: String::new(),
        ids: vec!["a".into(), "b".into()],
    };
    assert_eq!(w.asked, std::slice::from_ref(&unnamed));
    w.io.named(&unnamed, &BTreeMap::from([("a".into(), "first".into())]));
    w.asked.clear();
    let listed = |w: &World| w.report(&pool(1), Kind::Counters, 0)["counters"].to_string();
    assert_eq!(listed(&w), r#"[{"0/first":[10,0,40960,0,10000000,0]}]"#);
    for s in (15..=310).step_by(5) {
        ask(&mut w, at(s));
        w.tick(at(s));
        w.tick(at(s) + Duration::from_secs(1));
    }
    assert_eq!(w.asked.len(), 1);
    assert_eq!(w.asked[0].ids, ["a"]);
    w.name_all();
    assert!(listed(&w).contains("0/image-a"), "{}", listed(&w));
}

#[test]
fn a_late_answer_to_an_older_round_does_not_end_the_newer_one() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.round(at(0), Vec::new());
    let old = w.polls[0].round;
    w.tick(at(5));
    for osd in [0, 1] {
        let images = Vec::new();
        w.io.answer(OsdId::new(osd), ImageIoCounts { round: old, images });
    }
    w.tick(at(5) + Duration::from_millis(250));
    let round = w.polls[1].round;
    for (osd, writes) in [(0, 20), (1, 30)] {
        let images = vec![counts(PoolId::new(1), "", "a", writes)];
        w.io.answer(OsdId::new(osd), ImageIoCounts { round, images });
    }
    w.tick(at(5) + Duration::from_millis(500));
    w.name_all();
    let report = w.report(&pool(1), Kind::Stats, 0);
    assert_eq!(report["stats"][0]["0/image-a"][0], 10.0);
}

#[test]
fn the_query_that_was_not_asked_for_longest_gives_way() {
    let mut w = World::default();
    let all = MAX_QUERIES as u32;
    for n in 0..all {
        w.io.ask(&pool(n), Duration::from_millis(n.into()));
    }
    w.io.ask(&pool(0), at(1));
    w.io.ask(&pool(all), at(1));
    w.tick(at(1));
    let expected: Vec<PoolId> = (0..=all).filter(|n| *n != 1).map(PoolId::new).collect();
    assert_eq!(w.polls[0].pools, expected);
}

#[test]
fn no_more_images_are_kept_than_there_may_be() {
    let mut w = World::default();
    w.io.ask(&pool(1), at(0));
    w.round(at(0), Vec::new());
    let image = |n: usize| counts(PoolId::new(1), "", &n.to_string(), 1);
    w.round(at(5), (0..2 * MAX_IMAGES).map(image).collect());
    w.round(at(10), [0, MAX_IMAGES, MAX_IMAGES + 1].map(image).to_vec());
    let images = &w.io.queries[&pool(1)].images;
    assert_eq!(images.len(), MAX_IMAGES);
    let key = |n: usize| ImageKey {
        pool: PoolId::new(1),
        nspace: String::new(),
        id: n.to_string(),
    };
    assert_eq!(images[&key(0)].sum[0], 2);
    assert!(!images.contains_key(&key(MAX_IMAGES)));
}
