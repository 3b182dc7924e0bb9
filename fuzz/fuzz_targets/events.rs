//! Any bytes as an event log: nothing panics, and the summary agrees with the lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runstore::protocol::event::summarize;

fuzz_target!(|data: &[u8]| {
    let lines = data.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count() as u64;
    for from_start in [true, false] {
        let log = summarize(data, from_start);
        let bad = log.corrupt_lines.len() as u64 + u64::from(log.torn);
        assert!(log.events + bad <= lines, "no line is counted twice");
        let kept = log.last.len() as u64 + u64::from(log.last_of_child.is_some());
        assert!(kept <= log.events.min(6), "only events are kept, and few");
        assert!(kept > 0 || log.events == 0, "the last events are kept");
        assert!(log.completed.len() as u64 <= log.events, "an end is an event");
        assert!(!log.completed.is_empty() <= log.begun, "what has ended has begun");
        assert_eq!(log.tail_only, !from_start);
        if from_start {
            assert!(log.corrupt_lines.is_sorted(), "lines are told in order");
            let named =
                log.corrupt_lines.iter().chain(log.last.iter().filter_map(|e| e.line.as_ref()));
            let all = data.split(|b| *b == b'\n').count() as u64;
            assert!(named.into_iter().all(|n| (1..=all).contains(n)), "a named line exists");
        }
        let newest = log.last.iter().filter_map(|e| e.at_ms).max();
        assert!(newest <= log.newest_ms, "the newest is the newest");
    }
    // A tail never says more than the whole.
    let (whole, tail) = (summarize(data, true), summarize(data, false));
    assert!(tail.events <= whole.events, "a tail has no more events than its log");
});
