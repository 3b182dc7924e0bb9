//! The floor: a bare read of the two files of every run, on one thread: `floor-read RUNS_ROOT`.
//!
//! Per run: two times open, read, close, relative to the runs root. It checks nothing, decodes
//! nothing and keeps nothing, so no program that looks at these bytes can do less.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program says what it read")]

use std::ffi::CStr;
use std::io;
use std::process::ExitCode;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, open, openat};

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("usage: floor-read RUNS_ROOT");
        return ExitCode::from(2);
    };
    match read_all(&root) {
        Ok((runs, bytes)) => {
            println!("{runs} runs, {bytes} bytes");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("floor-read: {}: {e}", root.display());
            ExitCode::FAILURE
        }
    }
}

fn read_all(root: &std::ffi::OsStr) -> io::Result<(u64, u64)> {
    let dir = open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::with_capacity(32 << 10);
    let mut list = RawDir::new(&dir, names.spare_capacity_mut());
    let mut buffer = vec![0; 64 << 10];
    let mut path = Vec::new();
    let (mut runs, mut bytes) = (0, 0);
    while let Some(entry) = list.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        runs += 1;
        for file in bench::FILES {
            path.clear();
            path.extend_from_slice(name);
            path.push(b'/');
            path.extend_from_slice(file.to_bytes_with_nul());
            let whole = CStr::from_bytes_with_nul(&path).map_err(io::Error::other)?;
            bytes += read_one(&dir, whole, &mut buffer)?;
        }
    }
    Ok((runs, bytes))
}

fn read_one(dir: &OwnedFd, path: &CStr, buffer: &mut [u8]) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, path, flags, Mode::empty())?;
    Ok(rustix::io::read(&file, buffer)? as u64)
}
