//! The last words of a daemon: the cause of its end, from its log.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitStatus;

/// Bytes at a log's end that are searched.
const LOOKED_AT: u64 = 16 << 10;
/// The longest text that is shown, in characters.
const SHOWN: usize = 400;

/// The last words of the process that wrote to the log at `path` from the byte `since` on; the
/// status of its end if it wrote none.
pub(super) fn last(path: &Path, since: u64, status: Option<ExitStatus>) -> String {
    let silent = || match status {
        Some(status) => format!("{status}, without a word"),
        None => "it ended without a word".to_owned(),
    };
    match read(path, since) {
        Ok(text) => of_text(&text).unwrap_or_else(silent),
        Err(e) => format!("{}; its log can't be read: {e}", silent()),
    }
}

/// The last words in the log at `path`.
pub(super) fn latest(path: &Path) -> Option<String> {
    of_text(&read(path, 0).ok()?)
}

fn read(path: &Path, since: u64) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let end = file.metadata()?.len();
    let start = since.max(end.saturating_sub(LOOKED_AT));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LOOKED_AT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The error or panic that ended the daemon, or else the last line.
fn of_text(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let begins = |start: &str| lines.iter().rposition(|l| l.starts_with(start));
    let at = begins("Error: ")
        .or_else(|| begins("thread '"))
        .or(lines.len().checked_sub(1))?;
    let said = lines.get(at..)?.join(" ");
    let said = said.strip_prefix("Error: ").unwrap_or(&said);
    let mut shown: String = said.chars().take(SHOWN).collect();
    if shown.len() < said.len() {
        shown.push('…');
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_goes_before_what_else_was_said() {
        let of = |text: &str| of_text(text);
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(of(""), None);
        assert_eq!(of("one\ntwo\n\n"), some("two"));
        assert_eq!(
            of("Error: old\nx\nError: can't\nsecond line\n"),
            some("can't second line")
        );
        let panic = "thread 'main' (7) panicked at a.rs:1:2:\nbroken";
        assert_eq!(
            of(panic).as_deref(),
            Some("thread 'main' (7) panicked at a.rs:1:2: broken")
        );
        assert_eq!(of(&"x".repeat(2 * SHOWN)).unwrap().chars().count(), SHOWN + 1);
    }

    #[test]
    fn an_earlier_process_is_not_heard() {
        let path = std::env::temp_dir().join(format!("spirula-words-{}", std::process::id()));
        std::fs::write(&path, "Error: earlier\n").unwrap();
        assert_eq!(last(&path, 0, None), "earlier");
        assert_eq!(last(&path, 15, None), "it ended without a word");
        std::fs::remove_file(&path).unwrap();
        assert!(last(&path, 0, None).contains("can't be read"));
    }
}
