// Tokens times panels. A panel is rows of weights laid side by side, a word of each in a vector, so that nothing is ever
// added up across a vector. A word of 32 bits is one float, two shorts or four bytes, of weights as of tokens.
#pragma once
#include "groups.h"

constexpr int PANEL = 2 * LANES;            // rows side by side
constexpr int TILE = LANES == 16 ? 12 : 6;  // tokens whose sums stay in registers

struct Singles {
  using Sum = Float;
  static Sum nothing() { return spread(0.0f); }
  static Sum back(const float* y) { return load(y); }
  static void away(float* y, Sum sums) { store(y, sums); }
  static Float weights(const int32_t* w) { return load((const float*)w); }
  static Float token(const int32_t* x) { return spread(*(const float*)x); }
  static Sum more(Sum sums, Float weights, Float token) { return fma(token, weights, sums); }
};

struct Wholes {
  using Sum = Int;
  static Sum nothing() { return none(); }
  static Sum back(const float* y) { return words(y); }
  static void away(float* y, Sum sums) { store_words(y, sums); }
  static Int weights(const int32_t* w) { return words(w); }
  static Int token(const int32_t* x) { return word(x); }
};

struct Pairs : Wholes {
  static Sum more(Sum sums, Int weights, Int token) { return dot(sums, shorts_of(weights), shorts_of(token)); }
};

#if defined(HAS_DOT_BYTES)
struct Fours : Wholes {
  static Sum more(Sum sums, Int weights, Int token) { return dot_bytes(sums, weights, token); }
};
#endif

struct Tile {
  const int32_t* tokens;
  int64_t apart;  // from one token to the next
  const int32_t* panel;
  int64_t count;  // words
  float* y;       // of whole numbers, until they are settled, the bits
  int64_t out;
  bool begins;
  const float* steps;  // of groups: those of a panel's rows, group after group
};

// A function of its own: inlined, compilers run out of registers.
template <class Kind, int T> __attribute__((noinline)) static void multiply_tile(const Tile& tile) {
  typename Kind::Sum left[T], right[T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const float* y = tile.y + t * tile.out;
    left[t] = tile.begins ? Kind::nothing() : Kind::back(y);
    right[t] = tile.begins ? Kind::nothing() : Kind::back(y + LANES);
  }
  const int32_t *tokens = tile.tokens, *panel = tile.panel;
  const int64_t count = tile.count, apart = tile.apart;
  for (int64_t k = 0; k < count; ++k) {
    const auto first = Kind::weights(panel + k * PANEL), second = Kind::weights(panel + k * PANEL + LANES);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const auto token = Kind::token(tokens + t * apart + k);
      left[t] = Kind::more(left[t], first, token);
      right[t] = Kind::more(right[t], second, token);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    Kind::away(tile.y + t * tile.out, left[t]);
    Kind::away(tile.y + t * tile.out + LANES, right[t]);
  }
}

// Groups take turns with BUNDLE sums in memory, which are added up in the end: as few tokens have it. A group's own sums
// are in registers.
template <int T> __attribute__((noinline)) static void multiply_groups_of(const Tile& tile) {
  const int64_t apart = tile.apart, groups = tile.count / (GROUP / 2);
  const int32_t *tokens = tile.tokens, *panel = tile.panel;
  if (tile.begins)
    for (int t = 0; t < T; ++t) std::memset(tile.y + t * tile.out, 0, BUNDLE * PANEL * sizeof(float));
  for (int64_t g = 0; g < groups; ++g) {
    Int left[T], right[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) left[t] = right[t] = none();
    for (int64_t k = 0; k < GROUP / 2; ++k, ++tokens, panel += PANEL) {
      const Int first = words(panel), second = words(panel + LANES);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const Int token = word(tokens + t * apart);
        left[t] = held(Pairs::more(left[t], first, token));
        right[t] = held(Pairs::more(right[t], second, token));
      }
    }
    const Float first = load(tile.steps + g * PANEL), second = load(tile.steps + g * PANEL + LANES);
    float* y = tile.y + g % BUNDLE * PANEL;
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t, y += tile.out) {
      store(y, fma(first, real(left[t]), load(y)));
      store(y + LANES, fma(second, real(right[t]), load(y + LANES)));
    }
  }
}

template <int T> static inline void multiply_groups_by(const Tile& tile, int64_t tokens) {
  if (tokens == T)
    multiply_groups_of<T>(tile);
  else if constexpr (T > 1)
    multiply_groups_by<T - 1>(tile, tokens);
}

template <class Kind, int T> static inline void multiply_tokens(const Tile& tile, int64_t tokens) {
  if (tokens == T)
    multiply_tile<Kind, T>(tile);
  else if constexpr (T > 1)
    multiply_tokens<Kind, T - 1>(tile, tokens);
}

// Words at .. at + count - 1 of PANEL rows, side by side.
static inline void side_by_side(const int32_t* const* rows, int64_t at, int64_t count, int32_t* panel) {
  for (int64_t part = 0; part < PANEL; part += LANES) {
    int64_t k = 0;
    for (; k + LANES <= count; k += LANES) transpose(rows + part, at + k, panel + k * PANEL + part, PANEL);
    for (; k < count; ++k)
      for (int64_t r = 0; r < LANES; ++r) panel[k * PANEL + part + r] = rows[part + r][at + k];
  }
}
