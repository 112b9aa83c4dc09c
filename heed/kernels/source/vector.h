// Vectors of this machine: AVX-512, AVX2 with FMA, or plain loops which the compiler makes vectors of (arm64, others).
// Everything above this file is written once, in terms of LANES, Float, Int and Short.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
constexpr int LANES = 16;
constexpr const char* INSTRUCTIONS = "AVX-512";
using Float = __m512;
using Int = __m512i;    // LANES of 32 bits
using Short = __m512i;  // 2 * LANES of 16 bits
using Byte = __m512i;   // 4 * LANES of 8 bits

static inline Float load(const float* x) { return _mm512_loadu_ps(x); }
static inline void store(float* y, Float x) { _mm512_storeu_ps(y, x); }
static inline Float spread(float x) { return _mm512_set1_ps(x); }
static inline Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
static inline Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
static inline Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
static inline Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
static inline Float larger(Float a, Float b) { return _mm512_max_ps(a, b); }
static inline Float smaller(Float a, Float b) { return _mm512_min_ps(a, b); }
static inline Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
static inline Float magnitude(Float x) { return _mm512_abs_ps(x); }
static inline Float whole(Float x) { return _mm512_roundscale_ps(x, 0); }
static inline Float power_of_two(Float n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
static inline float sum(Float x) { return _mm512_reduce_add_ps(x); }
static inline float largest(Float x) { return _mm512_reduce_max_ps(x); }
// Four sums at once: one alone takes nearly as long.
static inline __m256 folded(Float x) { return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
static inline __m256i folded(Int x) {
  return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
}
static inline void four_sums(const Float* x, float* to) {
  const __m256 a = _mm256_hadd_ps(folded(x[0]), folded(x[1])), b = _mm256_hadd_ps(folded(x[2]), folded(x[3]));
  const __m256 c = _mm256_hadd_ps(a, b);
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1)));
}
static inline void four_sums(const Int* x, int32_t* to) {
  const __m256i a = _mm256_hadd_epi32(folded(x[0]), folded(x[1])), b = _mm256_hadd_epi32(folded(x[2]), folded(x[3]));
  const __m256i c = _mm256_hadd_epi32(a, b);
  _mm_storeu_si128((__m128i*)to, _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1)));
}
static inline Int none() { return _mm512_setzero_si512(); }
static inline Int all(int32_t x) { return _mm512_set1_epi32(x); }
static inline Short nothing() { return _mm512_setzero_si512(); }
static inline Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
static inline int32_t sum(Int x) { return _mm512_reduce_add_epi32(x); }
static inline Float real(Int x) { return _mm512_cvtepi32_ps(x); }
static inline Short shorts(const int16_t* x) { return _mm512_loadu_si512(x); }
static inline Short widened(const int8_t* x) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)x)); }
static inline Int dot(Int sums, Short a, Short b) {
#if defined(__AVX512VNNI__)
  return _mm512_dpwssd_epi32(sums, a, b);
#else
  return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
#endif
}
static inline Int nearest(Float x) { return _mm512_cvtps_epi32(x); }
static inline void store_whole(int16_t* y, Int x) { _mm256_storeu_si256((__m256i*)y, _mm512_cvtsepi32_epi16(x)); }
static inline void store_whole(int8_t* y, Int x) { _mm_storeu_si128((__m128i*)y, _mm512_cvtsepi32_epi8(x)); }
static inline Byte unsign(Byte x) { return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80)); }  // 128 more
static inline Byte bytes(const void* x) { return _mm512_loadu_si512(x); }
template <int SHIFT> static inline Byte field(Byte x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, SHIFT), _mm512_set1_epi8(3));
}
static inline Short dot_small(Short sums, Byte small, Byte x) {
  return _mm512_add_epi16(sums, _mm512_maddubs_epi16(small, x));
}
static inline Int sums_of(Short x) { return _mm512_madd_epi16(x, _mm512_set1_epi16(1)); }
static inline Int words(const void* x) { return _mm512_loadu_si512(x); }
static inline void store_words(void* y, Int x) { _mm512_storeu_si512(y, x); }
static inline Int word(const void* x) { return _mm512_set1_epi32(*(const int32_t*)x); }
static inline Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
static inline Float floats_of(Int x) { return _mm512_castsi512_ps(x); }
static inline Int words_of(Float x) { return _mm512_castps_si512(x); }
#if defined(__AVX512VNNI__)
#define HAS_DOT_BYTES  // bytes without a sign times bytes with one, four products to a sum
static inline Int dot_bytes(Int sums, Byte small, Byte x) { return _mm512_dpbusd_epi32(sums, small, x); }
#endif
// LANES words of each of LANES rows are turned into columns.
static inline void transpose(const int32_t* const* from, int64_t at, int32_t* to, int64_t to_apart) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = words(from[i] + at);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
    }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_i32x4(a[j], a[j + 4], 0x88);
    b[j + 4] = _mm512_shuffle_i32x4(a[j], a[j + 4], 0xdd);
    b[j + 8] = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0x88);
    b[j + 12] = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    store_words(to + j * to_apart, _mm512_shuffle_i32x4(b[j], b[j + 8], 0x88));
    store_words(to + (j + 8) * to_apart, _mm512_shuffle_i32x4(b[j], b[j + 8], 0xdd));
    store_words(to + (j + 4) * to_apart, _mm512_shuffle_i32x4(b[j + 4], b[j + 12], 0x88));
    store_words(to + (j + 12) * to_apart, _mm512_shuffle_i32x4(b[j + 4], b[j + 12], 0xdd));
  }
}

