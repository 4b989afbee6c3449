# `make` lists what there is.

SECONDS ?= 60
SCHEDULES ?= 1000000
FIRST ?= 1

.PHONY: help check test applications gpu arm64 lint soak fuzz sanitize bench doc deb tarball wheel image

help:
	@echo 'make check              the inner loop: format, clippy, unit tests, firmware, golden outputs'
	@echo 'make test               install what the tests need, run them all, end with a summary'
	@echo 'make applications       the long forms of the application tests, which make test leaves out'
	@echo 'make gpu                the tests with memory of a GPU, on the one of this host'
	@echo 'make arm64              build for aarch64 and test under qemu-user'
	@echo 'make lint               rustfmt, clippy, rustdoc, shellcheck, cargo-deny'
	@echo 'make soak SCHEDULES=n   n seeded schedules from seed FIRST on (1000000 from 1)'
	@echo 'make fuzz SECONDS=s     every fuzz target for s seconds (60); needs a nightly toolchain'
	@echo 'make sanitize           the tests of memory and ports under AddressSanitizer; needs a nightly toolchain'
	@echo 'make bench              benchmarks'
	@echo 'make doc                the book of docs/, and the documentation of the crates'
	@echo 'make deb tarball wheel image   packages, into target/package: docs/install.md'

check:
	@tools/check.sh

test:
	@tools/test.sh

applications:
	@tools/applications.sh

gpu:
	TESTS_GPU=real cargo nextest run -p irnic-verbs --all-features -E 'binary(gpu)' --success-output final

arm64:
	@tools/arm64.sh

lint:
	@tools/lint.sh

soak:
	IRNIC_SCHEDULES=$(SCHEDULES) IRNIC_FIRST=$(FIRST) cargo test --release -p irnic-nic --test schedules -- --nocapture

fuzz:
	@tools/fuzz.sh $(SECONDS)

sanitize:
	@tools/sanitize.sh

bench:
	cargo bench --workspace

doc:
	@tools/book.sh
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

deb tarball wheel image:
	@packaging/build.sh $@
