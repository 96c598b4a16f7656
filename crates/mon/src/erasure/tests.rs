//! Profiles as texts; what the official monitor says of many more is in `core/tests/erasure.rs`.

use super::{Profile, merged, normalise, parse_words, read};

const DEFAULT: &str = "plugin=jerasure technique=reed_sol_van k=2 m=2";

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn refusal(text: &str) -> (i32, String) {
    let reply = normalise(&mut parse_words(text), false).unwrap_err();
    (-reply.code, reply.status)
}

#[test]
fn the_default_profile_is_merged_by_its_plugin() {
    let shown = |text: &str| super::braces(&merged(DEFAULT, &words(text)).unwrap());
    assert_eq!(shown("k=4"), "{k=4,m=2,plugin=jerasure,technique=reed_sol_van}");
    assert_eq!(
        shown("plugin=jerasure k=4"),
        "{k=4,m=2,plugin=jerasure,technique=reed_sol_van}"
    );
    assert_eq!(shown("plugin=isa k=4"), "{k=4,plugin=isa}");
    assert_eq!(shown("plugin"), "{plugin=}");
}

#[test]
fn numbers_that_the_official_monitor_does_not_survive_are_refused() {
    for (text, why) in [
        (
            "plugin=jerasure technique=liberation m=3",
            "liberation: m=3 must be 2 for liberation: revert to 2",
        ),
        (
            "plugin=jerasure technique=blaum_roth m=1",
            "blaum_roth: m=1 must be 2 for blaum_roth: revert to 2",
        ),
        (
            "plugin=jerasure technique=cauchy_good packetsize=0 stripe_unit=4096",
            "a stripe unit of 4096 bytes cannot be laid out",
        ),
        (
            "plugin=lrc k=65534 m=2 l=2",
            "k, m and l must be at most 255 and not 65534 in {k=65534,l=2,m=2,plugin=lrc}",
        ),
        (
            "plugin=isa stripe_unit=0",
            "a stripe unit of 0 bytes cannot be laid out",
        ),
        (
            "plugin=isa stripe_unit=16E",
            "could not parse stripe_unit '16E': strict_iecstrtoll: value seems to be too large",
        ),
        (
            "plugin=isa stripe_unit=4E",
            "a stripe unit of 4611686018427387904 bytes cannot be laid out",
        ),
    ] {
        assert_eq!(refusal(text), (22, why.to_owned()), "{text}");
    }
}

#[test]
fn numbers_out_of_all_bounds_do_no_harm() {
    let numbers = ["-2147483648", "-1", "0", "1", "2", "254", "65536", "2147483647"];
    for plugin in ["jerasure", "isa", "lrc", "shec", "clay"] {
        for k in numbers {
            for m in numbers {
                for (name, value) in numbers
                    .iter()
                    .flat_map(|n| ["w", "d", "l", "c", "packetsize"].map(|p| (p, n)))
                {
                    for technique in ["", "liberation", "cauchy_good", "liber8tion", "single"] {
                        let text = format!("plugin={plugin} k={k} m={m} {name}={value} stripe_unit=4096");
                        let mut profile: Profile = parse_words(&text);
                        if !technique.is_empty() {
                            profile.insert("technique".to_owned(), technique.to_owned());
                        }
                        if let Ok(code) = normalise(&mut profile, true) {
                            assert!(code.data >= 1 && code.chunks > code.data, "{text}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_normalised_profile_stays_as_it_is() {
    for text in [
        DEFAULT,
        "plugin=isa",
        "plugin=shec",
        "plugin=clay k=6 m=3",
        "plugin=lrc k=4 m=2 l=3",
        "plugin=jerasure technique=liberation",
    ] {
        let mut profile = parse_words(text);
        let code = normalise(&mut profile, false).unwrap();
        let once = profile.clone();
        assert_eq!(read(&mut profile).unwrap(), code, "{text}");
        assert_eq!(profile, once, "{text}");
    }
}

#[test]
fn layers_may_end_with_a_comma_and_hold_strings_with_brackets() {
    let mut profile = Profile::from(
        [
            ("plugin", "lrc"),
            ("mapping", "__DD__DD"),
            (
                "layers",
                r#"[[ "_cDD_cDD", "" ],[ "cDDD____", "" ],[ "____cDDD", "" ],] "#,
            ),
            (
                "crush-steps",
                r#"[ [ "choose", "rack", 2 ], [ "chooseleaf", "host", 4 ] ]"#,
            ),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    let code = read(&mut profile).unwrap();
    assert_eq!((code.data, code.chunks, code.min_size()), (4, 8, 5));
    assert!(code.is_local());
    assert_eq!(
        super::json::read(r#"["a,]", "\",]",]"#).unwrap().to_string(),
        r#"["a,]","\",]"]"#
    );
    // A layer made of layers would have no end.
    profile.insert("layers".into(), r#"[["_cDD_cDD","plugin=lrc"]]"#.into());
    assert_eq!(read(&mut profile).unwrap_err().code, -22);
}
