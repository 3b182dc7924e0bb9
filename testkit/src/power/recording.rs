//! The log of a disk, and the images that a power cut could leave of it.
//!
//! Theory of operation. A [`Recording`] is the disk before (only what is not zero) and what happened to it,
//! in order. Between two flushes lies a *window*. [`Recording::cuts`] chooses states: for each window the
//! one with nothing of it, which has to hold everything acknowledged up to its end, and some with a part of
//! it, in order or by chance. The choice follows from a seed alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The unit that arrives whole or not at all.
pub const SECTOR_BYTES: usize = 4096;

/// What happened to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// Everything before was made certain.
    Flush,
    /// The workload says that a version is written.
    Acknowledged(u64),
}

/// What of the last window has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Nothing.
    Nothing,
    /// Everything.
    InOrder,
    /// Each sector by chance: the seed, and how many of four arrive.
    ByChance(u64, u64),
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events before this one are certain.
    pub flushed: usize,
    /// Events from this one on never happened.
    pub end: usize,
    /// What became of those between.
    pub arrived: Arrived,
    /// The last version that was acknowledged before it, 0 if none was.
    pub acknowledged: u64,
}

/// Chance that is the same in every run: splitmix64.
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        usize::try_from(self.number() % limit).expect("smaller than a usize")
    }
}

/// The content of a disk, without what is zero.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    sectors: Vec<(u64, Vec<u8>)>,
}

impl Content {
    /// Reads a disk.
    ///
    /// # Errors
    /// As the system says.
    pub fn read(file: &File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let (zero, mut sectors) = ([0; SECTOR_BYTES], Vec::new());
        let mut buffer = vec![0; SECTOR_BYTES];
        for offset in (0..size).step_by(SECTOR_BYTES) {
            file.read_exact_at(&mut buffer, offset)?;
            if buffer != zero {
                sectors.push((offset, buffer.clone()));
            }
        }
        Ok(Self { size, sectors })
    }

    /// Makes a file hold this and nothing else.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, file: &File) -> io::Result<()> {
        // Cut to nothing first: what an earlier image left is gone, and zeros take no room.
        file.set_len(0)?;
        file.set_len(self.size)?;
        self.sectors.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
    }
}

/// A disk and its log.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The disk before.
    pub base: Content,
    /// What happened.
    pub events: Vec<Event>,
}

impl Recording {
    /// One cut for each window with nothing of it, and as many rounds as asked for of two more, with a part
    /// of it. A window of one sector has no part: the whole of it is the beginning of the next one.
    pub fn cuts(&self, rounds: usize, seed: u64) -> Vec<Cut> {
        let mut chance = Chance(seed);
        let cut = |flushed, end, arrived| {
            let acknowledged = acknowledged(&self.events[..end]);
            Cut { flushed, end, arrived, acknowledged }
        };
        let mut cuts = Vec::new();
        for (start, end) in windows(&self.events) {
            cuts.push(cut(start, end, Arrived::Nothing));
            if sectors_written(&self.events[start..end]) < 2 {
                continue;
            }
            for _ in 0..rounds {
                let until = start + 1 + chance.below(end - start);
                cuts.push(cut(start, until, Arrived::InOrder));
                let until = start + 1 + chance.below(end - start);
                let share = 1 + chance.number() % 3;
                cuts.push(cut(start, until, Arrived::ByChance(chance.number(), share)));
            }
        }
        cuts
    }

    /// Makes a file hold what the disk holds after a cut.
    ///
    /// # Errors
    /// As the system says.
    pub fn build(&self, cut: &Cut, image: &File) -> io::Result<()> {
        self.base.write(image)?;
        for (offset, bytes) in writes(&self.events[..cut.flushed]) {
            image.write_all_at(bytes, offset)?;
        }
        let mut chance = Chance(0);
        let share = match cut.arrived {
            Arrived::Nothing => return Ok(()),
            Arrived::InOrder => 4,
            Arrived::ByChance(seed, share) => {
                chance = Chance(seed);
                share
            }
        };
        for (offset, bytes) in writes(&self.events[cut.flushed..cut.end]) {
            for (at, sector) in sectors(offset, bytes) {
                if chance.number() % 4 < share {
                    image.write_all_at(sector, at)?;
                }
            }
        }
        Ok(())
    }
}

/// Start and end of each window in which anything happened.
fn windows(events: &[Event]) -> Vec<(usize, usize)> {
    let mut start = 0;
    let mut found = Vec::new();
    let flushes = events.iter().enumerate().filter(|(_, event)| **event == Event::Flush);
    for end in flushes.map(|(at, _)| at).chain([events.len()]) {
        if end > start {
            found.push((start, end));
        }
        start = end + 1;
    }
    found
}

