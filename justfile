# Each recipe is what its commands say; see CONTRIBUTING.md.

# What must hold before a commit.
check: fmt-check lint doc test

test:
    cargo test --workspace

fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all -- --check

lint:
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p runstore --lib --no-default-features -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Every case directory through the program.
cases:
    cargo test --test it cases -- --nocapture

# Builds its own stores; prints one line per ratio.
bench *ARGS:
    bench/run {{ARGS}}

# Ten minutes for each target; needs a nightly toolchain and cargo-fuzz.
fuzz seconds="600":
    #!/usr/bin/env bash
    set -euo pipefail
    for target in $(cargo +nightly fuzz list); do
        cargo +nightly fuzz run "$target" -- -max_total_time={{seconds}}
    done

# Licences, advisories and sources of the dependencies; needs cargo-deny.
deny:
    cargo deny check

# Lint, build and file tests for Windows, under Wine where there is no Windows.
windows:
    tests/windows/run

# The published peers judged by the suite in every role; needs node, npm and its registry, and takes some minutes.
peer-reports *ARGS:
    conformance/peers/report {{ARGS}}
