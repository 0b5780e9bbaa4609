# Two commands for a newcomer: `make demo` and `make test`. Each does all that it needs.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD = build/$(PRESET)

.PHONY: help deps build test demo test-asan test-tsan fuzz bench format clean

help:
	@echo "make demo       install packages, build, serve models/sample through a router and three workers"
	@echo "make test       install packages, build, run every test"
	@echo "make build      install packages, build (PRESET=release|debug|asan|tsan|fuzz|cuda)"
	@echo "make test-asan  the tests under AddressSanitizer and UndefinedBehaviorSanitizer (clang)"
	@echo "make test-tsan  the tests under ThreadSanitizer (clang)"
	@echo "make bench      kernels, model, transfer and scheduler on this machine, JSON in build/bench"
	@echo "make format     clang-format over the tree"

deps:
	tools/install_deps.sh core

build: deps
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) -j $(JOBS)

test: build
	ctest --preset $(PRESET)

demo: build
	$(BUILD)/bin/tandem demo --model models/sample

test-asan:
	tools/install_deps.sh core sanitize
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

test-tsan:
	tools/install_deps.sh core sanitize
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan

fuzz:
	tools/install_deps.sh core sanitize
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	@echo "built: run $$(ls -d build/fuzz/bin/*_libfuzzer | tr '\n' ' ')with a corpus directory"

bench: build
	bench/run.sh $(BUILD)/bin build/bench

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	rm -rf build
