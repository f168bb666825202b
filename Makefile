# SPDX-License-Identifier: Apache-2.0
# The commands people type. Each installs what it needs (tools/install_deps.sh), then calls CMake.
# Set PELTON_NO_INSTALL=1 to be told what is missing instead.
PRESET ?= cpu-release
BUILD   = build/$(PRESET)
PYTHON  = .venv/bin/python
# Clones and build folders share compiled files.
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1

.PHONY: help build demo demo-engine demo-serve demo-train dist format test test-gpu test-mutants test-fuzz test-soak test-threads check clean
help:
	@echo "make demo    set up, build, run real models and compare with ONNX Runtime (parts: demo-engine, demo-serve, demo-train)"
	@echo "make test    set up, build, run every test that needs no GPU"
	@echo "make test-gpu  build with CUDA and run the tests that need a GPU"
	@echo "make build   set up and build build/$(PRESET)"
	@echo "make test-mutants, make test-fuzz   seeded faults; parsers under a fuzzer"
	@echo "make test-soak   long runs of the server"
	@echo "make test-threads   the server under the thread sanitizer"
	@echo "make check   source checks: layers, headers, style"
	@echo "make clean   remove build/"

build:
	tools/install_deps.sh build
	cmake --preset $(PRESET)
	cmake --build $(BUILD)

demo: demo-engine demo-serve demo-train

demo-engine:
	tools/install_deps.sh build demo
	tools/fetch_demo_files.sh
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target pelton
	$(PYTHON) examples/demo/engine.py $(BUILD)/pelton

demo-serve:
	tools/install_deps.sh build demo
	tools/fetch_demo_files.sh
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target pelton
	$(PYTHON) examples/demo/serve.py $(BUILD)/pelton

demo-train:
	tools/install_deps.sh build demo
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target pelton
	$(PYTHON) examples/demo/train.py $(BUILD)/pelton

# A relocatable archive and a .deb in dist/; tools/check_dist.sh runs them on a bare Debian.
dist:
	tools/install_deps.sh build
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target pelton pelton_shared
	python3 tools/make_dist.py $(BUILD)

test:
	tools/install_deps.sh build test
	cmake --preset $(PRESET)
	cmake --build $(BUILD)
	$(PYTHON) tools/run_tests.py $(BUILD) $(TEST_FLAGS)

# On a machine with a GPU. Installs nothing: what such a machine lacks is carried there (docs/gpu.md).
test-gpu:
	cmake --preset cuda-release $(if $(wildcard .carry/include),-DPELTON_DEPS_DIR=$(CURDIR)/.carry)
	cmake --build build/cuda-release --target pelton test_gpu test_backend_cuda
	LD_LIBRARY_PATH=$(CURDIR)/.carry/lib:$$LD_LIBRARY_PATH python3 tools/run_gpu_tests.py build/cuda-release
	LD_LIBRARY_PATH=$(CURDIR)/.carry/lib:$$LD_LIBRARY_PATH python3 tests/gpu/train_resume.py build/cuda-release/pelton

# Seeded faults that the tests must catch, and the parsers under a fuzzer. Slower, and apart from the checks of a change.
test-mutants: build
	tools/install_deps.sh test
	$(PYTHON) tools/run_mutants.py $(MUTANT_FLAGS)

# Long runs of the server: load cycles, a minute at rest, faults for a while.
test-soak:
	tools/install_deps.sh build test
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target pelton
	PELTON_BINARY_DIR=$(BUILD) .venv/bin/python -m pytest -q -s tests/serve/soak.py

test-threads:
	tools/install_deps.sh build test
	cmake --preset tsan
	cmake --build build/tsan --target test_serve_core test_serve_http test_serve_grpc
	$(PYTHON) tools/run_tests.py build/tsan --label '^serve/(core|http|grpc)$$' --compiled

test-fuzz:
	tools/install_deps.sh build test ci
	$(PYTHON) tools/run_fuzz.py $(FUZZ_FLAGS)

format:
	clang-format-16 -i $$(git ls-files '*.h' '*.cc')

check:
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_source.py
	$(PYTHON) tools/check_headers.py $(BUILD)

clean:
	rm -rf build
