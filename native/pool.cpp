#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace edgewise {

namespace {

using Clock = std::chrono::steady_clock;

// Most waits end within this time, and a spinning thread leaves the barrier at once.
constexpr auto kSpin = std::chrono::microseconds(5);
// Then the other thread is in the middle of a task, or has lost its core, perhaps to this very thread:
// offering the core costs half a microsecond when nobody wants it. On two cores shared with ten busy
// processes this and a short kSpin gave twice the tokens/s of spinning 100 us and sleeping. It is long enough
// to bridge what the caller does between two steps, since waking a sleeping thread takes some 50 us.
constexpr auto kYield = std::chrono::microseconds(1000);
constexpr int kPausesPerClockRead = 16;
// Between two moves to another core, so that a system that insists is not fought: a move costs some 20 us.
constexpr auto kMoveInterval = std::chrono::milliseconds(10);

// The number of this thread in the team it is running in; callers of Pool::run are number 0.
thread_local int this_thread = 0;

inline void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

int checked_threads(int threads) {
    if (threads < 1 || threads > kMaxThreads) {
        throw std::invalid_argument("threads must be between 1 and " + std::to_string(kMaxThreads) +
                                    ", got " + std::to_string(threads));
    }
    return threads;
}

int current_core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

void name_this_thread(int thread) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), ("edgewise-" + std::to_string(thread)).c_str());
#else
    (void)thread;
#endif
}

}  // namespace

void Team::barrier() {
    uint32_t generation = generation_.load(std::memory_order_relaxed);  // stays until this thread has arrived
    places_[static_cast<size_t>(this_thread)].core.store(current_core(), std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) != threads_ - 1) return wait_while(generation);
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    stopped_ = failed_.load(std::memory_order_relaxed) ||
               (stop_request_ && stop_request_->load(std::memory_order_relaxed));
    // Sequentially consistent, as are the sleeper's two: either it is seen here or it sees the new
    // generation.
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) generation_.notify_all();
}

int64_t Team::take_from(int64_t tasks, int owner, bool front) {
    // This thread has yet to arrive at the stage's barrier, so the generation stays. Everything else is
    // ordered by the barriers.
    uint64_t stage = uint64_t{generation_.load(std::memory_order_relaxed)} << 32;
    std::atomic<uint64_t>& word = slices_[static_cast<size_t>(owner)].word;
    uint64_t old = word.load(std::memory_order_relaxed);
    for (;;) {
        bool whole = (old ^ stage) >> 32 != 0;
        uint64_t first = whole ? static_cast<uint64_t>(tasks * owner / threads_) : old >> 16 & 0xffff;
        uint64_t last = whole ? static_cast<uint64_t>(tasks * (owner + 1) / threads_) : old & 0xffff;
        if (first >= last) return -1;
        uint64_t left = front ? (first + 1) << 16 | last : first << 16 | (last - 1);
        if (word.compare_exchange_weak(old, stage | left, std::memory_order_relaxed)) {
            return static_cast<int64_t>(front ? first : last - 1);
        }
    }
}

void Team::wait_while(uint32_t generation) {
    auto changed = [&] { return generation_.load(std::memory_order_acquire) != generation; };
    Clock::time_point start = Clock::now();
    for (auto waited = Clock::duration::zero(); waited < kYield; waited = Clock::now() - start) {
        if (waited < kSpin) {
            for (int i = 0; i < kPausesPerClockRead; i++) {
                if (changed()) return;
                pause_briefly();
            }
        } else {
            if (changed()) return;
            leave_shared_core();
            sched_yield();
        }
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    generation_.wait(generation, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// Called while waiting. A thread that is seen on this core is not running: this one is. Threads of the pool
// move away from it, to any core they are allowed that no other of the team was seen on, and are then free to
// be moved again; the caller of run() belongs to somebody else and stays.
void Team::leave_shared_core() {
#if defined(__linux__)
    if (this_thread == 0) return;
    int core = current_core();
    Place& own = places_[static_cast<size_t>(this_thread)];
    auto shares = [&](const Place& other) {
        return &other != &own && other.core.load(std::memory_order_relaxed) == core;
    };
    if (core < 0 || std::none_of(places_.begin(), places_.end(), shares)) return;
    auto now = Clock::now();
    if (now - own.moved < kMoveInterval) return;
    own.moved = now;
    cpu_set_t allowed, free;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more cores than the set has bits
    free = allowed;
    for (const Place& place : places_) {
        int taken = place.core.load(std::memory_order_relaxed);
        if (taken >= 0 && taken < CPU_SETSIZE) CPU_CLR(static_cast<size_t>(taken), &free);
    }
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return;
    sched_setaffinity(0, sizeof allowed, &allowed);
    own.core.store(current_core(), std::memory_order_relaxed);
#endif
}

void Team::fail(std::exception_ptr error) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(error);
    failed_.store(true, std::memory_order_relaxed);
}

// An idle worker waits at a barrier that the caller of run() completes: the start of a region, its stages and
// its end are one and the same mechanism.
Pool::Pool(int threads) : team_(checked_threads(threads)), process_(getpid()) {
    for (int thread = 1; thread < threads; thread++) workers_.emplace_back(&Pool::work, this, thread);
}

Pool::~Pool() { close(); }

void Pool::work(int thread) {
    name_this_thread(thread);
    this_thread = thread;
    for (;;) {
        team_.barrier();
        if (!body_) return;
        (*body_)(team_, thread);
        team_.barrier();
    }
}

void Pool::run(const Body& body, const std::atomic<bool>* stop) {
    std::lock_guard lock(mutex_);
    if (closed_) throw std::runtime_error("the pool is closed");
    if (getpid() != process_) throw std::runtime_error("a pool cannot be used in a forked process");
    body_ = &body;
    team_.stop_request_ = stop;
    team_.failed_.store(false, std::memory_order_relaxed);
    team_.error_ = nullptr;
    int outer = std::exchange(this_thread, 0);  // the caller may be another pool's thread
    team_.barrier();
    body(team_, 0);
    team_.barrier();
    this_thread = outer;
    if (team_.error_) std::rethrow_exception(std::exchange(team_.error_, nullptr));
}

void Pool::close() {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    if (getpid() != process_) {  // the threads did not come along
        for (std::thread& worker : workers_) worker.detach();
        return;
    }
    body_ = nullptr;
    team_.barrier();
    for (std::thread& worker : workers_) worker.join();
}

}  // namespace edgewise
