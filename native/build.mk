# `make native`: build edgewise._native in place, for working on the sources without installing.
PYTHON       ?= python3
NATIVE_BUILD ?= build/native

.PHONY: native native-tests
native: ## build the native module into src/edgewise
	cmake -S . -B $(NATIVE_BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(shell command -v $(PYTHON))
	cmake --build $(NATIVE_BUILD)
	cmake --install $(NATIVE_BUILD) --prefix $(NATIVE_BUILD)/install
	mv $(NATIVE_BUILD)/install/edgewise/_native*.so src/edgewise/  # a rename: processes that use the old one keep it

native-tests: ## build and run the C++ tests
	cmake -S . -B $(NATIVE_BUILD)-tests -G Ninja -DEDGEWISE_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo
	cmake --build $(NATIVE_BUILD)-tests
	ctest --test-dir $(NATIVE_BUILD)-tests --output-on-failure
