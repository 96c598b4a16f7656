//! `spirula rados` and the official `rados` side by side on the same cluster: the same output,
//! standard error and exit code for every command of `data/rados-commands.txt`, and the same
//! exported files.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Cluster, binary};

const COMMANDS: &str = include_str!("../data/rados-commands.txt");

/// One of the two tools with its pools and its directory.
struct Tool {
    program: PathBuf,
    first: &'static [&'static str],
    pools: [&'static str; 2],
    dir: PathBuf,
}

/// Exit code, output and standard error.
type Outcome = (i32, String, String);

impl Tool {
    fn new(c: &Cluster, program: PathBuf, first: &'static [&'static str], pools: [&'static str; 2]) -> Self {
        let dir = c.dir().join(pools[0]);
        std::fs::create_dir(&dir).unwrap();
        let files: [(&str, &[u8]); 4] = [
            ("in", b"hello\n"),
            ("key", b"a\x01"),
            ("zeros", &[0; 100]),
            ("name", b"n\x01\xffm"),
        ];
        for (name, content) in files {
            std::fs::write(dir.join(name), content).unwrap();
        }
        for pool in pools {
            c.sh(&format!("ceph osd pool create {pool} 1 1"));
        }
        Self {
            program,
            first,
            pools,
            dir,
        }
    }

    fn run(&self, c: &Cluster, line: &str) -> Outcome {
        let [p, q] = self.pools;
        let words = line.split_whitespace();
        // A command that hangs is a difference, not the end of the test.
        let out = Command::new("timeout")
            .arg("20")
            .arg(&self.program)
            .args(self.first)
            .args(words.map(|w| w.replace("$P", p).replace("$Q", q)))
            .env("CEPH_CONF", c.conf())
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).replace(p, "$P").replace(q, "$Q");
        (
            out.status.code().unwrap_or(-1),
            text(&out.stdout),
            text(&out.stderr),
        )
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.join(name)).unwrap()
    }
}

fn without_digits(text: &str) -> String {
    let digit = |c: char| if c.is_ascii_digit() { '9' } else { c };
    let mut out: Vec<char> = text.chars().map(digit).collect();
    out.dedup_by(|a, b| a == b && *a == '9');
    out.into_iter().collect()
}

fn comparable((code, out, err): Outcome, digits: bool) -> Outcome {
    // The official client logs it when it ends while it still connects to the manager.
    let is_log = |l: &&str| l.starts_with("20") && l.as_bytes().get(10) == Some(&b'T');
    let mut err: String = err.split_inclusive('\n').filter(|l| !is_log(l)).collect();
    // One of its threads may die when the tool has done its work and ends (with `--striper` it may
    // be the one that takes the library down, and would wait for itself): the exit code is that of
    // the work.
    let died = ["terminate called after", "*** Caught signal"];
    if let Some(at) = died
        .iter()
        .filter_map(|d| err.find(d))
        .min()
        .filter(|_| code == 0)
    {
        err.truncate(at);
    }
    // Our usage has words of its own.
    if err.to_lowercase().contains("usage") {
        return (code, String::new(), "usage".to_owned());
    }
    if digits {
        (code, out, err)
    } else {
        (code, without_digits(&out), without_digits(&err))
    }
}

#[test]
fn our_rados_answers_as_the_official_one() {
    let c = Cluster::up("rados-commands", 3, &[]);
    let official = Tool::new(&c, "rados".into(), &[], ["official-p", "official-q"]);
    let ours = Tool::new(&c, binary(), &["rados"], ["native-p", "native-q"]);
    let mut differences = Vec::new();
    for line in COMMANDS.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let digits = !line.starts_with('~');
        let command = line.trim_start_matches('~');
        let expected = comparable(official.run(&c, command), digits);
        let got = comparable(ours.run(&c, command), digits);
        if got != expected {
            differences.push(format!("{command}\n  official {expected:?}\n  ours     {got:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for file in ["dump", "dump2"] {
        assert!(official.file(file) == ours.file(file), "{file} differs");
    }
}
