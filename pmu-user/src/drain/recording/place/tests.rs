//! Tests of existing files, links, pipes, and files that vanish.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::{Abandoned, Overwrite, Place};
use crate::machine::testing::Tree;

/// Returns the names in a folder.
fn names(tree: &Tree) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(&tree.root).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn refused(path: &Path, overwrite: Overwrite) -> ErrorKind {
    let error = Place::create(path, overwrite, b"first").unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error.kind()
}

#[test]
fn a_file_has_its_beginning_when_it_appears_and_only_its_owner_reads_it() {
    let tree = Tree::new(&[("other", "")]);
    let path = tree.root.join("new");
    let mut place = Place::create(&path, Overwrite::No, b"first").unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), names(&tree)),
        (b"first".to_vec(), vec!["new".into(), "other".into()])
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    place.write(b", second").unwrap();
    place.check().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first, second");
}

#[test]
fn a_file_that_is_replaced_keeps_nothing_of_itself_and_its_other_names_keep_all() {
    let tree = Tree::new(&[("there", "precious")]);
    let path = tree.root.join("there");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    fs::hard_link(&path, tree.root.join("link")).unwrap();
    let before = path.metadata().unwrap().ino();
    assert_eq!(refused(&path, Overwrite::No), ErrorKind::AlreadyExists);
    assert_eq!((fs::read(&path).unwrap(), names(&tree).len()), (b"precious".to_vec(), 2));
    Place::create(&path, Overwrite::Yes, b"first").unwrap();
    let now = path.metadata().unwrap();
    assert_eq!((now.permissions().mode() & 0o777, now.nlink()), (0o600, 1));
    assert!(now.ino() != before && fs::read(tree.root.join("link")).unwrap() == b"precious");
    assert_eq!(names(&tree), ["link", "there"]);
}

#[test]
fn a_symbolic_link_is_neither_followed_nor_replaced() {
    let tree = Tree::new(&[("target", "precious")]);
    for (name, to) in [("link", "target"), ("dangling", "nowhere"), ("device", "/dev/null")] {
        let path = tree.root.join(name);
        symlink(to, &path).unwrap();
        for overwrite in [Overwrite::No, Overwrite::Yes] {
            assert_eq!(refused(&path, overwrite), ErrorKind::AlreadyExists, "{name}");
        }
        assert!(path.is_symlink());
    }
    assert_eq!(refused(&tree.root, Overwrite::Yes), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(tree.root.join("target")).unwrap(), b"precious");
}

#[test]
fn what_cannot_be_written_leaves_no_file() {
    let tree = Tree::new(&[("folder/file", "")]);
    // A name that is too long for any file system.
    let path = tree.root.join("x".repeat(300));
    Place::create(&path, Overwrite::No, b"first").unwrap_err();
    assert_eq!(names(&tree), ["folder"]);
    assert_eq!(refused(&tree.root.join("none/file"), Overwrite::Yes), ErrorKind::NotFound);
}

#[test]
fn a_device_or_a_pipe_is_written_as_it_is() {
    Place::create(Path::new("/dev/null"), Overwrite::No, b"first").unwrap().check().unwrap();
    let full = Place::create(Path::new("/dev/full"), Overwrite::Yes, b"first").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    let tree = Tree::new(&[("folder/file", "")]);
    let pipe = tree.root.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut bytes = Vec::new();
            fs::File::open(pipe).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        }
    });
    let place = Place::create(&pipe, Overwrite::No, b"first").unwrap();
    place.check().unwrap();
    assert_eq!(place.abandon(), Abandoned::Gone);
    assert_eq!(reader.join().unwrap(), b"first");
}

#[test]
fn a_file_that_is_removed_or_replaced_is_told() {
    let tree = Tree::new(&[("folder/file", "")]);
    let path = tree.root.join("file");
    let place = Place::create(&path, Overwrite::No, b"first").unwrap();
    fs::remove_file(&path).unwrap();
    assert!(place.check().unwrap_err().to_string().contains("removed or replaced"));
    fs::write(&path, "another's").unwrap();
    assert!(place.check().is_err());
    assert_eq!(place.abandon(), Abandoned::Gone);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
}

#[test]
fn what_is_abandoned_replaces_nothing() {
    let tree = Tree::new(&[("folder/file", "")]);
    let path = tree.root.join("x.pmbpf");
    let abandoned = || Place::create(&path, Overwrite::No, b"first").unwrap().abandon();
    let partial: PathBuf = tree.root.join("x.pmbpf.partial");
    assert_eq!(abandoned(), Abandoned::At(partial.clone()));
    fs::write(&partial, "precious").unwrap();
    assert_eq!(abandoned(), Abandoned::At(path.clone()));
    assert_eq!(
        (fs::read(&partial).unwrap(), fs::read(&path).unwrap()),
        (b"precious".to_vec(), b"first".to_vec())
    );
}

#[test]
fn what_a_file_holds_is_replaced_by_more_or_less_and_can_be_read_before() {
    for bytes in [&b"page"[..], b"a page that is longer than what was there before"] {
        let tree = Tree::new(&[("other", "")]);
        let path = tree.root.join("new");
        let mut place = Place::create(&path, Overwrite::No, b"first, ").unwrap();
        place.write(b"and then second").unwrap();
        for _ in 0..2 {
            let mut read = String::new();
            place.reader().unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, "first, and then second");
        }
        place.replace(bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_file_that_was_removed_is_not_replaced() {
    let tree = Tree::new(&[("other", "")]);
    let path = tree.root.join("new");
    let mut place = Place::create(&path, Overwrite::No, b"first").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(place.replace(b"page").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&tree), ["other"]);
}
