// Weights on huge pages: memory that is read from end to end is read a fifth faster when its pages are 2 MiB, since
// what fetches ahead stops at the end of a page. Linux alone; elsewhere, and where the system will not, nothing happens.
#include "checks.h"

#include <algorithm>
#include <utility>
#include <vector>

static Refusal unfit(const int64_t* begins, const int64_t* sizes, int64_t count) {
  if (!countable({count})) return SIZES;
  if (!present(count, {begins, sizes})) return MISSING;
  for (int64_t i = 0; i < count; ++i)
    if (!countable({sizes[i]})) return SIZES;
  return DONE;
}

#if defined(__linux__)
#include <sys/mman.h>

static constexpr uintptr_t HUGE_PAGE = 2 << 20, APART = 256 << 10;
#if !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25  // since Linux 6.1; older ones refuse
#endif

static bool advise(uintptr_t begin, uintptr_t end, int how) {
  begin = (begin + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, end = end / HUGE_PAGE * HUGE_PAGE;
  return begin >= end || madvise((void*)begin, end - begin, how) == 0;
}

// What lies close together is one piece: a matrix may be smaller than a page.
extern "C" int32_t heed_huge_pages(const int64_t* begins, const int64_t* sizes, int64_t count, int32_t now) {
  if (const Refusal refused = unfit(begins, sizes, count)) return refused;
  std::vector<std::pair<uintptr_t, uintptr_t>> pieces;
  for (int64_t i = 0; i < count; ++i) pieces.push_back({(uintptr_t)begins[i], (uintptr_t)begins[i] + sizes[i]});
  std::sort(pieces.begin(), pieces.end());
  for (size_t i = 0; i < pieces.size();) {
    const size_t first = i;
    uintptr_t end = pieces[i].second;
    for (++i; i < pieces.size() && pieces[i].first <= end + APART; ++i) end = std::max(end, pieces[i].second);
    const int how = now ? MADV_COLLAPSE : MADV_HUGEPAGE;
    if (!advise(pieces[first].first, end, how))  // something between them is not memory
      for (size_t j = first; j < i; ++j) advise(pieces[j].first, pieces[j].second, how);
  }
  return DONE;
}
#else
extern "C" int32_t heed_huge_pages(const int64_t* begins, const int64_t* sizes, int64_t count, int32_t) {
  return unfit(begins, sizes, count);
}
#endif
