//! Directories on a real file system: private, never reached through a link.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use runstore::store::RealHost;
use runstore::store::directory::{Made, create, create_path, remove_if_empty};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::RetryPolicy;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
fn nested_directories_are_made_private_and_found_again() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let never = RetryPolicy::never();
    create_path(&host, &dir, &["a", "b", "c"], &never).expect("made");
    for path in ["a", "a/b", "a/b/c"] {
        assert_eq!(mode(&top.path().join(path)), 0o700, "{path}");
    }
    let (a, made) = create(&host, &dir, "a", &never).expect("opened");
    assert_eq!(made, Made::Existed);
    assert!(!remove_if_empty(&host, &dir, "a").expect("looked"), "it has an entry");
    let b = host.open_dir_at(&a, "b".as_ref()).expect("there");
    assert!(remove_if_empty(&host, &b, "c").expect("removed"));
}

#[test]
fn a_link_in_the_place_of_a_directory_is_refused_and_its_target_is_left_alone() {
    let top = tempfile::tempdir().expect("room");
    let target = tempfile::tempdir().expect("room");
    symlink(target.path(), top.path().join("a")).expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let e = create_path(&host, &dir, &["a", "b"], &RetryPolicy::never()).expect_err("a link");
    assert!(e.source.to_string().contains("a symbolic link stands in its place"), "{}", e.source);
    let before = mode(target.path());
    host.set_dir_mode(&dir, "a".as_ref(), 0o777).expect_err("a link is not followed");
    assert_eq!(mode(target.path()), before);
    assert!(std::fs::read_dir(target.path()).expect("there").next().is_none());
}

#[test]
fn the_mode_of_a_directory_is_set_by_its_name() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    // As the umask 0777 would leave it.
    host.create_dir(&dir, "a".as_ref(), 0).expect("made");
    assert_eq!(mode(&top.path().join("a")), 0);
    host.set_dir_mode(&dir, "a".as_ref(), 0o700).expect("set");
    assert_eq!(mode(&top.path().join("a")), 0o700);
    std::fs::write(top.path().join("f"), "").expect("room");
    host.set_dir_mode(&dir, "f".as_ref(), 0o700).expect_err("a file is no directory");
}
