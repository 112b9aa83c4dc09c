#include "groups.h"

#include <vector>

Refusal unfit(const Matrix& m) {
  // Up to here no sum of products overflows: 127 · 127 at least, 255 · 127, 3 · 128.
  constexpr int64_t WIDEST[] = {INT32_MAX, INT32_MAX / 127, INT32_MAX, INT32_MAX, INT32_MAX / 384, INT32_MAX / (255 * 127)};
  if (m.kind < FLOAT32 || m.kind > W8A8 || m.rows < 0 || m.columns < 1 || m.columns > WIDEST[m.kind]) return SIZES;
  if (!countable({m.rows, m.columns}) || (in_groups(m) && m.columns % 32)) return SIZES;
  if (m.across && (m.kind != FLOAT32 || m.across < m.rows || !countable({m.across, m.columns}))) return SIZES;
  if (m.rows && (!m.weights || (m.kind != FLOAT32 && !m.scales))) return MISSING;
  return DONE;
}

Refusal unfit(const Matrix& m, const Rounded& r, int64_t tokens) {
  if (m.kind == FLOAT32 || !tokens) return DONE;
  if (!present(tokens, {r.shorts, r.bytes, r.steps, r.sums})) return MISSING;
  return tokens <= r.tokens && stride_of(m) <= r.inputs ? DONE : SIZES;
}

// 127 · range · columns stays below 2^31: no sum of products can overflow 32 bits. Groups are summed 32 at a time.
int32_t range_of(const Matrix& m) {
  if (m.kind == TERNARY || m.kind == W8A8) return 127;
  const int64_t summed = m.kind == INT8 ? m.columns : 32;
  return (int32_t)std::min<int64_t>(32767, 2147483647 / (127 * summed));
}

float largest_magnitude(const float* x, int64_t count) {
  Float most = spread(0.0f);
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) most = larger(most, magnitude(load(x + k)));
  float top = largest(most);
  for (; k < count; ++k) top = std::max(top, std::fabs(x[k]));
  return top;
}

template <class Whole> static void round_to(const Matrix& m, const float* x, Whole* to, float& step, int32_t& total) {
  const float range = (float)range_of(m), top = std::max(largest_magnitude(x, m.columns), 1e-30f);
  const float factor = 1.0f / top * range;  // as torch divides a number by a tensor
  step = top / range;
  int64_t k = 0;
  Int sums = none();
  for (; k + LANES <= m.columns; k += LANES) {
    const Int n = nearest(mul(load(x + k), spread(factor)));
    sums = add(sums, n);
    store_whole(to + k, n);
  }
  total = sum(sums);
  for (; k < m.columns; ++k) total += to[k] = (Whole)std::nearbyint(x[k] * factor);
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
    const int64_t at = t * stride_of(m);
    if (in_groups(m) && !by_panels(m, tokens)) {
      round_groups(m, x + t * stride, to.shorts + at, to.steps[t]);
      continue;
    }
    if (m.kind == TERNARY)
      round_bytes(m, x + t * stride, to.bytes + at, to.steps[t], to.sums[t]);
    else if (in_bytes(m))
      round_to(m, x + t * stride, to.bytes + at, to.steps[t], to.sums[t]);
    else
      round_to(m, x + t * stride, to.shorts + at, to.steps[t], to.sums[t]);
    for (int64_t k = m.columns; k < stride_of(m); ++k) in_bytes(m) ? to.bytes[at + k] = 0 : to.shorts[at + k] = 0;
  }
}

