#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helper fails the test")]

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("spirula-files-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, "x").unwrap();
        set_mode(&path, mode);
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn append(path: &Path) -> Result<File, Error> {
    open(path, OpenOptions::new().create(true).append(true))
}

/// Gives a file to another user, as only root may; `false` where this is not root.
fn give_away(path: &Path) -> bool {
    const NOBODY: u32 = 65_534;
    rustix::fs::chownat(
        rustix::fs::CWD,
        path,
        Some(rustix::fs::Uid::from_raw(NOBODY)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .is_ok()
        && chown(path, Some(NOBODY), None).is_ok()
}

#[test]
fn files_are_made_closed_and_mended() {
    let place = Place::new();
    append(&place.at("new")).unwrap();
    assert_eq!(mode_of(&place.at("new")), 0o600);
    let open = place.file("open", 0o666);
    append(&open).unwrap();
    assert_eq!(mode_of(&open), 0o600);
}

#[test]
fn links_pipes_and_files_of_others_are_not_opened() {
    let place = Place::new();
    let target = place.file("target", 0o600);
    symlink(&target, place.at("link")).unwrap();
    assert!(matches!(append(&place.at("link")), Err(Error::Link(_))));
    symlink(place.at("none"), place.at("dangling")).unwrap();
    assert!(matches!(append(&place.at("dangling")), Err(Error::Link(_))));
    assert!(!place.at("none").exists());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.at("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let read = open(&place.at("pipe"), OpenOptions::new().read(true));
    assert!(matches!(read, Err(Error::NoFile(_))), "{read:?}");
    let theirs = place.file("theirs", 0o666);
    if give_away(&theirs) {
        let said = append(&theirs).unwrap_err().to_string();
        assert!(said.contains("theirs belongs to uid 65534"), "{said}");
    }
}

#[test]
fn directories_are_made_closed_and_mended_with_their_files() {
    let place = Place::new();
    assert_eq!(directory(&place.at("a/b")).unwrap(), Closed::default());
    for made in ["a", "a/b"] {
        assert_eq!(mode_of(&place.at(made)), 0o700);
    }
    set_mode(&place.at("a"), 0o755);
    let keyring = place.file("a/keyring", 0o644);
    let script = place.file("a/script", 0o755);
    let closed = place.file("a/closed", 0o600);
    let elsewhere = place.file("elsewhere", 0o644);
    symlink(&elsewhere, place.at("a/block")).unwrap();
    let first = directory(&place.at("a")).unwrap();
    assert_eq!(
        first,
        Closed {
            directory: true,
            files: 2
        }
    );
    assert_eq!(
        [&keyring, &script, &closed, &elsewhere].map(|p| mode_of(p)),
        [0o600, 0o700, 0o600, 0o644]
    );
    assert_eq!(directory(&place.at("a")).unwrap(), Closed::default());
}

#[test]
fn directories_for_everybody_are_left_alone() {
    let place = Place::new();
    set_mode(&place.0, 0o1777);
    assert!(matches!(directory(&place.0), Err(Error::Sticky(_))));
    assert_eq!(mode_of(&place.0), 0o1777);
}

#[test]
fn what_others_have_put_somewhere_is_refused_by_name() {
    let place = Place::new();
    directory(&place.at("d")).unwrap();
    std::fs::create_dir(place.at("mine")).unwrap();
    symlink(place.at("mine"), place.at("d/link")).unwrap();
    directory(&place.at("d")).unwrap();
    directory(&place.at("d/link")).unwrap();
    check_path(&place.at("d/link/x")).unwrap();
    if !give_away(&place.at("mine")) {
        return;
    }
    let said = directory(&place.at("d/link")).unwrap_err().to_string();
    assert!(said.contains("link belongs to uid 65534"), "{said}");
    let link = place.at("d/link");
    let owner = Some(rustix::fs::Uid::from_raw(65_534));
    rustix::fs::chownat(
        rustix::fs::CWD,
        &link,
        owner,
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    for refused in [
        check_link(&link).unwrap_err(),
        check_path(&link.join("x")).unwrap_err(),
        directory(&place.at("d")).unwrap_err(),
    ] {
        assert!(
            matches!(&refused, Error::Owner { path, .. } if path.ends_with("d/link")),
            "{refused}"
        );
    }
}

#[test]
fn places_that_others_could_replace_are_refused() {
    let place = Place::new();
    std::fs::create_dir_all(place.at("shared/mine")).unwrap();
    let deep = place.at("shared/mine/not/there");
    check_path(&deep).unwrap();
    set_mode(&place.at("shared"), 0o777);
    let said = check_path(&deep).unwrap_err().to_string();
    assert!(
        said.contains("others may change") && said.contains("/shared,"),
        "{said}"
    );
    set_mode(&place.at("shared"), 0o1777);
    check_path(&deep).unwrap();
    if give_away(&place.at("shared")) {
        assert!(matches!(check_path(&deep), Err(Error::Replaceable { .. })));
        assert!(matches!(
            check_path(&place.at("shared")),
            Err(Error::Owner { .. })
        ));
    }
}

#[test]
fn only_files_that_others_cannot_write_are_believed() {
    let place = Place::new();
    let is_believed = |mode| is_own(&File::open(place.file("pid", mode)).unwrap());
    assert!(is_believed(0o600) && is_believed(0o644));
    assert!(!is_believed(0o666) && !is_believed(0o664));
    let path = place.file("pid", 0o600);
    if give_away(&path) {
        assert!(!is_own(&File::open(&path).unwrap()));
    }
}
