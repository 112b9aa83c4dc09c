// Quantised weights in groups of 32 codes, each with a scale in half precision: how vectors hold them.
//
// A bundle is as many groups as a vector has quarters of four lanes: in the end the sum of a group is one quarter, a lane
// for each of four rows. The tokens of a bundle are four vectors of shorts, in the order in which weights come out of
// their bytes, so that weights are only shifted, never moved: the even ones of what lies side by side, and the odd ones.
#pragma once
#include "linear.h"

constexpr int64_t GROUP = 32;
constexpr int BUNDLE = LANES / 4;  // groups

#if defined(PORTABLE)
#define EACH(count) for (int i = 0; i < (count); ++i)
static inline Short all_shorts(int16_t x) { Short y; EACH(2 * LANES) y.v[i] = x; return y; }
template <int SHIFT> static inline Short nibble(Short x) { EACH(2 * LANES) x.v[i] = ((uint16_t)x.v[i] >> SHIFT) & 15; return x; }
static inline Short even_bytes(Short x) { EACH(2 * LANES) x.v[i] = (x.v[i] & 255) ^ 128; return x; }
static inline Short odd_bytes(Short x) { EACH(2 * LANES) x.v[i] = ((uint16_t)x.v[i] >> 8) ^ 128; return x; }
static inline Int neighbours(Int a, Int b) {
  Int y;
  EACH(4) y.v[i] = a.v[i] + a.v[i + 4], y.v[i + 4] = b.v[i] + b.v[i + 4];
  return y;
}
static inline Int quarters(const Int* x) {
  Int y;
  EACH(LANES) {
    const int32_t* from = x[i % 4].v + i / 4 * 4;
    y.v[i] = from[0] + from[1] + from[2] + from[3];
  }
  return y;
}
static inline void store_apart(int16_t* even, int16_t* odd, Int x) {  // a loop for each: GCC 12 with UBSan miscompiles (c ? a : b)[i]
  EACH(LANES / 2) even[i] = (int16_t)x.v[2 * i];
  EACH(LANES / 2) odd[i] = (int16_t)x.v[2 * i + 1];
}
static inline void sum_of_quarters(Float x, float* to) { EACH(4) to[i] = x.v[i] + x.v[i + 4]; }
#undef EACH
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
static inline Short all_shorts(int16_t x) { return _mm512_set1_epi16(x); }
template <int SHIFT> static inline Short nibble(Short x) {
  const Short moved = SHIFT ? _mm512_srli_epi16(x, SHIFT) : x;
  return SHIFT == 12 ? moved : _mm512_and_si512(moved, _mm512_set1_epi16(15));
}
static inline Short even_bytes(Short x) {
  return _mm512_xor_si512(_mm512_and_si512(x, _mm512_set1_epi16(255)), _mm512_set1_epi16(128));
}
static inline Short odd_bytes(Short x) { return _mm512_xor_si512(_mm512_srli_epi16(x, 8), _mm512_set1_epi16(128)); }
// Quarters 0 + 1 and 2 + 3 of both.
static inline Int neighbours(Int a, Int b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
// The sums of all quarters of four vectors: those of one vector are a lane in each quarter.
static inline Int quarters(const Int* x) {
  const Int a = _mm512_add_epi32(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
  const Int b = _mm512_add_epi32(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
static inline void store_apart(int16_t* even, int16_t* odd, Int x) {
  const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m256i both = _mm512_cvtsepi32_epi16(_mm512_permutexvar_epi32(order, x));
  _mm_storeu_si128((__m128i*)even, _mm256_castsi256_si128(both));
  _mm_storeu_si128((__m128i*)odd, _mm256_extracti128_si256(both, 1));
}
// One after the other, as panels add them.
static inline void sum_of_quarters(Float x, float* to) {
  __m128 sum = _mm_add_ps(_mm512_castps512_ps128(x), _mm512_extractf32x4_ps(x, 1));
  sum = _mm_add_ps(_mm_add_ps(sum, _mm512_extractf32x4_ps(x, 2)), _mm512_extractf32x4_ps(x, 3));
  _mm_storeu_ps(to, sum);
}
#else
static inline Short all_shorts(int16_t x) { return _mm256_set1_epi16(x); }
template <int SHIFT> static inline Short nibble(Short x) {
  const Short moved = SHIFT ? _mm256_srli_epi16(x, SHIFT) : x;
  return SHIFT == 12 ? moved : _mm256_and_si256(moved, _mm256_set1_epi16(15));
}
static inline Short even_bytes(Short x) {
  return _mm256_xor_si256(_mm256_and_si256(x, _mm256_set1_epi16(255)), _mm256_set1_epi16(128));
}
static inline Short odd_bytes(Short x) { return _mm256_xor_si256(_mm256_srli_epi16(x, 8), _mm256_set1_epi16(128)); }
static inline Int neighbours(Int a, Int b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}
static inline Int quarters(const Int* x) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
}
static inline void store_apart(int16_t* even, int16_t* odd, Int x) {
  const __m128i both = narrowed(_mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
  _mm_storel_epi64((__m128i*)even, both);
  _mm_storel_epi64((__m128i*)odd, _mm_unpackhi_epi64(both, both));
}
static inline void sum_of_quarters(Float x, float* to) {
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}
#endif

// In a register: compilers would read it from memory again for every use, or move sums there and back.
template <class Vector> static inline Vector held(Vector x) {
#if !defined(PORTABLE)
  asm("" : "+v"(x));
#endif
  return x;
}

// The steps of a bundle of four rows, so far apart: a quarter for each group, a lane for each row.
static inline Float steps_of(const uint16_t* from, int64_t apart) {
#if defined(PORTABLE) || !defined(__F16C__)
  float steps[LANES];
  for (int i = 0; i < LANES; ++i) steps[i] = half_to_float(from[i % 4 * apart + i / 4]);
  return load(steps);
#else
  __m128i row[4];
  for (int r = 0; r < 4; ++r) {
    int64_t steps = 0;
    std::memcpy(&steps, from + r * apart, BUNDLE * sizeof(uint16_t));
    row[r] = _mm_cvtsi64_si128(steps);
  }
  const __m128i first = _mm_unpacklo_epi16(row[0], row[1]), last = _mm_unpacklo_epi16(row[2], row[3]);
  const __m128i two = _mm_unpacklo_epi32(first, last);
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
  return _mm512_cvtph_ps(_mm256_set_m128i(_mm_unpackhi_epi32(first, last), two));
#else
  return _mm256_cvtph_ps(two);
#endif
#endif
}

// Four bits; byte i of a group holds weights i and 16 + i. Two bytes are four weights of a lane.
struct Halves {
  static constexpr int64_t BYTES = 16;  // of a group
  static constexpr int16_t MORE = 8;  // than they mean
  static void unpack(const uint8_t* w, Short* to) {
    const Short packed = held(shorts_of(words(w)));
    to[0] = nibble<0>(packed), to[1] = nibble<4>(packed), to[2] = nibble<8>(packed), to[3] = nibble<12>(packed);
  }
  static Int sums(const Short* w, const Short* x, Int before) {
    for (int i = 0; i < 4; ++i) before = dot(before, w[i], x[i]);
    return before;
  }
  // Where channel k of a bundle stands among its shorts, if k is even; an odd one is `ODD` behind the one before.
  static constexpr int64_t ODD = 4 * LANES;
  static int64_t place(int64_t k) { return k % GROUP / 16 * 2 * LANES + k / GROUP * 8 + k % 16 / 2; }
};

// Eight bits, 128 more than they mean once their sign is turned: that takes fewer shifts than to keep it. A vector of bytes
// is half a bundle, and a group two quarters of its sums.
struct Bytes {
  static constexpr int64_t BYTES = 32;
  static constexpr int16_t MORE = 128;
  static void unpack(const uint8_t* w, Short* to) {
    for (int i = 0; i < 2; ++i) {
      const Short packed = held(shorts_of(words(w + i * 4 * LANES)));
      to[2 * i] = even_bytes(packed), to[2 * i + 1] = odd_bytes(packed);
    }
  }
  static Int sums(const Short* w, const Short* x, Int before) {
    const Int left = dot(dot(none(), w[0], x[0]), w[1], x[1]), right = dot(dot(none(), w[2], x[2]), w[3], x[3]);
    return add(before, neighbours(left, right));
  }
  static constexpr int64_t ODD = 2 * LANES;
  static int64_t place(int64_t k) { return k / (4 * LANES) * 4 * LANES + k % (4 * LANES) / 2; }
};

void round_groups(const Matrix& m, const float* x, int16_t* to, float& step);
void multiply_groups(const Matrix& m, const Rounded& r, int64_t tokens, float* y, int64_t out, Share rows);
// Some groups of a row, as shorts in the order of inputs.
void lay_groups(const Matrix& m, int64_t row, int64_t first, int64_t count, int16_t* to);
// The steps of some groups of so many rows side by side, group after group. Where there is no row, the last one again.
void lay_steps(const Matrix& m, int64_t row, int64_t count, int64_t first, int64_t groups, float* to, int64_t apart);
