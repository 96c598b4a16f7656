//! Answers of a real cluster to capability texts, recorded from `ceph auth add` on Ceph 16.2.15.

use spirula_cephx::caps::validate;

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\\\", "\\")
}

#[test]
fn accepts_and_refuses_what_a_real_cluster_does_with_the_same_words() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in include_str!("data/caps.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let fields: Vec<&str> = line.split('\t').collect();
        let [service, text, _, error] = fields[..] else {
            panic!("{line}")
        };
        let got = validate(service, &unescape(text))
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        if got != unescape(error) {
            wrong.push(format!("{line}\n   got: {got}"));
        }
        seen += 1;
    }
    assert!(
        wrong.is_empty(),
        "{} of {seen}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(seen > 300);
}
