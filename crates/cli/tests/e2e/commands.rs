//! Daemons' and monitors' answers to commands that programs written for Ceph depend on: the answers
//! are those of Ceph 16.2.15.

use crate::common::{Cluster, binary};

const SAYS: &str = include_str!("../data/says.sh");
const SOCKETS: &str = include_str!("../data/sockets.sh");
const COMMANDS: &str = include_str!("../data/commands.sh");
const DAEMONS: &str = include_str!("../data/daemons.sh");

#[test]
fn answers_are_those_of_ceph() {
    let c = Cluster::up("commands", 3, &[]);
    c.sh(SOCKETS);
    c.sh(&format!("{SAYS}{COMMANDS}"));
    c.sh(&format!("{SAYS}{DAEMONS}"));
}

/// The output for shells, `man` and people at a terminal.
#[test]
fn the_command_line_tells_of_itself() {
    let dir = std::env::temp_dir().join(format!("spirula-tells-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let script = include_str!("../data/tells.sh");
    let mut command = std::process::Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(&dir);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    command.env("SPIRULA", binary()).env("SOURCE", source);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", crate::common::output(&out));
    std::fs::remove_dir_all(&dir).unwrap();
}
