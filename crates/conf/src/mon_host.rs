//! The `mon_host` option.

use spirula_denc::{AddrType, EntityAddr};

/// The default port of monitors for msgr2.
const MSGR2_PORT: u16 = 3300;

/// The msgr2 addresses in a `mon_host` value: `10.0.0.1`, `10.0.0.1:3300`, `v2:10.0.0.1:3300/0` and
/// `[v2:…,v1:…]`, separated by commas, semicolons or spaces. msgr1 addresses are left out, as are
/// host names.
pub fn parse_mon_host(text: &str) -> Vec<EntityAddr> {
    let mut out = Vec::new();
    let is_group = |c: char| c == ',' || c == ';' || c.is_whitespace();
    for word in text.split(is_group).filter(|w| !w.is_empty()) {
        let word = word
            .strip_prefix("[v")
            .map_or(word.to_owned(), |rest| format!("v{rest}"));
        // A closing bracket of a group, not of an IPv6 address, ends the word without a matching
        // opening one.
        let group_ends = word.matches(']').count() > word.matches('[').count();
        let word = word.strip_suffix(']').filter(|_| group_ends).unwrap_or(&word);
        let Ok(mut addr) = word.parse::<EntityAddr>() else {
            continue;
        };
        if addr.kind == AddrType::LEGACY {
            continue;
        }
        addr.kind = AddrType::MSGR2;
        if let Some(socket) = addr.socket.as_mut().filter(|s| s.port() == 0) {
            socket.set_port(MSGR2_PORT);
        }
        out.push(addr);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_official_form_is_read() {
        let shown = |t: &str| {
            parse_mon_host(t)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(shown("10.0.0.1"), ["v2:10.0.0.1:3300/0"]);
        assert_eq!(
            shown("[v2:127.0.0.1:43300,v1:127.0.0.1:46789]"),
            ["v2:127.0.0.1:43300/0"]
        );
        assert_eq!(
            shown("v2:10.0.0.1:1/0, 10.0.0.2:5"),
            ["v2:10.0.0.1:1/0", "v2:10.0.0.2:5/0"]
        );
        assert_eq!(
            shown("[v2:[::1]:3300/0,v1:[::1]:6789/0] [fe80::1]"),
            ["v2:[::1]:3300/0", "v2:[fe80::1]:3300/0"]
        );
        assert_eq!(shown("[v2:[::1]:3300/0]"), ["v2:[::1]:3300/0"]);
        assert_eq!(shown("[v1:[::1]:6789,v2:[::1]:3300]"), ["v2:[::1]:3300/0"]);
    }
}