// Weights are read once, row after row: those that come soon are fetched while these are used.
static inline void ahead(const void* here, int64_t bytes) {
  constexpr int64_t AHEAD = 8192;  // of 0 to 16,384 bytes the quickest, by measurement
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

// Weights of 8 bits times shorts, or times bytes: then weights lose their sign by 128 more, which tokens' sums take back.
struct ByShorts {
  using Token = int16_t;
  static constexpr int STEP = 2 * LANES;
  static constexpr int32_t OFFSET = 0;
  static Short weights(const int8_t* w) { return widened(w); }
  static Short token(const int16_t* x) { return shorts(x); }
  static Int more(Int sums, Short weights, Short token) { return dot(sums, weights, token); }
};
#if defined(HAS_DOT_BYTES)
struct ByBytes {
  using Token = int8_t;
  static constexpr int STEP = 4 * LANES;
  static constexpr int32_t OFFSET = 128;
  static Byte weights(const int8_t* w) { return unsign(bytes(w)); }
  static Byte token(const int8_t* x) { return bytes(x); }
  static Int more(Int sums, Byte weights, Byte token) { return dot_bytes(sums, weights, token); }
};
#endif

template <class By, int T, int R>
static void eights(const Matrix& m, const typename By::Token* x, const Rounded& given, int64_t token, float* y, int64_t out, int64_t row) {
  Int sums[T][ROWS];
  for (auto& line : sums)
    for (auto& each : line) each = none();
  const int64_t K = m.columns, stride = stride_of(m);
  const int8_t* w = (const int8_t*)m.weights + row * K;
  x += token * stride;
  int64_t k = 0;
  for (; k + By::STEP <= K; k += By::STEP) {
    ahead(w + R * k, R * By::STEP);
    decltype(By::weights(w)) own[R];
    UNROLL
    for (int r = 0; r < R; ++r) own[r] = By::weights(w + r * K + k);
    UNROLL
    for (int t = 0; t < T; ++t) {
      const auto here = By::token(x + t * stride + k);
      UNROLL
      for (int r = 0; r < R; ++r) sums[t][r] = By::more(sums[t][r], own[r], here);
    }
  }
  const float* scale = (const float*)m.scales + row;
  UNROLL
  for (int t = 0; t < T; ++t) {
    int32_t total[ROWS];
    four_sums(sums[t], total);
    for (int64_t rest = k; rest < K; ++rest)
      UNROLL
      for (int r = 0; r < R; ++r) total[r] += ((int32_t)w[r * K + rest] + By::OFFSET) * x[t * stride + rest];
    UNROLL
    for (int r = 0; r < R; ++r) {
      if (By::OFFSET) total[r] -= By::OFFSET * given.sums[token + t];
      const float value = (float)total[r] * (scale[r] * given.steps[token + t]);
      y[t * out + r] = m.bias ? value + m.bias[row + r] : value;
    }
  }
}

// Four rows in one row of bytes. A product is at most 2 · 128 and two of them are added: 63 such sums fit 16 bits.
template <int T>
static void ternary(const Matrix& m, int64_t row, const int8_t* x, const float* step, const int32_t* total, float* y, int64_t out) {
  constexpr int WIDE = 4 * LANES, SAFE = 63;
  const int64_t K = m.columns, quarter = (m.rows + 3) / 4, stride = stride_of(m);
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
        const Byte token = bytes(x + t * stride + k);
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
      for (int64_t rest = k; rest < K; ++rest) all += (int32_t)((w[rest] >> (2 * f)) & 3) * x[t * stride + rest];
      const float value = (float)all * (scale * step[t]);
      y[t * out + output] = m.bias ? value + m.bias[output] : value;
    }
}

template <int T, int R>
static void tile(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t token, float* y, int64_t out, int64_t row) {
  float* to = y + token * out + row;
  if (m.kind == FLOAT32)
    floats<T, R>(m, (const float*)m.weights + row * m.columns, x + token * stride, stride, to, out, row);
#if defined(HAS_DOT_BYTES)
  else if (m.kind == W8A8)
    eights<ByBytes, T, R>(m, r.bytes, r, token, to, out, row);
#endif
  else
    eights<ByShorts, T, R>(m, r.shorts, r, token, to, out, row);
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
  for (int64_t row = rows.begin; row < rows.end; ++row)
    ternary<T>(m, row, r.bytes + token * stride_of(m), r.steps + token, r.sums + token, y + token * out, out);
}

