//! Small files of the kernel and the distribution, whose content is not trusted.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes that are read of a file.
const MAX_FILE: u64 = 64 << 10;

/// The length at which a value is cut.
const MAX_VALUE: usize = 256;

/// The beginning of a file; `None` if it can't be read. Invalid UTF-8 is replaced.
pub(crate) fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A value for display: trimmed, without control characters, and cut. `None` if nothing is left.
pub(crate) fn value(text: &str) -> Option<String> {
    let shown = text.chars().filter(|c| !c.is_control());
    let shown: String = shown.take(MAX_VALUE).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// A file of one value.
pub(crate) fn read_value(path: &Path) -> Option<String> {
    value(&read(path)?)
}

/// The value in the first line that begins with `key` and `separator`, with or without space around
/// them.
pub(crate) fn field(text: &str, key: &str, separator: char) -> Option<String> {
    let mut pairs = text.lines().filter_map(|l| l.split_once(separator));
    value(pairs.find(|(k, _)| k.trim() == key)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_contents_are_cut_and_cleaned() {
        let path = std::env::temp_dir().join(format!("spirula-text-{}", std::process::id()));
        std::fs::write(
            &path,
            [b"\xff\x00a\n\tb  ".as_slice(), &vec![b'x'; 1 << 20]].concat(),
        )
        .unwrap();
        assert_eq!(read(&path).unwrap().chars().count(), MAX_FILE as usize);
        let value = read_value(&path).unwrap();
        assert!(
            value.starts_with("\u{fffd}ab  xxx") && value.len() <= MAX_VALUE + 2,
            "{value}"
        );
        std::fs::write(&path, " \n\0").unwrap();
        assert_eq!(read_value(&path), None);
        assert_eq!(read(Path::new("/no/such/file")), None);
        assert_eq!(read(&std::env::temp_dir()), None, "a directory");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "no pair\nMemTotalX: 1\nMemTotal:   5 kB\nMemTotal: 6";
        assert_eq!(field(text, "MemTotal", ':').as_deref(), Some("5 kB"));
        assert_eq!(field(text, "Mem", ':'), None);
        assert_eq!(field("", "", ':'), None);
    }
}
