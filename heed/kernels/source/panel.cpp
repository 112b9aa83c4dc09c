// Many tokens times a matrix, panel by panel.
#include "panel.h"

#include <vector>

namespace {

constexpr int64_t DEEP = 1024;        // words of a row that are laid out at once
constexpr int64_t CLOSE = 128 << 10;  // words of panels that stay in the second cache while tokens pass by

void multiply_kind(const Matrix& m, const Tile& tile, int64_t tokens) {
  if (m.kind == FLOAT32) return multiply_tokens<Singles, TILE>(tile, tokens);
  if (in_groups(m)) return multiply_groups_by<TILE>(tile, tokens);
#if defined(HAS_DOT_BYTES)
  if (in_bytes(m)) return multiply_tokens<Fours, TILE>(tile, tokens);
#endif
  multiply_tokens<Pairs, TILE>(tile, tokens);
}

// Words first .. first + count - 1 of a row of weights; `room` is where they are written if they are not words yet.
const int32_t* words_of(const Matrix& m, int64_t row, int64_t first, int64_t count, int32_t* room) {
  const int64_t K = m.columns, per = in_bytes(m) ? 4 : 2;
  if (m.kind == FLOAT32) return (const int32_t*)m.weights + row * K + first;
  if (in_groups(m)) {
    lay_groups(m, row, first / (GROUP / 2), count / (GROUP / 2), (int16_t*)room);
    return room;
  }
  const int64_t begin = first * per, end = std::min(K, begin + count * per);
  room[count - 1] = 0;
  if (m.kind == TERNARY) {
    const int64_t quarter = (m.rows + 3) / 4;
    const uint8_t* codes = (const uint8_t*)m.weights + row % quarter * K;
    const int shift = (int)(row / quarter * 2);
    for (int64_t k = begin; k < end; ++k) ((uint8_t*)room)[k - begin] = (codes[k] >> shift) & 3;
  } else {
    const int8_t* w = (const int8_t*)m.weights + row * K;
    if (in_bytes(m))
      for (int64_t k = begin; k < end; ++k) ((uint8_t*)room)[k - begin] = (uint8_t)w[k] ^ 0x80;
    else
      for (int64_t k = begin; k < end; ++k) ((int16_t*)room)[k - begin] = w[k];
  }
  return room;
}

// PANEL rows from `row` on. Where there is no row, the last one again: its outputs are not read.
void lay(const Matrix& m, int64_t row, int64_t first, int64_t count, int32_t* panel) {
  if (m.across) {
    const int64_t some = std::min<int64_t>(PANEL, m.rows - row);
    for (int64_t k = 0; k < count; ++k) {
      std::memcpy(panel + k * PANEL, (const float*)m.weights + (first + k) * m.across + row, some * sizeof(float));
      std::memset(panel + k * PANEL + some, 0, (PANEL - some) * sizeof(float));
    }
    return;
  }
  static thread_local std::vector<int32_t> room;
  if ((int64_t)room.size() < PANEL * count) room.resize(PANEL * count);
  const int32_t* rows[PANEL];
  for (int64_t r = 0; r < PANEL; ++r)
    rows[r] = words_of(m, std::min<int64_t>(row + r, m.rows - 1), first, count, room.data() + r * count);
  side_by_side(rows, 0, count, panel);
}

// Tokens that are half a page apart, or whole pages, would drive one another out of the first cache.
bool crowded(int64_t apart) { return apart * sizeof(int32_t) % 2048 == 0; }

// Some tokens with room between them.
struct Apart {
  std::vector<int32_t> room;
  int64_t wide;
  Apart(int64_t count) : room(TILE * (count + 16)), wide(count + 16) {}
  const int32_t* words(const int32_t* tokens, int64_t some, int64_t count, int64_t apart) {
    for (int64_t t = 0; t < some; ++t) std::memcpy(&room[t * wide], tokens + t * apart, count * sizeof(int32_t));
    return room.data();
  }
};

// What sums of a panel stand for: whole numbers times their steps, and the bias.
struct Meaning {
  const Matrix& m;
  const Rounded& r;
  const float *scale, *bias;  // of the panel's rows
  Float operator()(const float* sums, int64_t token, int at) const {
    Float value = load(sums + at);
    if (in_groups(m)) {
      for (int g = 1; g < BUNDLE; ++g) value = add(value, load(sums + g * PANEL + at));
      value = mul(value, spread(r.steps[token]));
    } else if (m.kind != FLOAT32) {
      const int32_t offset = m.kind == TERNARY ? 1 : in_bytes(m) ? 128 : 0;
      const Int whole = sub(words(sums + at), all(offset * r.sums[token]));
      value = mul(real(whole), mul(load(scale + at), spread(r.steps[token])));
    }
    return m.bias ? add(value, load(bias + at)) : value;
  }
};

// What becomes of the sums of some tokens.
void finish(const Meaning& meaning, Share tokens, int64_t row, const float* sums, int64_t apart, const Target& to, const Ending& ending) {
  const int64_t rows = std::min<int64_t>(PANEL, meaning.m.rows - row);
  by_activation(ending.activation, [&](auto activation) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t, sums += apart) {
      float edge[PANEL], *y = to.y + t * to.stride + row, *into = rows == PANEL ? y : edge;
      if (into == edge) std::memcpy(edge, y, rows * sizeof(float));  // what lies behind is another's
      for (int at = 0; at < PANEL; at += LANES) settle(ending, activated(activation, meaning(sums, t, at)), into + at);
      if (into == edge) std::memcpy(y, edge, rows * sizeof(float));
    }
  });
}