static void multiply_rows(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, float* y,
                          int64_t out_stride, Share rows) {
  if (in_groups(m)) return multiply_groups(m, r, tokens, y, out_stride, rows);
  constexpr int64_t NEAR = 192;  // tokens whose numbers stay in the second cache while rows of weights pass by
  const bool tiled = m.kind == FLOAT32 || m.kind == INT8 || m.kind == W8A8;
  const int64_t pass = tiled ? 32 : 8;  // rows of weights that stay in the first one
  for (int64_t first = 0; first < tokens; first += NEAR) {
    const int64_t last = std::min(tokens, first + NEAR);
    for (int64_t begin = rows.begin; begin < rows.end; begin += pass) {
      const Share some{begin, std::min(rows.end, begin + pass)};
      if (m.kind == FLOAT32) {
        tokens_by<FLOAT_TOKENS>(m, x, stride, r, {first, last}, y, out_stride, some);
      } else if (tiled) {
        tokens_by<SHORT_TOKENS>(m, x, stride, r, {first, last}, y, out_stride, some);
      } else {
        int64_t t = first;
        for (; t + 2 <= last; t += 2) single<2>(m, r, t, y, out_stride, some);
        if (t < last) single<1>(m, r, t, y, out_stride, some);
      }
    }
  }
}

void multiply(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, const Target& to,
              const Ending& ending, Share rows) {
  HEED_ASSERT(rows.begin >= 0 && rows.end <= (quartered(m, tokens) ? (m.rows + 3) / 4 : m.rows));
  if (by_panels(m, tokens)) return multiply_panels(m, x, stride, r, tokens, to, ending, rows);
  const bool direct = ending.mode == SET;
  float* y = direct ? to.y : to.scratch;
  const int64_t out = direct ? to.stride : m.rows;
  multiply_rows(m, x, stride, r, tokens, y, out, rows);
  Share parts[4] = {rows, {0, 0}, {0, 0}, {0, 0}};
  if (quartered(m, tokens))  // one of its rows is four outputs, a quarter of them apart
    for (int64_t f = 0, quarter = (m.rows + 3) / 4; f < 4; ++f)
      parts[f] = {std::min<int64_t>(m.rows, rows.begin + f * quarter), std::min<int64_t>(m.rows, rows.end + f * quarter)};
  for (const Share& part : parts)
    for (int64_t t = 0; t < tokens && part.begin < part.end; ++t) {
      float* made = y + t * out + part.begin;
      activate(ending.activation, made, part.end - part.begin);
      if (!direct) settle(ending, made, to.y + t * to.stride + part.begin, part.end - part.begin);
    }
}

Share rows_of(const Matrix& m, int64_t tokens, const Team& team) {
  if (quartered(m, tokens)) return team.of((m.rows + 3) / 4);
  return team.of(m.rows, by_panels(m, tokens) ? 2 * LANES : ROWS);
}

// One layer for many tokens, for callers of single layers. Scratch is the caller's.
extern "C" int32_t heed_linear(const Matrix* m, const float* x, int64_t tokens, const Rounded* r, float* y, int32_t threads) {
  if (!m || !r) return MISSING;
  if (!a_team(threads)) return THREADS;
  if (const Refusal refused = unfit(*m)) return refused;
  if (!countable({tokens, m->columns}) || !countable({tokens, m->rows})) return SIZES;
  if (const Refusal refused = unfit(*m, *r, tokens)) return refused;
  if (!present(tokens * m->rows, {x, y})) return MISSING;
  together(threads, [&](Team team) {
    if (m->kind != FLOAT32) {
      round_tokens(*m, x, tokens, m->columns, *r, team);
      team.wait();
    }
    const Target to{y, m->rows, nullptr};
    multiply(*m, x, m->columns, *r, tokens, to, Ending{IDENTITY, SET, 0.0f}, rows_of(*m, tokens, team));
  });
  return DONE;
}
