#!/usr/bin/env bash
# For the scripts beside it: ends with a reason unless there is a nightly toolchain.
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo 'this needs a nightly toolchain: rustup toolchain install nightly' >&2
    exit 2
fi
