// The least a kernel test needs: a check that prints where, what and the seed, and goes on to the next.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace edgewise::testing {

inline int failures = 0;

inline void check(bool ok, const char* file, int line, const std::string& what) {
    if (ok) return;
    if (++failures <= 20) std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

// The exit status of a test program, after a line that says how it went.
inline int report(const char* name) {
    std::printf("%s: %d failures\n", name, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace edgewise::testing

#define CHECK(condition, what) ::edgewise::testing::check((condition), __FILE__, __LINE__, (what))
