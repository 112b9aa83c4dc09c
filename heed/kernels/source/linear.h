// y = x Wᵀ + b for weights of several kinds. Weights lie row by row, as torch keeps them: nothing is packed anew.
#pragma once
#include "team.h"
#include "vector.h"

enum Weights : int32_t { FLOAT32 = 0, INT8 = 1, GROUPS8 = 2, GROUPS4 = 3, TERNARY = 4 };

struct Matrix {
  int32_t kind;
  int32_t rows, columns;  // outputs, inputs
  int32_t reserved;
  const void* weights;
  const void* scales;  // float per row; uint16 (half precision) per group of 32; one float
  const float* bias;
};

// Tokens as whole numbers, and the step that these are times.
struct Rounded {
  int16_t* shorts;
  int8_t* bytes;
  float* steps;
  int32_t* sums;
};

int32_t range_of(const Matrix& matrix);
void round_tokens(const Matrix& m, const float* x, int64_t tokens, int64_t stride, const Rounded& to, const Team& team);
// The outputs of my rows of the matrix, for all tokens, into y [tokens, stride].
void multiply(const Matrix& m, const float* x, int64_t stride, const Rounded& r, int64_t tokens, float* y,
              int64_t out_stride, Share rows);
static inline int64_t row_block(const Matrix& m) { return m.kind == TERNARY ? 1 : 4; }
static inline int64_t row_count(const Matrix& m) { return m.kind == TERNARY ? (m.rows + 3) / 4 : m.rows; }
