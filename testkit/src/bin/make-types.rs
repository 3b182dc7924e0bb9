//! Writes the types of `bindings/` from the schemas of `spec/schemas`, each file if it is not as it should be.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "writes plain files of the repository")]

use std::io::{self, Write as _};
use std::path::Path;

use testkit::bindings;

fn main() -> io::Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, text) in bindings::files(&top.join("spec/schemas"))? {
        let path = top.join("bindings").join(name);
        if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        std::fs::write(&path, text)?;
        writeln!(io::stdout(), "bindings/{name}")?;
    }
    Ok(())
}
