//! The place of an OSD in the CRUSH map: `crush_location`, `crush_location_hook`.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use super::section::Section;
use crate::error::Error;

/// A place: the name of the bucket of each type.
pub(super) type Location = BTreeMap<String, String>;

fn parse(text: &str) -> Option<Location> {
    let is_separator = |c: char| c == ',' || c == ';' || c.is_whitespace();
    let words = text.split(is_separator).filter(|w| !w.is_empty());
    let pair = |w: &str| {
        let (kind, name) = w.split_once('=')?;
        let sane = !kind.is_empty() && !name.is_empty() && !name.contains('=');
        sane.then(|| (kind.to_owned(), name.to_owned()))
    };
    words
        .map(pair)
        .collect::<Option<Location>>()
        .filter(|l| !l.is_empty())
}

/// The OSD's place: the configured one, or else the hook's, or else the host's own bucket under the
/// default root. A place that can't be parsed is an error: an OSD in the wrong place moves data for
/// nothing.
pub(super) async fn crush_location(section: &Section) -> Result<Location, Error> {
    if let Some(text) = section.get("crush_location") {
        return parse(&text)
            .ok_or_else(|| section.bad(format!("crush_location: {text:?} is not a list of TYPE=NAME")));
    }
    if let Some(hook) = section.get("crush_location_hook") {
        return ask(section, &hook).await;
    }
    let host = spirula_conf::hostname();
    Ok([("host", host.as_str()), ("root", "default")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into())
}

/// Runs the hook as Ceph's OSDs do.
async fn ask(section: &Section, hook: &str) -> Result<Location, Error> {
    let bad = |what: String| section.bad(format!("crush_location_hook {hook}: {what}"));
    let timeout = section
        .get("crush_location_hook_timeout")
        .and_then(|t| t.parse().ok())
        .unwrap_or(10);
    let run = tokio::process::Command::new(hook)
        .args(["--cluster", "ceph", "--id", section.id(), "--type", "osd"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let out = match tokio::time::timeout(Duration::from_secs(timeout), run).await {
        Err(_) => return Err(bad(format!("no answer within {timeout} s"))),
        Ok(out) => out.map_err(|e| bad(e.to_string()))?,
    };
    if !out.status.success() {
        return Err(bad(out.status.to_string()));
    }
    let said = String::from_utf8_lossy(&out.stdout);
    parse(&said).ok_or_else(|| bad(format!("{:?} is not a list of TYPE=NAME", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::super::section::test_section;
    use super::*;

    fn show(l: &Location) -> String {
        let pairs: Vec<String> = l.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(" ")
    }

    async fn located(text: &str) -> Result<String, String> {
        let found = crush_location(&test_section("osd.7", text)).await;
        found.map(|l| show(&l)).map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn places_are_read_in_every_official_form() {
        let host = spirula_conf::hostname();
        let ok = |t: &str| Ok(t.to_owned());
        assert_eq!(located("").await, ok(&format!("host={host} root=default")));
        let forms = [
            "root=default rack=r1 host=$host",
            "root=default, rack=r1;host=$host",
        ];
        for form in forms {
            let text = format!("crush_location = \"{form}\"");
            assert_eq!(
                located(&text).await,
                ok(&format!("host={host} rack=r1 root=default"))
            );
        }
        for bad in ["rack", "rack=", "=r", "a=b=c"] {
            let said = located(&format!("crush_location = {bad}")).await.unwrap_err();
            assert!(said.contains("is not a list of TYPE=NAME"), "{bad}: {said}");
        }
    }

    #[tokio::test]
    async fn a_hook_is_asked() {
        let hook = std::env::temp_dir().join(format!("spirula-hook-{}", std::process::id()));
        let write = |body: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&hook, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let conf = format!(
            "crush_location_hook = {}\ncrush_location_hook_timeout = 1",
            hook.display()
        );
        write("echo host=h$4 root=default");
        assert_eq!(located(&conf).await, Ok("host=h7 root=default".to_owned()));
        for (body, said) in [
            ("exit 3", "exit status: 3"),
            ("sleep 60", "no answer within 1 s"),
            ("echo x", "\"x\" is not"),
        ] {
            write(body);
            let refused = located(&conf).await.unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        std::fs::remove_file(hook).unwrap();
    }
}
