//! Ways of doing the same thing, in turn, so that a slow moment of the machine meets all of them.
//!
//! Theory of operation. An [`Entrant`] performs a batch of operations and says how long one of them took.
//! In each round every entrant performs one batch, each round in another order, and before each batch one
//! operation that is not counted: what one entrant leaves to the file system is paid by the next. The first
//! round fills the caches and is thrown away. Two entrants are compared round by round, and the median of
//! these quotients counts: what changes slowly over all rounds stands above and below the line.

#![expect(clippy::disallowed_methods, reason = "measures with a clock")]

use std::io;
use std::time::Instant;

use crate::report::median;

/// Nanoseconds that one batch of the first entrant is to take.
const BATCH_NS: f64 = 12e6;
/// Operations of the batch that shows how long one takes.
const TRIAL: u32 = 5;
/// Operations of one batch at least, so that one of them does not count for all.
const FEWEST: u32 = 8;

/// One way of doing it.
pub struct Entrant<'a> {
    name: &'static str,
    batch: Box<dyn FnMut(u32) -> io::Result<f64> + 'a>,
}

impl<'a> Entrant<'a> {
    /// One that is timed here, operation by operation in a row.
    pub fn timed(name: &'static str, mut op: impl FnMut() -> io::Result<()> + 'a) -> Self {
        Self::batch(name, move |ops| {
            let begin = Instant::now();
            for _ in 0..ops {
                op()?;
            }
            Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(ops))
        })
    }

    /// One that times its batches itself: nanoseconds of one operation.
    pub fn batch(name: &'static str, batch: impl FnMut(u32) -> io::Result<f64> + 'a) -> Self {
        Self { name, batch: Box::new(batch) }
    }
}

/// What a contest showed.
#[derive(Debug)]
pub struct Times {
    rows: Vec<(&'static str, Vec<f64>)>,
}

/// Lets the entrants do `rounds` batches each, of at most `most` operations.
///
/// # Errors
/// The first one of an entrant.
///
/// # Panics
/// When there is no entrant.
pub fn run(mut entrants: Vec<Entrant<'_>>, rounds: usize, most: u32) -> io::Result<Times> {
    let first = entrants.first_mut().expect("there is an entrant");
    // Twice: the first one meets cold caches.
    (first.batch)(TRIAL)?;
    let one = (first.batch)(TRIAL)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float takes the nearest number that there is"
    )]
    let ops = ((BATCH_NS / one) as u32).clamp(FEWEST, most.max(FEWEST));
    let mut rows: Vec<_> = entrants.iter().map(|e| (e.name, Vec::new())).collect();
    let count = entrants.len();
    for round in 0..=rounds {
        for turn in 0..count {
            // Each one begins as often as any other, and follows any other.
            let turn = (round / 2 + turn) % count;
            let at = if round % 2 == 0 { turn } else { count - 1 - turn };
            (entrants[at].batch)(1)?;
            let ns = (entrants[at].batch)(ops)?;
            if round > 0 {
                rows[at].1.push(ns);
            }
        }
    }
    Ok(Times { rows })
}

impl Times {
    fn row(&self, name: &str) -> &[f64] {
        let row = self.rows.iter().find(|(known, _)| *known == name);
        &row.expect("it was an entrant").1
    }

    /// How many times as long as `other` this one took.
    ///
    /// # Panics
    /// When one of them was no entrant.
    pub fn quotient(&self, name: &str, other: &str) -> f64 {
        let pairs = self.row(name).iter().zip(self.row(other));
        median(pairs.map(|(one, other)| one / other).collect())
    }

    /// The medians in microseconds, for people.
    pub fn medians(&self) -> String {
        let each = self.rows.iter().map(|(name, ns)| {
            let us = median(ns.clone()) / 1000.0;
            format!("{name} {us:.1} us")
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_as_many_turns_and_the_order_changes() {
        let turns = std::cell::RefCell::new(String::new());
        let entrant = |name: &'static str, ns: f64| {
            let turns = &turns;
            Entrant::batch(name, move |ops| {
                if ops != 1 {
                    turns.borrow_mut().push_str(name);
                }
                Ok(ns)
            })
        };
        let times = run(vec![entrant("a", 3e6), entrant("b", 6e6)], 3, 100).expect("no one fails");
        assert_eq!(*turns.borrow(), "aaabbabaab", "two trials, one round for the caches, three");
        assert!((times.quotient("b", "a") - 2.0).abs() < f64::EPSILON);
        assert_eq!(times.medians(), "a 3000.0 us, b 6000.0 us");
    }
}
