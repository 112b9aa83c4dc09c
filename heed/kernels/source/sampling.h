// How the next token of a row is chosen: see `Sample` in decode/sampling.py, which is what this must equal.
#pragma once
#include "checks.h"
#include "vector.h"

struct Choice {
  double temperature, top_p, min_p;
  int64_t top_k;        // 0: all
  const double* draws;  // [tokens, rows] at least 0 and less than 1; null: the largest score
  uint8_t* seen;        // [rows, vocabulary] tokens that are less likely to come again; null: none
  const int64_t* ends;  // tokens that end a row
  uint8_t* live;        // [rows] which rows have not ended
  int64_t end_count;
  int64_t enough;       // with fewer rows than these, it is time to stop
  float penalty;
  float cap;            // scores are bent to stay within ±cap; 0: they are not
};

// The token of one row and its log p, which is NaN if there is none; scores are bent in place.
void choose(const Choice& how, float* scores, int64_t count, uint8_t* seen, const double* draw, int64_t& token, float& logp);