#elif defined(__AVX2__) && defined(__FMA__)
constexpr int LANES = 8;
constexpr const char* INSTRUCTIONS = "AVX2";
using Float = __m256;
using Int = __m256i;
using Short = __m256i;
using Byte = __m256i;

static inline Float load(const float* x) { return _mm256_loadu_ps(x); }
static inline void store(float* y, Float x) { _mm256_storeu_ps(y, x); }
static inline Float spread(float x) { return _mm256_set1_ps(x); }
static inline Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
static inline Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
static inline Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
static inline Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
static inline Float larger(Float a, Float b) { return _mm256_max_ps(a, b); }
static inline Float smaller(Float a, Float b) { return _mm256_min_ps(a, b); }
static inline Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
static inline Float magnitude(Float x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
static inline Float whole(Float x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Float power_of_two(Float n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline float sum(Float x) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
static inline float largest(Float x) {
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}
static inline void four_sums(const Float* x, float* to) {
  const __m256 c = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1)));
}
static inline void four_sums(const Int* x, int32_t* to) {
  const __m256i c = _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
  _mm_storeu_si128((__m128i*)to, _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1)));
}
static inline Int none() { return _mm256_setzero_si256(); }
static inline Int all(int32_t x) { return _mm256_set1_epi32(x); }
static inline Short nothing() { return _mm256_setzero_si256(); }
static inline Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
static inline int32_t sum(Int x) {
  __m128i a = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}
static inline Float real(Int x) { return _mm256_cvtepi32_ps(x); }
static inline Short shorts(const int16_t* x) { return _mm256_loadu_si256((const __m256i*)x); }
static inline Short widened(const int8_t* x) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)x)); }
static inline Int dot(Int sums, Short a, Short b) { return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)); }
static inline Int nearest(Float x) { return _mm256_cvtps_epi32(x); }
static inline __m128i narrowed(Int x) { return _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); }
static inline void store_whole(int16_t* y, Int x) { _mm_storeu_si128((__m128i*)y, narrowed(x)); }
static inline void store_whole(int8_t* y, Int x) { _mm_storel_epi64((__m128i*)y, _mm_packs_epi16(narrowed(x), narrowed(x))); }
static inline Byte bytes(const void* x) { return _mm256_loadu_si256((const __m256i*)x); }
template <int SHIFT> static inline Byte field(Byte x) {
  return _mm256_and_si256(_mm256_srli_epi16(x, SHIFT), _mm256_set1_epi8(3));
}
static inline Short dot_small(Short sums, Byte small, Byte x) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(small, x));
}
static inline Int sums_of(Short x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
static inline Int words(const void* x) { return _mm256_loadu_si256((const __m256i*)x); }
static inline void store_words(void* y, Int x) { _mm256_storeu_si256((__m256i*)y, x); }
static inline Int word(const void* x) { return _mm256_set1_epi32(*(const int32_t*)x); }
static inline Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
static inline Float floats_of(Int x) { return _mm256_castsi256_ps(x); }
static inline Int words_of(Float x) { return _mm256_castps_si256(x); }
static inline void transpose(const int32_t* const* from, int64_t at, int32_t* to, int64_t to_apart) {
  __m256i a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = words(from[i] + at);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + j + 2]);
    }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    store_words(to + j * to_apart, _mm256_permute2x128_si256(a[j], a[j + 4], 0x20));
    store_words(to + (j + 4) * to_apart, _mm256_permute2x128_si256(a[j], a[j + 4], 0x31));
  }
}

#else
#define PORTABLE
constexpr int LANES = 8;
constexpr const char* INSTRUCTIONS = "portable";
struct Float { float v[LANES]; };
struct Int { int32_t v[LANES]; };
struct Short { int16_t v[2 * LANES]; };
struct Byte { uint8_t v[4 * LANES]; };
#define EACH(count) for (int i = 0; i < (count); ++i)