// Where outputs go: fetched while they are computed.
void fetch(const Target& to, Share tokens, int64_t row) {
  for (int64_t t = tokens.begin; t < tokens.end; ++t)
    for (int at = 0; at < PANEL; at += 16) __builtin_prefetch(to.y + t * to.stride + row + at, 1);
}

}  // namespace

// Fewer tokens do not pay for the laying out; nor do whole numbers where a product is more than one instruction.
bool by_panels(const Matrix& m, int64_t tokens) {
  if (m.kind == FLOAT32) return tokens >= 12 || m.across;  // by measurement, like the others
  if (in_groups(m)) return tokens >= 12;
#if defined(HAS_DOT_BYTES)
  return tokens >= (m.kind == INT8 ? 32 : 24);
#else
  return false;
#endif
}

void multiply_panels(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, const Target& to,
                     const Ending& ending, Share rows) {
  static thread_local std::vector<int32_t> panels;
  static thread_local std::vector<float> held, scale, bias, steps;
  const bool floats = m.kind == FLOAT32, groups = in_groups(m);
  const int64_t per = floats ? 1 : in_bytes(m) ? 4 : 2, deep = (m.columns + per - 1) / per;
  const int32_t* given = floats ? (const int32_t*)x : in_bytes(m) ? (const int32_t*)r.bytes : (const int32_t*)r.shorts;
  const int64_t apart = floats ? stride : stride_of(m) / per, most = std::min(DEEP, deep);
  const int64_t several = std::max<int64_t>(1, CLOSE / (PANEL * most)), wide = several * PANEL;
  const int64_t sums_each = groups ? BUNDLE : 1;  // for a row and a token
  const bool once = deep <= DEEP;  // else sums wait for the rest of their row
  const bool moved = crowded(apart);
  Apart copied(moved ? most : 0);
  panels.resize(std::max<size_t>(panels.size(), wide * most));
  held.resize(std::max<size_t>(held.size(), (once ? TILE * PANEL : tokens * wide) * sums_each));
  scale.assign(wide, 0.0f), bias.assign(wide, 0.0f);
  if (groups) steps.resize(std::max<size_t>(steps.size(), wide * most / (GROUP / 2)));
  for (int64_t begin = rows.begin; begin < rows.end; begin += wide) {
    const int64_t end = std::min(rows.end, begin + wide);
    for (int64_t n = begin; n < end; ++n) {
      if (!floats && !groups) scale[n - begin] = ((const float*)m.scales)[m.kind == TERNARY ? 0 : n];
      if (m.bias) bias[n - begin] = m.bias[n];
    }
    for (int64_t first = 0; first < deep; first += DEEP) {
      const int64_t count = std::min(DEEP, deep - first), steps_each = count / (GROUP / 2);
      for (int64_t row = begin; row < end; row += PANEL) {
        lay(m, row, first, count, &panels[(row - begin) * count]);
        if (groups) lay_steps(m, row, PANEL, first / (GROUP / 2), steps_each, &steps[(row - begin) * steps_each], PANEL);
      }
      for (int64_t t = 0; t < tokens; t += TILE) {
        const int64_t some = std::min<int64_t>(TILE, tokens - t);
        const int32_t* here = given + t * apart + first;
        if (moved) here = copied.words(here, some, count, apart);
        for (int64_t row = begin; row < end; row += PANEL) {
          const int64_t at = row - begin, out = PANEL * sums_each;
          float* sums = once ? held.data() : &held[(at * tokens + t * PANEL) * sums_each];
          const Tile tile{here, moved ? copied.wide : apart, &panels[at * count], count, sums, out, first == 0,
                          groups ? &steps[at * steps_each] : nullptr};
          const bool last = first + count == deep;
          if (last) fetch(to, {t, t + some}, row);
          multiply_kind(m, tile, some);
          if (last) finish(Meaning{m, r, &scale[at], &bias[at]}, {t, t + some}, row, sums, out, to, ending);
        }
      }
    }
  }
}
