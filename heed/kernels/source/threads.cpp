// Whose threads: those of the OpenMP runtime that torch computes with, if its functions are handed over. Two runtimes in one
// process would fight for the cores, and a library that is compiled elsewhere must not need one by its file's name.
#include "team.h"

#ifdef _OPENMP  // compiled here: the compiler's own runtime, unless another is handed over
#include <omp.h>

static void parallel(void (*work)(void*), void* given, unsigned threads, unsigned) {
#pragma omp parallel num_threads(threads)
  work(given);
}

OpenMp heed_openmp{parallel, omp_get_thread_num, omp_get_num_threads};
#else
OpenMp heed_openmp{nullptr, nullptr, nullptr};
#endif

extern "C" int32_t heed_threads(const OpenMp* given) {
  if (!given || !given->parallel || !given->me || !given->size) return MISSING;
  heed_openmp = *given;
  return DONE;
}
