// What kernels refuse. Every entry point looks at the counts and addresses that it is told before it reads or writes
// anything, and gives one of these; heed/kernels/refusals.py has the words. A debug build (HEED_DEBUG) looks at places
// within loops as well, and stops with the line.
#pragma once
#include <cstdint>
#include <initializer_list>
#if defined(HEED_DEBUG)
#include <cstdio>
#include <cstdlib>
#define HEED_ASSERT(holds) \
  ((holds) ? (void)0 : (std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), std::abort()))
#else
#define HEED_ASSERT(holds) ((void)0)
#endif

enum Refusal : int32_t {
  DONE,
  VALUES,     // a token that is not in the vocabulary, a label that is no class
  SIZES,      // a count that is negative, or more than memory can hold; or too little room for it
  MISSING,    // no address where there must be numbers
  THREADS,    // no thread, or too many
  PROGRAM,    // an instruction that does not fit its registers, cells or matrix
  CACHES,     // a KV cache without room, or entries that lie outside of it
  POSITIONS,  // a position without a code
};

// Whether these are counts, and their product is one of numbers that memory can hold.
static inline bool countable(std::initializer_list<int64_t> counts) {
  int64_t product = 1;
  for (const int64_t count : counts)
    if (count < 0 || __builtin_mul_overflow(product, count ? count : 1, &product)) return false;
  return product <= int64_t(1) << 56;
}

// Whether all of these are addresses, if there are any numbers at all.
static inline bool present(int64_t numbers, std::initializer_list<const void*> addresses) {
  for (const void* address : addresses)
    if (numbers && !address) return false;
  return true;
}

constexpr int32_t MOST_THREADS = 1 << 14;
static inline bool a_team(int32_t threads) { return threads >= 1 && threads <= MOST_THREADS; }
