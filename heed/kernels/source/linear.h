// y = x Wᵀ + b for weights of several kinds. Weights lie row by row, as torch keeps them: nothing is packed anew.
#pragma once
#include "ending.h"
#include "team.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")  // sums must be registers
#endif

enum Weights : int32_t { FLOAT32 = 0, INT8 = 1, GROUPS8 = 2, GROUPS4 = 3, TERNARY = 4, W8A8 = 5 };

struct Matrix {
  int32_t kind;
  int32_t rows, columns;  // outputs, inputs
  int32_t across;  // 0, or: float32 weights lie column by column, so far apart; panels are made of them for any tokens
  const void* weights;
  const void* scales;  // float per row; uint16 (half precision) per group of 32; one float
  const float* bias;
};

// Quantised tokens: integer codes, and the scale of each token; room for so many tokens of so many inputs, and their rest.
struct Rounded {
  int16_t* shorts;
  int8_t* bytes;
  float* steps;
  int32_t* sums;
  int64_t tokens, inputs;
};

int32_t range_of(const Matrix& matrix);
// Tokens are bytes where four products of them are one instruction, and where weights have two bits; else shorts.
static inline bool in_bytes(const Matrix& m) {
#if defined(HAS_DOT_BYTES)
  if (m.kind == W8A8) return true;
#endif
  return m.kind == TERNARY;
}
static inline bool in_groups(const Matrix& m) { return m.kind == GROUPS8 || m.kind == GROUPS4; }
// Of rounded tokens: whole words, or whole bundles of groups.
static inline int64_t stride_of(const Matrix& m) {
  const int64_t whole = in_groups(m) ? 8 * LANES : 4;
  return (m.columns + whole - 1) / whole * whole;
}
// Whether there can be such a matrix, and room for quantised tokens, if it needs that.
Refusal unfit(const Matrix& m);
Refusal unfit(const Matrix& m, const Rounded& r, int64_t tokens);
float largest_magnitude(const float* x, int64_t count);
void round_tokens(const Matrix& m, const float* x, int64_t tokens, int64_t stride, const Rounded& to, const Team& team);
// Where outputs go, and room for them [tokens, rows] where they are not simply written.
struct Target {
  float* y;
  int64_t stride;
  float* scratch;
};
// The outputs of my rows of the matrix, for all tokens.
void multiply(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, const Target& to,
              const Ending& ending, Share rows);
// Bytes of a row of weights, or of four rows where they are one.
static inline int64_t row_bytes(const Matrix& m) {
  return m.kind == FLOAT32 ? 4 * (int64_t)m.columns : m.kind == GROUPS4 ? m.columns / 2 : m.columns;
}
// Whether so many tokens are multiplied with panels of rows: see panel.cpp.
bool by_panels(const Matrix& m, int64_t tokens);
void multiply_panels(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, const Target& to,
                     const Ending& ending, Share rows);
// What threads share: rows of the matrix, or of its bytes where four rows are one, in whole blocks.
static inline bool quartered(const Matrix& m, int64_t tokens) { return m.kind == TERNARY && !by_panels(m, tokens); }
Share rows_of(const Matrix& m, int64_t tokens, const Team& team);
