// Tokens times weights in groups. Within a group sums are exact; the sums of groups times their steps are added up in
// float32: every fourth one by one, then the four (AVX2: every second). Panels do it in this order, too, so that a token
// gives the same alone as among others.
#include "groups.h"

#include <vector>

namespace {

constexpr int ROWS = 4;
constexpr int64_t AHEAD = 16384;  // bytes, at least: see `ahead`

template <class Kind> void round_as(const Matrix& m, const float* x, int16_t* to, float factor) {
  constexpr int64_t WIDE = BUNDLE * GROUP;
  const int64_t whole = m.columns / WIDE * WIDE;
  if (whole < m.columns) std::memset(to + whole, 0, WIDE * sizeof(int16_t));
  for (int64_t k = 0; k < m.columns; k += LANES) {
    int16_t* even = to + k / WIDE * WIDE + Kind::place(k % WIDE);
    store_apart(even, even + Kind::ODD, nearest(mul(load(x + k), spread(factor))));
  }
}

// Four rows of weights and their steps, so far apart, from some bundle on.
struct Rows {
  const uint8_t* weights;
  int64_t apart;
  const uint16_t* steps;
  int64_t steps_apart;
};

// Some tokens, what the offset of weights adds to each bundle of theirs, and how many bundles there are of a token.
struct Tokens {
  const int16_t* shorts;
  const Int* before;
  int64_t bundles;
};

// Rows are read side by side and lie one behind the other: the four that come next are fetched in the order of memory, to
// the second cache, since the first one is too small for them and these.
inline void ahead(const uint8_t* next, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
}

// A function of its own: inlined, compilers run out of registers.
template <class Kind, int T>
__attribute__((noinline)) void add_bundles(Rows w, const uint8_t* next, Share bundles, const Tokens& tokens, Float* to) {
  Float sums[T];
  UNROLL
  for (int t = 0; t < T; ++t) sums[t] = to[t];
  for (int64_t b = bundles.begin; b < bundles.end; ++b) {
    ahead(next, ROWS * BUNDLE * Kind::BYTES);
    next += ROWS * BUNDLE * Kind::BYTES;
    Short token[T][4];
    Int parts[T][ROWS];
    UNROLL
    for (int t = 0; t < T; ++t)
      UNROLL
      for (int i = 0; i < 4; ++i) {
        token[t][i] = shorts(tokens.shorts + (t * tokens.bundles + b) * BUNDLE * GROUP + i * 2 * LANES);
        if (T * LANES <= 32) token[t][i] = held(token[t][i]);
      }
    UNROLL
    for (int r = 0; r < ROWS; ++r) {
      Short own[4];
      Kind::unpack(w.weights + r * w.apart, own);
      UNROLL
      for (int t = 0; t < T; ++t)
        parts[t][r] = Kind::sums(own, token[t], tokens.before[t * tokens.bundles + b]);
    }
    const Float steps = steps_of(w.steps, w.steps_apart);
    UNROLL
    for (int t = 0; t < T; ++t) sums[t] = fma(steps, real(quarters(parts[t])), sums[t]);
    w.weights += BUNDLE * Kind::BYTES, w.steps += BUNDLE;
  }
  UNROLL
  for (int t = 0; t < T; ++t) to[t] = sums[t];
}

// The last groups of a row that are no whole bundle: the rest of it is zeros, as it is of tokens.
template <class Kind, int T> void add_rest(const Rows& w, int64_t groups, const Tokens& tokens, Float* to) {
  uint8_t weights[ROWS][BUNDLE * Kind::BYTES] = {};
  uint16_t steps[ROWS][BUNDLE] = {};
  for (int r = 0; r < ROWS; ++r) {
    std::memcpy(weights[r], w.weights + r * w.apart, groups * Kind::BYTES);
    std::memcpy(steps[r], w.steps + r * w.steps_apart, groups * sizeof(uint16_t));
  }
  const Rows rest{weights[0], BUNDLE * Kind::BYTES, steps[0], BUNDLE};
  add_bundles<Kind, T>(rest, weights[0], {tokens.bundles - 1, tokens.bundles}, tokens, to);
}

// Four rows of weights; or one, which then stands for four.
template <class Kind, int T>
void some_rows(const Matrix& m, Share rows, const Tokens& tokens, const float* step, float* y, int64_t out) {
  const int64_t groups = m.columns / GROUP, whole = groups / BUNDLE, bytes = groups * Kind::BYTES;
  const bool four = rows.end - rows.begin == ROWS;
  Rows w{(const uint8_t*)m.weights + rows.begin * bytes, four ? bytes : 0,
         (const uint16_t*)m.scales + rows.begin * groups, four ? groups : 0};
  Float sums[T];
  for (auto& each : sums) each = spread(0.0f);
  add_bundles<Kind, T>(w, w.weights + std::max(AHEAD, ROWS * bytes), {0, whole}, tokens, sums);
  w.weights += whole * BUNDLE * Kind::BYTES, w.steps += whole * BUNDLE;
  if (groups % BUNDLE) add_rest<Kind, T>(w, groups % BUNDLE, tokens, sums);
  for (int t = 0; t < T; ++t) {
    float total[ROWS];
    sum_of_quarters(sums[t], total);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float value = total[row - rows.begin] * step[t];
      y[t * out + row] = m.bias ? value + m.bias[row] : value;
    }
  }
}

