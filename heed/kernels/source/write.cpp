// Tokens one after the other: a step, a choice, the next step.
#include "step.h"

// The token of the largest score, the first of equal ones, and its log p; NaN if there is no such token.
static void choose(const float* scores, int64_t count, int64_t& token, float& logp) {
  Float most = spread(-INFINITY);
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) most = larger(most, load(scores + k));
  float top = largest(most);
  for (; k < count; ++k) top = std::max(top, scores[k]);
  token = 0;
  while (token < count && !(scores[token] == top)) ++token;
  double total = 0.0;
  for (k = 0; k < count;) {  // partial sums: a hundred thousand terms are too many for one float
    const int64_t end = std::min<int64_t>(count, k + 4096);
    Float part = spread(0.0f);
    for (; k + LANES <= end; k += LANES) part = add(part, exponential(sub(load(scores + k), spread(top))));
    total += sum(part);
    for (; k < end; ++k) total += std::exp(scores[k] - top);
  }
  int strange = token == count || !std::isfinite(top);
  for (k = 0; k < count; ++k) strange |= scores[k] != scores[k];
  token = token < count ? token : 0;
  logp = strange ? NAN : (float)-std::log(total);
}

// So many tokens one after the other, each the one of the largest score. The first is given; `tokens`, `order` and
// `position` of the step are written to. Chosen tokens and their log p go to [count, rows].
extern "C" int32_t heed_write(Step* s, int64_t count, int32_t scores, int64_t* tokens, int64_t* order, int64_t* position,
                              int64_t* chosen, float* logp) {
  s->tokens = tokens, s->order = order, s->position = position;
  const Register made = s->registers[scores];
  for (int64_t n = 0; n < count; ++n) {
    if (heed_step(s)) return 1;
    together(s->rows > 1 ? s->threads : 1, [&](Team team) {
      const Share mine = team.of(s->rows);
      for (int64_t b = mine.begin; b < mine.end; ++b)
        choose(made.data + b * made.width, made.width, chosen[n * s->rows + b], logp[n * s->rows + b]);
    });
    for (int64_t b = 0; b < s->rows; ++b) tokens[b] = chosen[n * s->rows + b], ++order[b], ++position[b];
  }
  return 0;
}
