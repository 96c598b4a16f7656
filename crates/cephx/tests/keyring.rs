//! Keyrings as `ceph-authtool` 16.2.15 writes and reads them.

use proptest::prelude::*;
use spirula_cephx::Keyring;

/// Written by `ceph-authtool`.
const OFFICIAL: &str = "[mon.]
\tkey = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==
\tcaps mon = \"allow *\"
[mds.x]
\tkey = AQDVwAFrEaMQExAABIUTd7XeLKPQ2C+oVMlxWQ==
[osd.0]
\tkey = AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g==
\tcaps mon = \"profile osd\"
\tcaps osd = \"allow *\"
[client.a.b]
\tkey = AQDVwAFrN7rzEBAAx9Hjkze3RmZLHL1jGQhIJw==
[client.admin]
\tkey = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==
\tcaps mon = \"allow *\"
\tcaps osd = \"allow rwx pool=\\\"a b\\\"\"
[mgr.x]
\tkey = AQDVwAFrAmoEEhAA8KNT/L7KeYUuskPr98iBLQ==
";

#[test]
fn official_text_round_trips() {
    let ring = Keyring::parse(OFFICIAL).unwrap();
    assert_eq!(ring.to_string(), OFFICIAL);
    assert_eq!(
        ring.entries[&"client.admin".parse().unwrap()].caps["osd"],
        "allow rwx pool=\"a b\""
    );
    assert!(!format!("{ring:?}").contains("AQ"));
}

/// The texts that were given to `ceph-authtool -l`, with what it printed.
#[test]
fn reads_what_the_official_tool_reads() {
    let key = "key = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==";
    let read = [
        (
            "[client.x]\nkey=AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==\ncaps   mon = allow \\\n  r ; comment\n \
             caps_osd = \"allow rw \\\"pool\\\" x\"\ncaps mds = 'allow' # c\n[client.x]\n\
             key=AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g==\n",
            "[client.x]\n\tkey = AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g==\n\tcaps mds = \"allow\"\n\tcaps mon = \"allow   \
             r\"\n\tcaps osd = \"allow rw \\\"pool\\\" x\"\n",
        ),
        (
            "[client.z]\n\tcaps mon = \"allow command \\\\\\\\ x\"  \n",
            "[client.z]\n\tkey = AAAAAAAAAAAAAAAA\n\tcaps mon = \"allow command \\\\ x\"\n",
        ),
        (
            &format!("[client.x]\r\n\t{key}\r\n"),
            &format!("[client.x]\n\t{key}\n"),
        ),
        (
            &format!("# c\n\n[global]\nfoo = bar\n[client.x]\n\t{key}\nauid = 5\n"),
            &format!("[client.x]\n\t{key}\n"),
        ),
        (
            "[client.z]\n\tcaps mon = \n",
            "[client.z]\n\tkey = AAAAAAAAAAAAAAAA\n\tcaps mon = \"\"\n",
        ),
        ("[client.z]\n", ""),
        ("", ""),
    ];
    for (text, printed) in read {
        assert_eq!(
            Keyring::parse(text).map(|k| k.to_string()).as_deref(),
            Ok(printed),
            "{text}"
        );
    }
}

#[test]
fn refuses_what_the_official_tool_refuses() {
    for text in [
        "[ client.y ]\nkey = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==\n",
        "[client.x]\n\tfoo = 1\n",
        "[foo]\nkey = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==\n",
        "[client.x]\n\tcaps mon = \"allow r\" junk\n",
        "[client.x]\n\tcaps mon = \"allow r\n",
        "[client.z]\n\tkey = AQBmvwFrMmLZE\n",
        "[client.z]\n\tkey = \n",
        "[client.x]\n\tpending key = AQBmvwFrMmLZExAA2aeMOgyZehr/bN95/qO+0A==\n",
        "[client.z] junk\n\tcaps mon = r\n",
        "[client.z]\n\tcaps mon r\n",
        "[client.z\n",
    ] {
        let error = Keyring::parse(text).expect_err(text).to_string();
        assert!(!error.contains("AQ"), "an error shows a key: {error}");
    }
}

proptest! {
    #[test]
    fn the_parser_does_not_panic(text in "[\\[\\]a-z.=\"'\\\\#; \t\n_]{0,80}") {
        let _ = Keyring::parse(&text);
    }
}
