// Threads that walk through the same work together: each takes its share, then all wait for one another.
#pragma once
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
static inline void wait_for_all() {
#pragma omp barrier
}
#else
static inline void wait_for_all() {}
#endif

struct Share { int64_t begin, end; };

struct Team {
  int me, size;
  // My part of so many pieces, in whole blocks.
  Share of(int64_t pieces, int64_t block = 1) const {
    const int64_t blocks = (pieces + block - 1) / block;
    const int64_t begin = blocks * me / size * block, end = blocks * (me + 1) / size * block;
    return {begin < pieces ? begin : pieces, end < pieces ? end : pieces};
  }
};

// Calls work(team) on so many threads.
template <class Work> static inline void together(int threads, const Work& work) {
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    work(Team{omp_get_thread_num(), omp_get_num_threads()});
    return;
  }
#endif
  (void)threads;
  work(Team{0, 1});
}
