# Everything CI and people call. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= smollm2-135m-instruct
PORT   ?= 8000

.DEFAULT_GOAL := help
.PHONY: help setup serve test quick check format bench quality peers sanitize clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The stamp records what the environment was made from: a change of sources of the native part or of the
# dependencies makes it anew.
STAMP   := $(VENV)/.installed
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.h')

$(STAMP): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24" scikit-build-core nanobind ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[dev]"
	touch $@

setup: $(STAMP) ## make .venv with edgewise (editable) and the development tools

serve: $(STAMP) ## build, get MODEL (default SmolLM2-135M) and serve it on PORT
	$(BIN)/edgewise serve $(MODEL) --port $(PORT)

test: $(STAMP) ## the whole test suite
	$(BIN)/python -m pytest -q

quick: $(STAMP) ## the fast tier: no downloads, under a minute
	$(BIN)/python -m pytest -q -m "not model and not slow"

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

sanitize: ## native tests under ASan/UBSan and TSan
	cmake -S . -B build/asan -G Ninja -DEDGEWISE_NATIVE_TESTS=ON -DEDGEWISE_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	cmake --build build/asan && ctest --test-dir build/asan --output-on-failure
	cmake -S . -B build/tsan -G Ninja -DEDGEWISE_NATIVE_TESTS=ON -DEDGEWISE_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo
	cmake --build build/tsan && ctest --test-dir build/tsan --output-on-failure

clean: ## remove builds and the environment
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache
