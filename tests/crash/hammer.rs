//! Many processes replace one file while others look at it: each look finds one whole file.
//!
//! Theory of operation. Writers and readers are processes of the driver and share nothing but the
//! directory. Each text tells its writer and turn, and its whole content follows from the two, so a
//! text that is cut, or made of two, is known. A reader ends with an error at the first look that finds
//! no file, a torn one, or another mode than 0600. `RUNSTORE_HAMMER=32x8x60` sets writers, readers and
//! seconds; without it the race is short.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use runstore::store::RealHost;
use runstore::store::atomic::{Durability, Options, replace};
use runstore::store::host::Host as _;
use testkit::driver;

use crate::states;

/// Writers, readers, seconds.
fn size() -> (u64, u64, u64) {
    let Ok(text) = std::env::var("RUNSTORE_HAMMER") else { return (8, 4, 5) };
    let numbers: Vec<u64> = text.split('x').filter_map(|part| part.parse().ok()).collect();
    let [writers, readers, seconds] = numbers[..] else {
        panic!("RUNSTORE_HAMMER is WRITERSxREADERSxSECONDS, not {text}");
    };
    (writers, readers, seconds)
}

fn start(dir: &Path, args: &[String]) -> Child {
    let mut command = Command::new(driver::program());
    command.arg(dir).args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built")
}

/// Waits for one and returns the number that it says.
fn end(child: Child, word: &str) -> u64 {
    let out = child.wait_with_output().expect("it is ours");
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{word}{errors}");
    let number = said.lines().find_map(|line| line.strip_prefix(word)?.parse().ok());
    number.unwrap_or_else(|| panic!("it says {word}: {said}"))
}

#[test]
fn no_reader_ever_sees_a_torn_or_missing_file() {
    let (writers, readers, seconds) = size();
    let memory = Path::new("/dev/shm");
    let place = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let place = place.expect("a temporary directory");
    let root = place.path().join("root");
    states::make_private(&root);
    let host = RealHost::new();
    let dir = host.open_dir(&root).expect("just made");
    let first = driver::hammered(0, 0);
    let options = Options::new(Durability::ProcessSafe);
    replace(&host, &dir, "status.json", first.as_bytes(), &options).expect("room");

    let ms = (seconds * 1000).to_string();
    let reading: Vec<Child> =
        (0..readers).map(|_| start(&root, &["read".to_owned(), ms.clone()])).collect();
    let writing: Vec<Child> = (1..=writers)
        .map(|number| start(&root, &["write".to_owned(), number.to_string(), ms.clone()]))
        .collect();
    let looks: u64 = reading.into_iter().map(|child| end(child, "looks: ")).sum();
    let replaces: u64 = writing.into_iter().map(|child| end(child, "replaces: ")).sum();
    println!("hammer: {writers} writers made {replaces} replaces, {readers} readers {looks} looks");
    assert!(looks > 100 && replaces > 100, "it was a race: {looks} looks, {replaces} replaces");
    let left: Vec<_> = std::fs::read_dir(&root)
        .expect("ours")
        .map(|entry| entry.expect("ours").file_name())
        .collect();
    assert_eq!(left, ["status.json"], "no temp file is left");
}
