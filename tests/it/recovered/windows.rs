//! Every crash window of the protocol that our own processes can be stopped in. Facts §9.2.
//!
//! Theory of operation. Each [`Window`] says which process dies before which call, what a reader makes of the
//! store before, and what has to be there after a recovery. Rows of the facts that our order of writes cannot
//! leave are in `table`, built by hand; where our order is another one than that of the peers,
//! the row says so.
//!
//! A runner is killed twice for each of its rows: once its shim lives and proves its end, once the step has
//! killed the shim, so that nobody saw it.

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use super::after::judge;
use super::prove::{age, prove};
use super::rows::{self, Window};
use crate::killed::may_watch;

#[test]
fn every_crash_window_of_ours_is_recovered_and_taken_back() {
    if !may_watch("crash windows") {
        return;
    }
    let mut bad = Vec::new();
    let all = rows::all();
    for window in &all {
        let Window { row, what, killed, before, after } = window;
        let eyes = if killed.before_work.is_empty() { "" } else { ", unseen" };
        let name = format!("{row}, {what}{eyes}");
        let rig = match killed.launch() {
            Ok(rig) => rig,
            Err(why) => {
                bad.push(format!("{name}: it could not be built: {why}"));
                continue;
            }
        };
        age(&rig.root());
        let proven = prove(&rig.root(), |seen| judge(seen, after));
        let (told, wrong) = proven.told(&name, before);
        println!("{told}");
        bad.extend(wrong);
    }
    println!("{} windows, {} violations", all.len(), bad.len());
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}
