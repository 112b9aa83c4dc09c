// Threads that walk through the same work together: each takes its share, then all wait for one another.
#pragma once
#include "checks.h"

#include <atomic>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

struct Share { int64_t begin, end; };

// Where threads meet. Waiting is short: a waiting thread looks again and again, and then sleeps until the last one is there.
// (OpenMP's own barrier would look for long; on a busy machine it then waits for a thread whose place it takes.)
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), left_(size) {}
  void wait() {
    if (size_ == 1) return;
    const int32_t now = round_.load(std::memory_order_acquire);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      left_.store(size_, std::memory_order_relaxed);
      round_.store(now + 1, std::memory_order_seq_cst);
      if (asleep_.load(std::memory_order_seq_cst)) wake();
      return;
    }
    for (int looks = 0; looks < LOOKS; ++looks) {
      if (round_.load(std::memory_order_acquire) != now) return;
      pause();
    }
    // Who wakes looks at `asleep_` after it has changed `round_`; who sleeps, the other way round: one of them sees the other.
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    while (round_.load(std::memory_order_seq_cst) == now) sleep(now);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  static constexpr int LOOKS = 2000;  // some 30 microseconds
  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
#if defined(__linux__)
  // The system compares once more: it does not let a thread sleep whose round is over.
  void sleep(int32_t now) { syscall(SYS_futex, &round_, FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0); }
  void wake() { syscall(SYS_futex, &round_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0); }
#else
  static void sleep(int32_t) { std::this_thread::yield(); }
  static void wake() {}
#endif
  const int size_;
  alignas(64) std::atomic<int> left_;
  alignas(64) std::atomic<int32_t> round_{0};
  std::atomic<int32_t> asleep_{0};
};
static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t), "the system looks at the number itself");

// How many blocks of a thread's share were begun; for itself in its line of the cache.
struct alignas(64) Begun {
  std::atomic<int64_t> blocks{0};
};

struct Team {
  int me, size;
  Meeting* meeting;
  Begun* begun = nullptr;  // of every thread, for one piece of work
  void wait() const { meeting->wait(); }
  // My part of so many pieces, in whole blocks.
  Share of(int64_t pieces, int64_t block = 1) const {
    HEED_ASSERT(pieces >= 0 && block >= 1 && me >= 0 && me < size);
    const int64_t blocks = (pieces + block - 1) / block;
    const int64_t begin = blocks * me / size * block, end = blocks * (me + 1) / size * block;
    return {begin < pieces ? begin : pieces, end < pieces ? end : pieces};
  }
  // The next block not yet begun: of my share first, then of others', so that no thread waits for a slow one.
  bool take(int64_t pieces, int64_t block, Share& mine) const {
    HEED_ASSERT(begun);
    for (int i = 0; i < size; ++i) {
      const int whose = (me + i) % size;
      const Share all = Team{whose, size, meeting}.of(pieces, block);
      const int64_t at = all.begin + begun[whose].blocks.fetch_add(1, std::memory_order_relaxed) * block;
      if (at >= all.end) continue;
      mine = {at, at + block < all.end ? at + block : all.end};
      return true;
    }
    return false;
  }
};

// A runtime of OpenMP, by its functions: GOMP_parallel, omp_get_thread_num, omp_get_num_threads.
struct OpenMp {
  void (*parallel)(void (*work)(void*), void* given, unsigned threads, unsigned flags);
  int (*me)();
  int (*size)();
};
extern OpenMp heed_openmp;  // threads.cpp

// Calls work(team) on so many threads.
template <class Work> static inline void together(int threads, const Work& work) {
  if (threads > 1 && heed_openmp.parallel) {
    struct Call {
      const Work& work;
      int threads;
      Meeting meeting;
      std::atomic<bool> fewer;
    } call{work, threads, Meeting(threads), {false}};
    const auto run = [](void* given) {
      Call& call = *static_cast<Call*>(given);
      if (heed_openmp.size() == call.threads)
        call.work(Team{heed_openmp.me(), call.threads, &call.meeting});
      else
        call.fewer = true;
    };
    heed_openmp.parallel(run, &call, threads, 0);
    if (!call.fewer) return;  // a system may give fewer than were asked for
  }
  Meeting alone(1);
  work(Team{0, 1, &alone});
}
