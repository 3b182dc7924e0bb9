//! Tests of the verdicts, on evidence made by hand.
