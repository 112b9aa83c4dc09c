// Recurrences over many tokens, forwards and backwards. Lanes are channels, and each thread has rows or channels of its own.
// Tokens are taken in chunks: the state before every chunk is kept, and from it the states of a chunk are made again on the
// way back, when they are needed and near.
#pragma once
#include <vector>

#include "team.h"
#include "vector.h"

// Some channels of a token; those beyond the last one are zeros.
struct Channels {
  int64_t at, count;
  Float of(const float* x) const {
    if (count == LANES) return load(x + at);
    float some[LANES] = {};
    std::memcpy(some, x + at, count * sizeof(float));
    return load(some);
  }
  void into(float* y, Float x) const {
    if (count == LANES) return store(y + at, x);
    float all[LANES];
    store(all, x);
    std::memcpy(y + at, all, count * sizeof(float));
  }
  void onto(float* y, Float x) const { into(y, add(of(y), x)); }
};

// What is mine of rows · vectors of channels: work(row, first vector, one beyond the last).
template <class Work> static inline void by_row(const Team& team, int64_t rows, int64_t channels, const Work& work) {
  const int64_t vectors = (channels + LANES - 1) / LANES;
  const Share mine = team.of(rows * vectors);
  for (int64_t at = mine.begin; at < mine.end;) {
    const int64_t row = at / vectors, end = std::min(mine.end, (row + 1) * vectors);
    work(row, at - row * vectors, end - row * vectors);
    at = end;
  }
}

static inline Channels channels_of(int64_t vector, int64_t channels) {
  return {vector * LANES, std::min<int64_t>(LANES, channels - vector * LANES)};
}

static inline void fill(std::vector<Float>& x) { std::fill(x.begin(), x.end(), spread(0.0f)); }

// Chunks of so many tokens.
static inline int64_t chunks_of(int64_t tokens, int64_t chunk) { return (tokens + chunk - 1) / chunk; }
