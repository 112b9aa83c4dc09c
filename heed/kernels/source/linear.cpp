#include "linear.h"

#include <vector>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")  // sums must be registers
#endif

// 127 · range · columns stays below 2^31: no sum of products can overflow 32 bits. Groups are summed 32 at a time.
int32_t range_of(const Matrix& m) {
  if (m.kind == TERNARY) return 127;
  const int64_t summed = m.kind == INT8 ? m.columns : 32;
  return (int32_t)std::min<int64_t>(32767, 2147483647 / (127 * summed));
}

static float largest_magnitude(const float* x, int64_t count) {
  Float most = spread(0.0f);
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) most = larger(most, magnitude(load(x + k)));
  float top = largest(most);
  for (; k < count; ++k) top = std::max(top, std::fabs(x[k]));
  return top;
}

static void round_shorts(const Matrix& m, const float* x, int16_t* to, float& step) {
  const float range = (float)range_of(m), top = std::max(largest_magnitude(x, m.columns), 1e-30f);
  const float factor = 1.0f / top * range;  // as torch divides a number by a tensor
  step = top / range;
  int64_t k = 0;
  for (; k + LANES <= m.columns; k += LANES) store_shorts(to + k, mul(load(x + k), spread(factor)));
  for (; k < m.columns; ++k) to[k] = (int16_t)std::nearbyint(x[k] * factor);
}

// As BitNet has it: at most 127 in magnitude before rounding, by a factor that is rounded once.
static void round_bytes(const Matrix& m, const float* x, int8_t* to, float& step, int32_t& total) {
  const float factor = 1.0f / std::max(largest_magnitude(x, m.columns), 1e-5f) * 127.0f;
  step = 1.0f / factor;
  total = 0;
  for (int64_t k = 0; k < m.columns; ++k) {
    const float n = std::nearbyint(x[k] * factor);
    to[k] = (int8_t)std::min(127.0f, std::max(-128.0f, n));
    total += to[k];
  }
}

void round_tokens(const Matrix& m, const float* x, int64_t tokens, int64_t stride, const Rounded& to, const Team& team) {
  const Share mine = team.of(tokens);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    if (m.kind == TERNARY)
      round_bytes(m, x + t * stride, to.bytes + t * m.columns, to.steps[t], to.sums[t]);
    else
      round_shorts(m, x + t * stride, to.shorts + t * m.columns, to.steps[t]);
  }
}

// Weights are read once, row after row: those that come soon are fetched while these are used.
static inline void ahead(const void* here, int64_t bytes) {
  constexpr int64_t AHEAD = 2048;  // of 1,024 to 8,192 bytes the quickest, by measurement
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch((const char*)here + AHEAD + line);
}

// So many tokens times so many rows of weights at a time: their sums stay in registers.
constexpr int ROWS = 4;
constexpr int FLOAT_TOKENS = LANES == 16 ? 6 : 3;
constexpr int SHORT_TOKENS = LANES == 16 ? 6 : 2;  // a product takes a register more

template <int T, int R>
static void floats(const Matrix& m, const float* w, const float* x, int64_t stride, float* y, int64_t out, int64_t row) {
  Float sums[T][ROWS];
  for (auto& line : sums)
    for (auto& each : line) each = spread(0.0f);
  const int64_t K = m.columns;
  int64_t k = 0;
  for (; k + LANES <= K; k += LANES) {
    ahead(w + R * k, R * LANES * sizeof(float));
    Float own[R];
    UNROLL
    for (int r = 0; r < R; ++r) own[r] = load(w + r * K + k);
    UNROLL
    for (int t = 0; t < T; ++t) {
      const Float token = load(x + t * stride + k);
      UNROLL
      for (int r = 0; r < R; ++r) sums[t][r] = fma(token, own[r], sums[t][r]);
    }
  }
  UNROLL
  for (int t = 0; t < T; ++t) {
    float total[ROWS];
    four_sums(sums[t], total);
    for (int64_t rest = k; rest < K; ++rest)
      UNROLL
      for (int r = 0; r < R; ++r) total[r] += w[r * K + rest] * x[t * stride + rest];
    UNROLL
    for (int r = 0; r < R; ++r) y[t * out + r] = m.bias ? total[r] + m.bias[row + r] : total[r];
  }
}

