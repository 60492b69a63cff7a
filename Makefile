# A thin front on CMake: `make` installs what is missing and builds build/.

BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

configure = cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
compile = cmake --build $(BUILD) -j $(JOBS)
ctest = ctest --test-dir $(BUILD) --output-on-failure

# The targets share one build folder, and ninja has the cores already.
.NOTPARALLEL:

# As it was typed, for whatever a file name may hold.
override FILE := $(value FILE)
export FILE

.PHONY: all test test-torch demo docs look bench counts scale compare soak fuzz coverage format check-format \
        deb release install wheel update-symbols update-counts update-seconds clean

all:
	@scripts/setup.sh build
	@$(configure) > /dev/null
	@$(compile)

test:
	@scripts/setup.sh build test go
	@$(configure) -DTMSG_BUILD_TESTS=ON -DTMSG_BENCH_LTO=OFF > /dev/null
	@$(compile)
	@JOBS=$(JOBS) scripts/test.sh $(BUILD)

# The Python package with torch, tensordict and jax, which are a download of 3 GB
# the first time. From then on `make test` does this, too.
test-torch:
	@scripts/setup.sh build test torch
	@test -d build/torch-venv
	@$(configure) -DTMSG_BUILD_TESTS=ON > /dev/null
	@$(ctest) -R '^bindings/(torch|torch_ray|torch_weights|tensordict|jax)$$'

demo: all
	@scripts/demo.sh

# The documentation site, as build/docs/html; needs no build of the library.
docs:
	@scripts/setup.sh docs
	@scripts/docs.sh $(BUILD)

# Looks at each page of that site in Chromium, as wide as a desk and as a phone,
# light and dark; pictures of some are left in build/look.
look: docs
	@scripts/setup.sh look
	@build/docs-venv/bin/python docs/site/look.py $(BUILD)/docs/html \
	    $(BUILD)/look

# Calls are measured beside gRPC where that can be had, Python where pip is, and
# Go where build/go-venv is.
bench:
	@scripts/setup.sh build
	@$(configure) -DTMSG_BENCH_LTO=ON > /dev/null
	@$(compile)
	@scripts/bench-grpc.sh $(BUILD)/grpc || echo 'bench: no gRPC beside' >&2
	@$(BUILD)/tensormsg-bench --json $(BUILD)/bench.json \
	    --grpc $(BUILD)/grpc/tensormsg-bench-grpc
	@scripts/bench-python.sh $(BUILD) $(BUILD)/bench.json || \
	    echo 'bench: no Python beside' >&2
	@scripts/bench-go.sh $(BUILD) $(BUILD)/bench.json || \
	    echo 'bench: no Go beside' >&2

# How costs go with the number of tensors, bytes, endpoints and processes: some
# minutes, and up to 20 GB of memory where that is free.
scale:
	@scripts/setup.sh build test
	@$(configure) -DTMSG_BENCH_LTO=ON > /dev/null
	@$(compile) --target tensormsg_bench
	@build/venv/bin/python bench/scale.py $(BUILD)/tensormsg-bench

# What no clock tells (bench/counts/README.md), against its ceilings: a part of
# `make test`, too.
counts:
	@scripts/setup.sh build test
	@$(configure) -DTMSG_BUILD_TESTS=ON > /dev/null
	@$(compile) --target tensormsg_counts tensormsg_counts_shared
	@$(ctest) -R '^counts/' --verbose

# After a change of these figures that was meant.
update-counts:
	@scripts/setup.sh build test
	@$(configure) -DTMSG_BUILD_TESTS=ON > /dev/null
	@$(compile) --target tensormsg_counts tensormsg_counts_shared
	@$(compile) --target update-counts

# After a change of what the tests take that was meant: from the last `make test`.
update-seconds:
	@scripts/seconds.sh $(BUILD) --update

# Beside other libraries: bench/compare/README.md.
compare:
	@scripts/setup.sh build compare
	@$(configure) -DTMSG_BUILD_COMPARE=ON -DTMSG_BENCH_LTO=ON > /dev/null
	@$(compile) --target tensormsg_compare
	@scripts/compare.sh $(BUILD)

# The large counts; a soak that was stopped goes on where it was. Then races of
# calls and streams, under each sanitizer.
soak:
	@scripts/setup.sh build test soak
	@$(configure) -DTMSG_BUILD_TESTS=ON > /dev/null
	@$(compile)
	@$(ctest) -C soak -L soak -LE races --verbose
	@scripts/sanitize.sh address --races
	@scripts/sanitize.sh thread --races

fuzz:
	@scripts/fuzz.sh $(FUZZ_SECONDS)

coverage:
	@scripts/coverage.sh

format:
	@scripts/format.sh

check-format:
	@scripts/format.sh --check

# For users without a compiler: build/wheel/dist (docs/start/install.md).
wheel:
	@scripts/wheel.sh

# Packages of the Debian that this runs on, of the commit that is checked out.
deb:
	@scripts/setup.sh build deb
	@scripts/deb.sh $(BUILD)/deb

# Everything that a release consists of, in one folder: docs/project/releases.md.
release:
	@scripts/setup.sh build deb wheel
	@scripts/release.sh $(BUILD)/release

# After a change to the public functions that was meant.
update-symbols: all
	@$(compile) --target update-symbols

# The loader finds a new library only when its cache is made anew.
install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# Keeps the Python environments, which are downloads.
clean:
	@find $(BUILD) -mindepth 1 -maxdepth 1 ! -name '*venv' -exec rm -rf {} + \
	    2> /dev/null || true
