// pool: a persistent team of threads that walks one parallel region at a time.
//
// In a region every thread runs the same body. The body splits its work into stages; a stage is a number of
// tasks that the threads take from a shared counter, so a thread whose core is away for a while takes fewer,
// and a barrier at its end. A waiting thread spins for a moment, then offers its core to others, then sleeps
// in the kernel: an idle pool uses no CPU, and two threads that have to share a core still make progress. A
// thread of the pool that finds itself on a core with another of the team moves to a free one: the system may
// leave them together for seconds, since a thread that offers its core looks content.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace edgewise {

inline constexpr int kMaxThreads = 256;

// What the threads of a region share. All of them must call for_each and barrier in the same order.
class Team {
  public:
    explicit Team(int threads)
        : threads_(threads), slices_(static_cast<size_t>(threads)), places_(static_cast<size_t>(threads)) {}

    int threads() const { return threads_; }

    // Calls task(i) once for each i in [0, tasks), on whichever thread is free, and returns when all are
    // done. An exception stops the region at the next stage and leaves Pool::run. No tasks: no barrier.
    template <class Task>
    void for_each(int64_t tasks, Task&& task) {
        if (tasks <= 0) return;
        try {
            for (int64_t i = take(); i < tasks; i = take()) task(i);
        } catch (...) {
            fail(std::current_exception());
        }
        barrier();
    }

    // The same, for tasks that are best done in order by one thread, such as walks through neighbouring
    // memory: each thread takes the tasks of its own slice of [0, tasks) from the front, and then those of
    // others from the back.
    template <class Task>
    void for_each_in_slices(int64_t tasks, int thread, Task&& task) {
        if (tasks > kMaxSlicedTasks) return for_each(tasks, task);
        if (tasks <= 0) return;
        try {
            for (int64_t i = take_own(tasks, thread); i >= 0; i = take_own(tasks, thread)) task(i);
            for (int other = 1; other < threads_; other++) {
                int victim = (thread + other) % threads_;
                for (int64_t i = steal(tasks, victim); i >= 0; i = steal(tasks, victim)) task(i);
            }
        } catch (...) {
            fail(std::current_exception());
        }
        barrier();
    }

    void barrier();

    // True when the region was asked to stop (or a task failed) before its latest barrier: the same answer on
    // every thread.
    bool stopped() const { return stopped_; }

  private:
    friend class Pool;

    // What is left of one thread's slice, [front, back), in the stage that `generation` names. In any other
    // stage the slice is still whole, so nobody has to set it up: a thread that is late cannot keep its slice
    // from the others.
    struct alignas(64) Slice {
        std::atomic<uint64_t> word = 0;  // generation << 32 | front << 16 | back
    };
    static constexpr int64_t kMaxSlicedTasks = 0xffff;

    int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }
    int64_t take_own(int64_t tasks, int thread) { return take_from(tasks, thread, true); }
    int64_t steal(int64_t tasks, int victim) { return take_from(tasks, victim, false); }
    int64_t take_from(int64_t tasks, int owner, bool front);  // -1: nothing left
    void fail(std::exception_ptr error);
    void wait_while(uint32_t generation);
    void leave_shared_core();

    // Where a thread was when it last arrived at a barrier.
    struct alignas(64) Place {
        std::atomic<int> core = -1;
        std::chrono::steady_clock::time_point moved;  // its own: when it last left a shared core
    };

    const int threads_;
    bool stopped_ = false;  // written by the last thread to arrive, before it opens the barrier
    const std::atomic<bool>* stop_request_ = nullptr;
    std::atomic<bool> failed_ = false;
    std::mutex error_mutex_;
    std::exception_ptr error_;
    // Each on a cache line of its own: waiting threads poll generation_ while others take tasks and arrive.
    alignas(64) std::atomic<int64_t> next_ = 0;
    alignas(64) std::atomic<int32_t> arrived_ = 0;
    alignas(64) std::atomic<uint32_t> generation_ = 0;
    alignas(64) std::atomic<int32_t> sleepers_ = 0;
    std::vector<Slice> slices_;
    std::vector<Place> places_;
};

class Pool {
  public:
    // The caller of run() is one of the `threads`. Throws std::invalid_argument unless 1 <= threads <=
    // kMaxThreads.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return team_.threads(); }

    // Runs body(team, thread) (which may throw inside tasks only) on every thread, thread 0 being the caller,
    // and returns when all have left it. `stop`, where given, may be set at any time by any thread and is
    // read at each barrier. One region at a time; further callers wait. Throws what a task threw, and
    // std::runtime_error after close() or in a forked child.
    using Body = std::function<void(Team&, int thread)>;
    void run(const Body& body, const std::atomic<bool>* stop = nullptr);

    // Ends the threads; waits for a region in progress. Later regions are refused. Idempotent.
    void close();

  private:
    void work(int thread);

    Team team_;
    std::mutex mutex_;
    const Body* body_ = nullptr;  // null: the threads end
    bool closed_ = false;
    const int process_;
    std::vector<std::thread> workers_;
};

}  // namespace edgewise