template <int T, int R>
static void eights(const Matrix& m, const int8_t* w, const int16_t* x, const float* step, float* y, int64_t out, int64_t row) {
  Int sums[T][ROWS];
  for (auto& line : sums)
    for (auto& each : line) each = none();
  const int64_t K = m.columns;
  int64_t k = 0;
  for (; k + 2 * LANES <= K; k += 2 * LANES) {
    ahead(w + R * k, R * 2 * LANES);
    Short own[R];
    UNROLL
    for (int r = 0; r < R; ++r) own[r] = widened(w + r * K + k);
    UNROLL
    for (int t = 0; t < T; ++t) {
      const Short token = shorts(x + t * K + k);
      UNROLL
      for (int r = 0; r < R; ++r) sums[t][r] = dot(sums[t][r], own[r], token);
    }
  }
  const float* scale = (const float*)m.scales + row;
  UNROLL
  for (int t = 0; t < T; ++t) {
    int32_t total[ROWS];
    four_sums(sums[t], total);
    for (int64_t rest = k; rest < K; ++rest)
      UNROLL
      for (int r = 0; r < R; ++r) total[r] += (int32_t)w[r * K + rest] * x[t * K + rest];
    UNROLL
    for (int r = 0; r < R; ++r) {
      const float value = (float)total[r] * (scale[r] * step[t]);
      y[t * out + r] = m.bias ? value + m.bias[row + r] : value;
    }
  }
}

// A group of 32 weights: whole numbers, of which four bits hold 8 more than they mean, low halves first.
static inline void group_of(const Matrix& m, int64_t row, int64_t group, int16_t* to) {
  const int64_t groups = m.columns / 32;
  if (m.kind == GROUPS8) {
    const int8_t* w = (const int8_t*)m.weights + (row * groups + group) * 32;
    for (int i = 0; i < 32; ++i) to[i] = w[i];
  } else {
    const uint8_t* w = (const uint8_t*)m.weights + (row * groups + group) * 16;
    for (int i = 0; i < 16; ++i) {
      to[i] = (int16_t)((w[i] & 15) - 8);
      to[i + 16] = (int16_t)((w[i] >> 4) - 8);
    }
  }
}

template <int T>
static void grouped(const Matrix& m, int64_t row, const int16_t* x, const float* step, float* y, int64_t out) {
  const int64_t K = m.columns, groups = K / 32;
  const uint16_t* scale = (const uint16_t*)m.scales + row * groups;
  Float sums[T];
  for (auto& each : sums) each = spread(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    Short own[32 / (2 * LANES)];
#if defined(__AVX2__) && !(defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__))
    if (m.kind == GROUPS4) {
      const __m128i packed = _mm_loadu_si128((const __m128i*)((const uint8_t*)m.weights + (row * groups + g) * 16));
      const __m128i nibble = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
      own[0] = _mm256_cvtepi8_epi16(_mm_sub_epi8(_mm_and_si128(packed, nibble), eight));
      own[1] = _mm256_cvtepi8_epi16(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(packed, 4), nibble), eight));
    } else {
      const int8_t* w = (const int8_t*)m.weights + (row * groups + g) * 32;
      own[0] = widened(w);
      own[1] = widened(w + 16);
    }
#else
    int16_t plain[32];
    group_of(m, row, g, plain);
    for (int i = 0; i < 32 / (2 * LANES); ++i) own[i] = shorts(plain + i * 2 * LANES);
#endif
    const Float times = spread(half_to_float(scale[g]));
    UNROLL
    for (int t = 0; t < T; ++t) {
      Int part = none();
      for (int i = 0; i < 32 / (2 * LANES); ++i) part = dot(part, own[i], shorts(x + t * K + g * 32 + i * 2 * LANES));
      sums[t] = fma(times, real(part), sums[t]);
    }
  }
  UNROLL
  for (int t = 0; t < T; ++t) {
    const float value = sum(sums[t]) * step[t];
    y[t * out] = m.bias ? value + m.bias[row] : value;
  }
}