fn writes(events: &[Event]) -> impl Iterator<Item = (u64, &[u8])> {
    events.iter().filter_map(|event| match event {
        Event::Write(offset, bytes) => Some((*offset, bytes.as_slice())),
        _ => None,
    })
}

fn sectors_written(events: &[Event]) -> usize {
    writes(events).map(|(offset, bytes)| sectors(offset, bytes).len()).sum()
}

fn acknowledged(events: &[Event]) -> u64 {
    let mut versions = events.iter().rev().filter_map(|event| match event {
        Event::Acknowledged(version) => Some(*version),
        _ => None,
    });
    versions.next().unwrap_or(0)
}

/// A write in pieces that end where sectors end.
fn sectors(offset: u64, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let inside = usize::try_from(at % SECTOR_BYTES as u64).expect("smaller than a sector");
        let (piece, more) = rest.split_at(rest.len().min(SECTOR_BYTES - inside));
        found.push((at, piece));
        at += piece.len() as u64;
        rest = more;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let write = |at: u64, fill: u8| Event::Write(at * 4096, vec![fill; 2 * SECTOR_BYTES]);
        let events = vec![
            write(0, b'a'),
            Event::Acknowledged(1),
            Event::Flush,
            Event::Flush,
            write(2, b'b'),
            write(4, b'c'),
            Event::Acknowledged(2),
        ];
        let sectors = vec![(9 * 4096, vec![b'o'; SECTOR_BYTES])];
        Recording { base: Content { size: 10 * 4096, sectors }, events }
    }

    fn image(recording: &Recording, cut: &Cut) -> String {
        let file = tempfile::tempfile().expect("a temporary file");
        recording.build(cut, &file).expect("room");
        let mut bytes = vec![0; 10 * SECTOR_BYTES];
        file.read_exact_at(&mut bytes, 0).expect("the size is that of the disk");
        bytes.chunks(SECTOR_BYTES).map(|c| if c[0] == 0 { '.' } else { c[0].into() }).collect()
    }

    #[test]
    fn an_image_holds_all_that_was_flushed_and_only_some_of_the_rest() {
        let recording = recording();
        let cut = |flushed, end, arrived| Cut { flushed, end, arrived, acknowledged: 0 };
        assert_eq!(image(&recording, &cut(0, 2, Arrived::Nothing)), ".........o");
        assert_eq!(image(&recording, &cut(3, 7, Arrived::Nothing)), "aa.......o");
        assert_eq!(image(&recording, &cut(3, 5, Arrived::InOrder)), "aabb.....o");
        assert_eq!(image(&recording, &cut(3, 7, Arrived::InOrder)), "aabbcc...o");
        let by_chance: std::collections::BTreeSet<_> =
            (0..64).map(|seed| image(&recording, &cut(3, 7, Arrived::ByChance(seed, 2)))).collect();
        assert_eq!(by_chance.len(), 16, "each of four sectors arrives or not: {by_chance:?}");
        assert!(by_chance.iter().all(|image| image.starts_with("aa") && image.ends_with("...o")));
    }

    #[test]
    fn a_window_of_which_nothing_arrives_still_holds_what_was_acknowledged_in_it() {
        let cuts = recording().cuts(3, 7);
        let nothing = |flushed, end, acknowledged| Cut {
            flushed,
            end,
            arrived: Arrived::Nothing,
            acknowledged,
        };
        let whole = cuts.iter().filter(|cut| cut.arrived == Arrived::Nothing);
        let whole: Vec<_> = whole.copied().collect();
        assert_eq!(whole, [nothing(0, 2, 1), nothing(4, 7, 2)], "the strictest of each window");
        assert_eq!(cuts.len(), 2 + 2 * 2 * 3, "two windows with parts, three rounds");
        assert!(cuts.iter().all(|cut| cut.flushed < cut.end && cut.end <= 7), "{cuts:?}");
        assert_eq!(cuts, recording().cuts(3, 7), "the same seed, the same cuts");
    }

    #[test]
    fn a_write_is_cut_where_sectors_end() {
        let bytes = [1; 6000];
        let lengths: Vec<_> =
            sectors(4000, &bytes).iter().map(|(at, piece)| (*at, piece.len())).collect();
        assert_eq!(lengths, [(4000, 96), (4096, 4096), (8192, 1808)]);
    }
}
