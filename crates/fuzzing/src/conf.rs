//! Configuration files.

use spirula_conf::{ConfFile, parse_mon_host, parse_size};

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(conf) = ConfFile::parse(&text) {
        for name in ["client.admin", "osd.0", "mon.a", ""] {
            let all = conf.all_for(name);
            for key in all.keys().take(16) {
                let _ = conf.get(name, key);
            }
            if let Some(hosts) = conf.get(name, "mon_host") {
                parse_mon_host(&hosts);
            }
        }
        let _ = conf.in_section("global", "fsid");
    }
    parse_mon_host(&text);
    let _ = parse_size(&text);
}