static inline Float load(const float* x) { Float y; std::memcpy(&y, x, sizeof y); return y; }
static inline void store(float* y, Float x) { std::memcpy(y, &x, sizeof x); }
static inline Float spread(float x) { Float y; EACH(LANES) y.v[i] = x; return y; }
static inline Float add(Float a, Float b) { EACH(LANES) a.v[i] += b.v[i]; return a; }
static inline Float sub(Float a, Float b) { EACH(LANES) a.v[i] -= b.v[i]; return a; }
static inline Float mul(Float a, Float b) { EACH(LANES) a.v[i] *= b.v[i]; return a; }
static inline Float div(Float a, Float b) { EACH(LANES) a.v[i] /= b.v[i]; return a; }
static inline Float larger(Float a, Float b) { EACH(LANES) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
static inline Float smaller(Float a, Float b) { EACH(LANES) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
static inline Float fma(Float a, Float b, Float c) { EACH(LANES) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]); return c; }
static inline Float magnitude(Float x) { EACH(LANES) x.v[i] = std::fabs(x.v[i]); return x; }
static inline Float whole(Float x) { EACH(LANES) x.v[i] = std::nearbyint(x.v[i]); return x; }
static inline Float power_of_two(Float n) { EACH(LANES) n.v[i] = std::ldexp(1.0f, (int)n.v[i]); return n; }
static inline float sum(Float x) { float y = 0; EACH(LANES) y += x.v[i]; return y; }
static inline float largest(Float x) { float y = x.v[0]; EACH(LANES) y = std::max(y, x.v[i]); return y; }
static inline Int none() { return Int{}; }
static inline Int all(int32_t x) { Int y; EACH(LANES) y.v[i] = x; return y; }
static inline Short nothing() { return Short{}; }
static inline Int add(Int a, Int b) { EACH(LANES) a.v[i] += b.v[i]; return a; }
static inline int32_t sum(Int x) { int32_t y = 0; EACH(LANES) y += x.v[i]; return y; }
static inline Float real(Int x) { Float y; EACH(LANES) y.v[i] = (float)x.v[i]; return y; }
static inline Short shorts(const int16_t* x) { Short y; std::memcpy(&y, x, sizeof y); return y; }
static inline Short widened(const int8_t* x) { Short y; EACH(2 * LANES) y.v[i] = x[i]; return y; }
static inline Int dot(Int sums, Short a, Short b) {
  EACH(LANES) sums.v[i] += (int32_t)a.v[2 * i] * b.v[2 * i] + (int32_t)a.v[2 * i + 1] * b.v[2 * i + 1];
  return sums;
}
static inline Int nearest(Float x) { Int y; EACH(LANES) y.v[i] = (int32_t)std::nearbyint(x.v[i]); return y; }
static inline void store_whole(int16_t* y, Int x) { EACH(LANES) y[i] = (int16_t)x.v[i]; }
static inline void store_whole(int8_t* y, Int x) { EACH(LANES) y[i] = (int8_t)x.v[i]; }
static inline Byte bytes(const void* x) { Byte y; std::memcpy(&y, x, sizeof y); return y; }
template <int SHIFT> static inline Byte field(Byte x) { EACH(4 * LANES) x.v[i] = (x.v[i] >> SHIFT) & 3; return x; }
static inline Short dot_small(Short sums, Byte small, Byte x) {
  EACH(2 * LANES) sums.v[i] += small.v[2 * i] * (int8_t)x.v[2 * i] + small.v[2 * i + 1] * (int8_t)x.v[2 * i + 1];
  return sums;
}
static inline Int sums_of(Short x) { Int y; EACH(LANES) y.v[i] = x.v[2 * i] + x.v[2 * i + 1]; return y; }
static inline Int words(const void* x) { Int y; std::memcpy(&y, x, sizeof y); return y; }
static inline void store_words(void* y, Int x) { std::memcpy(y, &x, sizeof x); }
static inline Int word(const void* x) { int32_t w; std::memcpy(&w, x, sizeof w); Int y; EACH(LANES) y.v[i] = w; return y; }
static inline Int sub(Int a, Int b) { EACH(LANES) a.v[i] -= b.v[i]; return a; }
static inline Float floats_of(Int x) { Float y; std::memcpy(&y, &x, sizeof y); return y; }
static inline Int words_of(Float x) { Int y; std::memcpy(&y, &x, sizeof y); return y; }
static inline Short shorts_of(Int x) { Short y; std::memcpy(&y, &x, sizeof y); return y; }
static inline void transpose(const int32_t* const* from, int64_t at, int32_t* to, int64_t to_apart) {
  EACH(LANES) for (int j = 0; j < LANES; ++j) std::memcpy(to + j * to_apart + i, from[i] + at + j, sizeof *to);
}
static inline void four_sums(const Float* x, float* to) { EACH(4) to[i] = sum(x[i]); }
static inline void four_sums(const Int* x, int32_t* to) { EACH(4) to[i] = sum(x[i]); }
#undef EACH
#endif

#if !defined(PORTABLE)
static inline Short shorts_of(Int x) { return x; }
#endif

// e^x, off by two units in the last place at most; 0 below -87.3 instead of the smallest numbers.
static inline Float exponential(Float x) {
  const Float low = spread(-87.3f), n = whole(mul(smaller(larger(x, low), spread(88.0f)), spread(1.44269504f)));
  Float r = fma(n, spread(-0.693359375f), smaller(larger(x, low), spread(88.0f)));
  r = fma(n, spread(2.12194440e-4f), r);
  Float p = spread(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fma(p, r, spread(c));
  return mul(fma(mul(r, r), p, add(r, spread(1.0f))), power_of_two(n));
}

// Half precision, as bits.
static inline float half_to_float(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp((float)fraction, -24);
  uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}
