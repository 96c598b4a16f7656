//! Builds the commit's id into the binary: that of the git repository around the source, or of
//! `SPIRULA_COMMIT`. A tarball has neither.

use std::process::Command;

/// The first line of git's output; `None` without git, a repository or output.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (out.status.success() && !line.is_empty()).then_some(line)
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SPIRULA_COMMIT");
    // A tarball may lie in somebody else's repository.
    let root = git(&["ls-files", "--error-unmatch", "Cargo.toml"]);
    let commit = match std::env::var("SPIRULA_COMMIT") {
        Ok(commit) if !commit.is_empty() => Some(commit),
        _ => root.and_then(|_| git(&["rev-parse", "--short=12", "HEAD"])),
    };
    // Every commit and checkout is noted there.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|l| std::path::Path::new(l).exists())
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version,
    };
    println!("cargo:rustc-env=SPIRULA_VERSION={version}");
}
