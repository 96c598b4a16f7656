//! What daemons and monitors answer to commands, where programs that were written for Ceph found it different: the answers are
//! those of Ceph 16.2.15.

use crate::common::Cluster;

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