// Four rows in one row of bytes. A product is at most 2 · 128 and two of them are added: 63 such sums fit 16 bits.
template <int T>
static void ternary(const Matrix& m, int64_t row, const int8_t* x, const float* step, const int32_t* total, float* y, int64_t out) {
  constexpr int WIDE = 4 * LANES, SAFE = 63;
  const int64_t K = m.columns, quarter = (m.rows + 3) / 4;
  const uint8_t* w = (const uint8_t*)m.weights + row * K;
  Int sums[T][4];
  for (auto& line : sums)
    for (auto& each : line) each = none();
  int64_t k = 0;
  while (k + WIDE <= K) {
    Short near[T][4];
    for (auto& line : near)
      for (auto& each : line) each = nothing();
    for (int n = 0; n < SAFE && k + WIDE <= K; ++n, k += WIDE) {
      const Byte packed = bytes(w + k);
      const Byte fields[4] = {field<0>(packed), field<2>(packed), field<4>(packed), field<6>(packed)};
      UNROLL
      for (int t = 0; t < T; ++t) {
        const Byte token = bytes(x + t * K + k);
        UNROLL
        for (int f = 0; f < 4; ++f) near[t][f] = dot_small(near[t][f], fields[f], token);
      }
    }
    UNROLL
    for (int t = 0; t < T; ++t)
      UNROLL
      for (int f = 0; f < 4; ++f) sums[t][f] = add(sums[t][f], sums_of(near[t][f]));
  }
  const float scale = *(const float*)m.scales;
  UNROLL
  for (int t = 0; t < T; ++t)
    UNROLL
    for (int f = 0; f < 4; ++f) {
      const int64_t output = row + f * quarter;
      if (output >= m.rows) continue;
      int32_t all = sum(sums[t][f]) - total[t];
      for (int64_t rest = k; rest < K; ++rest) all += (int32_t)((w[rest] >> (2 * f)) & 3) * x[t * K + rest];
      const float value = (float)all * (scale * step[t]);
      y[t * out + output] = m.bias ? value + m.bias[output] : value;
    }
}

template <int T, int R>
static void tile(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t token, float* y, int64_t out, int64_t row) {
  float* to = y + token * out + row;
  if (m.kind == FLOAT32)
    floats<T, R>(m, (const float*)m.weights + row * m.columns, x + token * stride, stride, to, out, row);
  else
    eights<T, R>(m, (const int8_t*)m.weights + row * m.columns, r.shorts + token * m.columns, r.steps + token, to, out, row);
}

template <int T>
static void several(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t token, float* y, int64_t out, Share rows) {
  int64_t row = rows.begin;
  for (; row + ROWS <= rows.end; row += ROWS) tile<T, ROWS>(m, x, stride, r, token, y, out, row);
  for (; row < rows.end; ++row) tile<T, 1>(m, x, stride, r, token, y, out, row);
}

// All tokens of a pass, as many at a time as there are registers for.
template <int MOST>
static void tokens_by(const Matrix& m, const float* x, int64_t stride, const Rounded& r, Share tokens, float* y, int64_t out, Share rows) {
  int64_t t = tokens.begin;
  for (; t + MOST <= tokens.end; t += MOST) several<MOST>(m, x, stride, r, t, y, out, rows);
  if constexpr (MOST > 1)
    if (t < tokens.end) tokens_by<MOST - 1>(m, x, stride, r, {t, tokens.end}, y, out, rows);
}

template <int T>
static void single(const Matrix& m, const Rounded& r, int64_t token, float* y, int64_t out, Share rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (m.kind == TERNARY)
      ternary<T>(m, row, r.bytes + token * m.columns, r.steps + token, r.sums + token, y + token * out, out);
    else
      grouped<T>(m, row, r.shorts + token * m.columns, r.steps + token, y + token * out + row, out);
  }
}

void multiply(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, float* y,
              int64_t out_stride, Share rows) {
  constexpr int64_t NEAR = 192;  // tokens whose numbers stay in the second cache while rows of weights pass by
  const int64_t pass = m.kind == FLOAT32 || m.kind == INT8 ? 32 : 8;  // rows of weights that stay in the first one
  for (int64_t first = 0; first < tokens; first += NEAR) {
    const int64_t last = std::min(tokens, first + NEAR);
    for (int64_t begin = rows.begin; begin < rows.end; begin += pass) {
      const Share some{begin, std::min(rows.end, begin + pass)};
      if (m.kind == FLOAT32) {
        tokens_by<FLOAT_TOKENS>(m, x, stride, r, {first, last}, y, out_stride, some);
      } else if (m.kind == INT8) {
        tokens_by<SHORT_TOKENS>(m, x, stride, r, {first, last}, y, out_stride, some);
      } else {
        int64_t t = first;
        for (; t + 2 <= last; t += 2) single<2>(m, r, t, y, out_stride, some);
        if (t < last) single<1>(m, r, t, y, out_stride, some);
      }
    }
  }
}

// One layer for many tokens, for who calls layers one by one. Scratch is the caller's.
extern "C" void heed_linear(const Matrix* m, const float* x, int64_t tokens, const Rounded* r, float* y, int32_t threads) {
  together(threads, [&](Team team) {
    if (m->kind != FLOAT32) {
      round_tokens(*m, x, tokens, m->columns, *r, team);
      team.wait();
    }
    multiply(*m, x, m->columns, *r, tokens, y, m->rows, team.of(row_count(*m), row_block(*m)));
  });
}
