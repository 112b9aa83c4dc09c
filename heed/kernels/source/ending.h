// What becomes of the outputs of a matrix: an activation of them is the new value, is added to the old one, or multiplied
// with it.
#pragma once
#include "vector.h"

#include <type_traits>

enum Mode : int32_t { SET, PLUS, TIMES };
enum Activation : int32_t { IDENTITY, RELU, GELU, GELU_TANH, GELU_SIGMOID, SILU, RELU_SQUARED, SIGMOID };

struct Ending {
  int32_t activation, mode;
  float old;  // added are old · y and what is made
};

// 1 - erf(x) of a number that is not negative, off by 1.5e-7 at most (Abramowitz & Stegun 1964, 7.1.26).
static inline Float beyond_error(Float x) {
  const Float t = div(spread(1.0f), fma(x, spread(0.3275911f), spread(1.0f)));
  Float p = spread(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = fma(p, t, spread(c));
  return mul(mul(p, t), exponential(sub(spread(0.0f), mul(x, x))));
}

static inline Float sigmoid(Float x) { return div(spread(1.0f), add(spread(1.0f), exponential(sub(spread(0.0f), x)))); }

static inline Float activated(int32_t kind, Float x) {
  const Float zero = spread(0.0f);
  switch (kind) {
    case RELU: return larger(x, zero);
    case GELU: {  // x Φ(x) = max(x, 0) - |x| (1 - Φ(|x|))
      const Float size = magnitude(x);
      return sub(larger(x, zero), mul(mul(size, spread(0.5f)), beyond_error(mul(size, spread(0.70710678f)))));
    }
    case GELU_TANH: {
      const Float inner = mul(spread(1.5957691216f), fma(mul(mul(x, x), x), spread(0.044715f), x));
      return mul(x, sigmoid(inner));
    }
    case GELU_SIGMOID: return mul(x, sigmoid(mul(x, spread(1.702f))));
    case SILU: return mul(x, sigmoid(x));
    case SIGMOID: return sigmoid(x);
    case RELU_SQUARED: {
      const Float up = larger(x, zero);
      return mul(up, up);
    }
    default: return x;
  }
}

// Calls work(kind) with a kind that is known when it is compiled: nothing is asked again for every vector.
template <class Work> static inline void by_activation(int32_t kind, const Work& work) {
  switch (kind) {
    case RELU: return work(std::integral_constant<int32_t, RELU>());
    case GELU: return work(std::integral_constant<int32_t, GELU>());
    case GELU_TANH: return work(std::integral_constant<int32_t, GELU_TANH>());
    case GELU_SIGMOID: return work(std::integral_constant<int32_t, GELU_SIGMOID>());
    case SILU: return work(std::integral_constant<int32_t, SILU>());
    case SIGMOID: return work(std::integral_constant<int32_t, SIGMOID>());
    case RELU_SQUARED: return work(std::integral_constant<int32_t, RELU_SQUARED>());
    default: return work(std::integral_constant<int32_t, IDENTITY>());
  }
}

static inline void activate(int32_t kind, float* x, int64_t count) {
  if (kind == IDENTITY) return;
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) store(x + k, activated(kind, load(x + k)));
  if (k < count) {
    float rest[LANES] = {};
    std::memcpy(rest, x + k, (count - k) * sizeof(float));
    store(rest, activated(kind, load(rest)));
    std::memcpy(x + k, rest, (count - k) * sizeof(float));
  }
}

// y = what was made, or y and what was made.
static inline void settle(const Ending& ending, Float made, float* y) {
  store(y, ending.mode == SET ? made : ending.mode == PLUS ? add(mul(spread(ending.old), load(y)), made) : mul(load(y), made));
}
static inline void settle(const Ending& ending, const float* made, float* y, int64_t count) {
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) settle(ending, load(made + k), y + k);
  for (; k < count; ++k) y[k] = ending.mode == SET ? made[k] : ending.mode == PLUS ? ending.old * y[k] + made[k] : y[k] * made[k];
}