template <class Kind> void all_rows(const Matrix& m, const Rounded& r, int64_t tokens, float* y, int64_t out, Share rows) {
  static thread_local std::vector<Int> before;
  const int64_t stride = stride_of(m), bundles = stride / (BUNDLE * GROUP);
  if ((int64_t)before.size() < tokens * bundles) before.resize(tokens * bundles);
  const Short more = all_shorts(-Kind::MORE), all[4] = {more, more, more, more};
  for (int64_t b = 0; b < tokens * bundles; ++b) {  // tokens lie one behind the other
    const int16_t* x = r.shorts + b * BUNDLE * GROUP;
    const Short token[4] = {shorts(x), shorts(x + 2 * LANES), shorts(x + 4 * LANES), shorts(x + 6 * LANES)};
    before[b] = Kind::sums(all, token, none());
  }
  for (int64_t row = rows.begin, next; row < rows.end; row = next) {
    next = row + (row + ROWS <= rows.end ? ROWS : 1);
    const Share some{row, next};
    for (int64_t t = 0; t < tokens;) {
      const Tokens here{r.shorts + t * stride, &before[t * bundles], bundles};
      const int64_t left = tokens - t;
      if (left >= 4)
        some_rows<Kind, 4>(m, some, here, r.steps + t, y + t * out, out), t += 4;
      else if (left >= 2)
        some_rows<Kind, 2>(m, some, here, r.steps + t, y + t * out, out), t += 2;
      else
        some_rows<Kind, 1>(m, some, here, r.steps + t, y + t * out, out), t += 1;
    }
  }
}

// As shorts, in the order of inputs.
void lay_bytes(const int8_t* w, int64_t groups, int16_t* to) {
  for (int64_t k = 0; k < groups * GROUP; k += 2 * LANES) {
    const Short wide = widened(w + k);
    std::memcpy(to + k, &wide, sizeof wide);
  }
}

void lay_halves(const uint8_t* w, int64_t groups, int16_t* to) {
  for (int64_t g = 0; g < groups; ++g, w += Halves::BYTES, to += GROUP) {
#if defined(__AVX2__) && !defined(PORTABLE)
    const __m256i packed = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)w)), more = _mm256_set1_epi16(Halves::MORE);
    const __m256i low = _mm256_and_si256(packed, _mm256_set1_epi16(15)), high = _mm256_srli_epi16(packed, 4);
    _mm256_storeu_si256((__m256i*)to, _mm256_sub_epi16(low, more));
    _mm256_storeu_si256((__m256i*)to + 1, _mm256_sub_epi16(high, more));
#else
    for (int i = 0; i < 16; ++i) to[i] = (int16_t)((w[i] & 15) - 8), to[i + 16] = (int16_t)((w[i] >> 4) - 8);
#endif
  }
}

}  // namespace

void round_groups(const Matrix& m, const float* x, int16_t* to, float& step) {
  const float range = (float)range_of(m), top = std::max(largest_magnitude(x, m.columns), 1e-30f);
  const float factor = 1.0f / top * range;  // as torch divides a number by a tensor
  step = top / range;
  m.kind == GROUPS4 ? round_as<Halves>(m, x, to, factor) : round_as<Bytes>(m, x, to, factor);
}

void multiply_groups(const Matrix& m, const Rounded& r, int64_t tokens, float* y, int64_t out, Share rows) {
  m.kind == GROUPS4 ? all_rows<Halves>(m, r, tokens, y, out, rows) : all_rows<Bytes>(m, r, tokens, y, out, rows);
}

void lay_groups(const Matrix& m, int64_t row, int64_t first, int64_t count, int16_t* to) {
  const int64_t at = row * (m.columns / GROUP) + first;
  if (m.kind == GROUPS4)
    lay_halves((const uint8_t*)m.weights + at * Halves::BYTES, count, to);
  else
    lay_bytes((const int8_t*)m.weights + at * Bytes::BYTES, count, to);
}

void lay_steps(const Matrix& m, int64_t row, int64_t count, int64_t first, int64_t groups, float* to, int64_t apart) {
  const int64_t all = m.columns / GROUP, last = m.rows - 1;
  for (int64_t r = 0; r < count; r += 4) {
    const uint16_t* from = (const uint16_t*)m.scales + row * all + r * all + first;
    int64_t g = 0;
    for (; row + r + 4 <= m.rows && g + BUNDLE <= groups; g += BUNDLE) {
      float steps[LANES];
      store(steps, steps_of(from + g, all));
      for (int i = 0; i < BUNDLE; ++i) std::memcpy(to + (g + i) * apart + r, steps + i * 4, 4 * sizeof(float));
    }
    for (; g < groups; ++g)
      for (int64_t i = 0; i < 4; ++i)
        to[g * apart + r + i] = half_to_float(((const uint16_t*)m.scales)[std::min(row + r + i, last) * all + first + g]);
  }
}
