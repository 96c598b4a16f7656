//! Formats of output.

use serde_json::Value;
use spirula_text::{Format, Names};

/// Bytes in a line of a dump.
const LINE: usize = 16;

/// A format by name.
pub(super) fn parse(name: Option<&str>) -> Option<Format> {
    match name {
        None | Some("plain") => Some(Format::Plain),
        Some("json" | "json-pretty" | "xml" | "xml-pretty") => Some(Format::parse(name)),
        Some(_) => None,
    }
}

/// Renders a tree named `root` in a format; elements of a root that is an array are called `item`.
/// Plain counts as JSON.
pub(super) fn render(format: Format, v: &Value, root: &str, item: &str) -> Vec<u8> {
    format.render_named(v, Names { root, item })
}

/// Bytes as text, for trees.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A dump in hexadecimal with 16 bytes in a line, their offset before and their characters behind,
/// as the official tools print it: of several lines of zeros in a row only the first is shown, but
/// the last line always is.
pub(super) fn hexdump(data: &[u8]) -> String {
    let mut out = String::new();
    let (mut zeros_before, mut starred) = (false, false);
    for (at, line) in (0..).step_by(LINE).zip(data.chunks(LINE)) {
        if at + LINE < data.len() {
            let zeros = line.iter().all(|b| *b == 0);
            if zeros && zeros_before {
                out.push_str(if starred { "" } else { "*\n" });
                starred = true;
                continue;
            }
            (zeros_before, starred) = (zeros, false);
        }
        out.push_str(&format!("{at:08x} "));
        for column in 0..LINE {
            out.push_str(if column % 8 == 0 { " " } else { "" });
            match line.get(column) {
                Some(byte) => out.push_str(&format!("{byte:02x} ")),
                None => out.push_str("   "),
            }
        }
        out.push_str(" |");
        let shown = |b: &u8| {
            if matches!(b, b' '..=b'~') {
                char::from(*b)
            } else {
                '.'
            }
        };
        out.extend(line.iter().map(shown));
        out.push_str("|\n");
    }
    if !data.is_empty() {
        out.push_str(&format!("{:08x}\n", data.len()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `rados getomapval` 16.2.15 prints it.
    #[test]
    fn hexadecimal_has_the_official_layout() {
        let data = [&b"hello world of keys"[..], &[0; 100], b"x\n"].concat();
        let expected = "\
00000000  68 65 6c 6c 6f 20 77 6f  72 6c 64 20 6f 66 20 6b  |hello world of k|
00000010  65 79 73 00 00 00 00 00  00 00 00 00 00 00 00 00  |eys.............|
00000020  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
*
00000070  00 00 00 00 00 00 00 78  0a                       |.......x.|
00000079
";
        assert_eq!(hexdump(&data), expected);
        assert_eq!(hexdump(&[]), "");
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(parse(None), Some(Format::Plain));
        assert_eq!(parse(Some("xml")), Some(Format::Xml));
        assert_eq!(parse(Some("yaml")), None);
        let v = serde_json::json!([{"name": "o"}]);
        let xml = render(Format::Xml, &v, "objects", "object");
        assert_eq!(xml, b"<objects><object><name>o</name></object></objects>");
        assert_eq!(
            render(Format::Plain, &v, "objects", "object"),
            b"[{\"name\":\"o\"}]"
        );
    }
}
