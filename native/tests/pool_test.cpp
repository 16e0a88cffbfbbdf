// The pool: every task exactly once, barriers that order, stopping, failing, sleeping and waking.
#include "pool.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace edgewise;

namespace {

void expect(bool good, const std::string& what) {
    if (good) return;
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    std::exit(1);
}

// Plain counters: a task run twice, or a barrier that lets a thread through early, is a wrong count (and a
// race under TSan).
void every_task_once(int threads) {
    Pool pool(threads);
    std::vector<int> counts(1000), copy(1000), sliced(1000);
    for (int round = 0; round < 200; round++) {
        pool.run([&](Team& team, int thread) {
            team.for_each(1000, [&](int64_t i) { counts[static_cast<size_t>(i)]++; });
            team.for_each(1000, [&](int64_t i) {
                copy[static_cast<size_t>(i)] = counts[static_cast<size_t>(999 - i)];
            });
            team.for_each(0, [&](int64_t) { counts[0] = -1; });
            team.for_each_in_slices(0, thread, [&](int64_t) { counts[0] = -1; });
            team.for_each_in_slices(1000, thread, [&](int64_t i) {
                sliced[static_cast<size_t>(i)] += copy[static_cast<size_t>(i)];
            });
            team.for_each_in_slices(2, thread, [&](int64_t i) { sliced[static_cast<size_t>(i)] -= round; });
        });
        expect(
            sliced[0] == round + 1 && sliced[1] == round + 1 && sliced[999] == (round + 1) * (round + 2) / 2,
            "slices");
        for (int c : copy) expect(c == round + 1, "a task ran " + std::to_string(c) + " times");
    }
}

void all_threads_take_part(int threads) {
    Pool pool(threads);
    std::vector<int> seen(static_cast<size_t>(threads));
    pool.run([&](Team& team, int thread) {
        expect(team.threads() == threads, "team size");
        seen[static_cast<size_t>(thread)]++;
    });
    for (int s : seen) expect(s == 1, "each thread enters a region once");
}

void stops_at_a_barrier(int threads) {
    Pool pool(threads);
    std::atomic<bool> stop = false;
    std::vector<int> stages(static_cast<size_t>(threads));
    pool.run(
        [&](Team& team, int thread) {
            for (int stage = 0; stage < 100 && !team.stopped(); stage++) {
                stages[static_cast<size_t>(thread)]++;
                team.for_each(1, [&](int64_t) {
                    if (stage == 7) stop = true;
                });
            }
        },
        &stop);
    for (int s : stages) expect(s == 8, "stopped after " + std::to_string(s) + " stages, not 8");
    bool ran = false;
    pool.run([&](Team& team, int) { team.for_each(1, [&](int64_t) { ran = !team.stopped(); }); });
    expect(ran, "a stop does not outlive its region");
}

void passes_exceptions_on(int threads) {
    Pool pool(threads);
    for (int round = 0; round < 20; round++) {
        std::string caught;
        try {
            pool.run([&](Team& team, int) {
                team.for_each(50, [](int64_t i) {
                    if (i == 13) throw std::runtime_error("thirteen");
                });
                if (!team.stopped()) team.for_each(50, [](int64_t) { throw std::logic_error("went on"); });
            });
        } catch (const std::exception& error) {
            caught = error.what();
        }
        expect(caught == "thirteen", "the task's exception leaves run(), got '" + caught + "'");
    }
    all_threads_take_part(threads);
}

void sleeps_and_wakes(int threads) {
    Pool pool(threads);
    for (int round = 0; round < 20; round++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the workers stay awake
        std::atomic<int> done = 0;
        pool.run([&](Team& team, int) {
            team.for_each(8, [&](int64_t i) {
                if (i == 0)
                    std::this_thread::sleep_for(
                        std::chrono::milliseconds(1));  // the others sleep at the barrier
                done++;
            });
        });
        expect(done == 8, "all tasks are done after a sleep");
    }
}

void uses_no_cpu_when_idle(int threads) {
    Pool pool(threads);
    pool.run([](Team&, int) {});
    std::clock_t before = std::clock();  // CPU time of all threads
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    expect(seconds < 0.03, "an idle pool used " + std::to_string(seconds) + " s of 0.2 s");
}

void callers_take_turns(int threads) {
    Pool pool(threads);
    int inside = 0;
    auto caller = [&] {
        for (int round = 0; round < 50; round++) {
            pool.run([&](Team& team, int) { team.for_each(1, [&](int64_t) { inside++; }); });
        }
    };
    std::thread other(caller);
    caller();
    other.join();
    expect(inside == 100, "regions of two callers do not mix");
}

void refuses_after_close(int threads) {
    Pool pool(threads);
    pool.close();
    pool.close();
    bool refused = false;
    try {
        pool.run([](Team&, int) {});
    } catch (const std::runtime_error&) {
        refused = true;
    }
    expect(refused, "a closed pool refuses work");
}

void refuses_odd_sizes() {
    for (int threads : {0, -1, kMaxThreads + 1}) {
        bool refused = false;
        try {
            Pool pool(threads);
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        expect(refused, "a pool of " + std::to_string(threads) + " threads");
    }
}

}  // namespace

int main() {
    for (int threads : {1, 2, 3}) {
        every_task_once(threads);
        all_threads_take_part(threads);
        stops_at_a_barrier(threads);
        passes_exceptions_on(threads);
        sleeps_and_wakes(threads);
        uses_no_cpu_when_idle(threads);
        callers_take_turns(threads);
        refuses_after_close(threads);
    }
    refuses_odd_sizes();
    std::puts("pool: ok");
}
