//! What a measuring program prints: one line for each ratio, and one for each part that is left out.
//!
//! Theory of operation. The goals stand in the measuring programs and nowhere else. A missed goal is
//! printed; only what could not be measured fails, and what the machine does not permit is left out with
//! its reason.

#![expect(clippy::print_stdout, reason = "its output is the point")]

/// Prints one ratio with its goal.
///
/// # Panics
/// When `op` is none of `<=`, `>=` and `=`.
pub fn ratio(name: &str, value: f64, op: &str, limit: f64) {
    let holds = match op {
        "<=" => value <= limit,
        ">=" => value >= limit,
        "=" => (value - limit).abs() < f64::EPSILON,
        _ => panic!("there is no comparison {op}"),
    };
    let word = if holds { "holds" } else { "missed" };
    // A count is no measured number, and does not look like one.
    let digits = if value.fract() == 0.0 { 0 } else { 3 };
    println!("ratio {name} {value:.digits$} goal {op} {limit} {word}");
}

/// Prints a count with its goal.
pub fn count(name: &str, value: usize, op: &str, limit: u32) {
    #[expect(clippy::cast_precision_loss, reason = "counts of calls are small")]
    ratio(name, value as f64, op, f64::from(limit));
}

/// Says that a part is left out, and why.
pub fn skip(name: &str, why: &str) {
    println!("skip {name}: {}", why.replace('\n', "; "));
}

/// The middle of some values.
///
/// # Panics
/// When there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }
}
