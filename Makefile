# Everything CI and people call. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= dev
BIN    := $(VENV)/bin
MODEL  ?= smollm2-135m-instruct
PORT   ?= 8000

.DEFAULT_GOAL := help
.PHONY: help setup serve test quick oracle check format bench clients quality peers native native-tests native-bench sanitize clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The stamp records what the environment was made from: a change of sources of the native part or of the
# dependencies makes it anew.
STAMP   := $(VENV)/.installed
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.h')

$(STAMP): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24" scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[$(EXTRAS)]"
	touch $@

setup: $(STAMP) ## make .venv with edgewise (editable) and the development tools

serve: $(STAMP) ## build, get MODEL (default SmolLM2-135M) and serve it on PORT
	$(BIN)/edgewise serve $(MODEL) --port $(PORT)

test: $(STAMP) ## the whole test suite
	$(BIN)/python -m pytest -q -m "not oracle"

quick: $(STAMP) ## the fast tier: no downloads, no servers, a process a core, few examples of each property
	PYTHONDONTWRITEBYTECODE= HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n auto -m "not model and not slow and not http and not oracle"

# PyTorch takes an environment of its own, so that nobody needs it otherwise. With
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu pip takes the build without GPU libraries.
oracle: ## every model family beside transformers (makes .venv-oracle)
	$(MAKE) setup VENV=.venv-oracle EXTRAS=dev,oracle
	.venv-oracle/bin/python -m pytest -q -m oracle tests/oracle

check: $(STAMP) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(shell find native benchmarks -name '*.cpp' -o -name '*.h')

format: $(STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(shell find native benchmarks -name '*.cpp' -o -name '*.h')

peers: ## build llama.cpp and ik_llama.cpp natively for comparisons (about 20 minutes)
	benchmarks/build_peers.sh

bench: $(STAMP) ## measure everything beside the peers and write docs/benchmarks.md
	$(BIN)/python benchmarks/report.py

quality: $(STAMP) ## KL divergence to an fp32 forward, beside llama.cpp (minutes)
	$(BIN)/python benchmarks/quality.py

# The environment has cmake and ninja, so that the machine need not.
CONFIGURE := PATH="$(abspath $(BIN)):$$PATH" cmake -S . -G Ninja
BUILD     := PATH="$(abspath $(BIN)):$$PATH" cmake --build
CTEST     := PATH="$(abspath $(BIN)):$$PATH" ctest --output-on-failure --test-dir

native: $(STAMP) ## build the native module into src/edgewise, for use with PYTHONPATH=src
	$(CONFIGURE) -B build/native -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BUILD) build/native
	PATH="$(abspath $(BIN)):$$PATH" cmake --install build/native --prefix build/native/install
	mv build/native/install/edgewise/_native*.so src/edgewise/  # a rename: processes that use the old one keep it

native-tests: $(STAMP) ## the C++ tests
	$(CONFIGURE) -B build/native-tests -DEDGEWISE_NATIVE_TESTS=ON
	$(BUILD) build/native-tests
	$(CTEST) build/native-tests

native-bench: $(STAMP) ## the kernels alone beside the machine's limits
	$(CONFIGURE) -B build/native-bench -DEDGEWISE_NATIVE_BENCHMARKS=ON
	$(BUILD) build/native-bench
	build/native-bench/linear_bench
	build/native-bench/attention_bench

clients: $(STAMP) ## Claude Code, Codex and OpenCode with the 0.5B (10 to 30 minutes, needs npm)
	EDGEWISE_REAL_CLIENTS=all EDGEWISE_REAL_CLIENTS_S=1800 $(BIN)/python -m pytest -q -s tests/clients/test_real_agents.py -o faulthandler_timeout=3000

sanitize: $(STAMP) ## the C++ tests under ASan/UBSan and TSan
	$(CONFIGURE) -B build/asan -DEDGEWISE_NATIVE_TESTS=ON -DEDGEWISE_SANITIZE=address,undefined
	$(BUILD) build/asan && $(CTEST) build/asan
	$(CONFIGURE) -B build/tsan -DEDGEWISE_NATIVE_TESTS=ON -DEDGEWISE_SANITIZE=thread
	$(BUILD) build/tsan && $(CTEST) build/tsan

clean: ## remove builds and the environment
	rm -rf build dist $(VENV) .venv-oracle .pytest_cache .mypy_cache .ruff_cache
