// Tokens one after the other: a step, a choice, the next step.
#include "sampling.h"
#include "step.h"

// How many rows have not ended.
static int64_t living(const Choice& how, const int64_t* chosen, int64_t rows) {
  int64_t count = 0;
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t e = 0; e < how.end_count; ++e)
      if (chosen[b] == how.ends[e]) how.live[b] = 0;
    count += how.live[b];
  }
  return count;
}

static Refusal unfit(const Step* s, int64_t count, int32_t scores, const Choice* how) {
  if (!s || !how || !s->registers) return MISSING;
  if (scores < 0 || scores >= s->register_count || !countable({count, s->rows}) || !countable({s->rows, s->registers[scores].width}))
    return SIZES;
  if (how->top_k < 0 || !countable({how->end_count})) return SIZES;
  return present(how->end_count, {how->ends}) && present(s->rows, {how->live}) ? DONE : MISSING;
}

// So many tokens one after the other, or fewer if too few rows are left. The first is given; `tokens`, `order` and
// `position` of the step are written to. Chosen tokens and their log p go to [count, rows]. Gives the number of steps, or
// less than 0: a refusal with its sign turned.
extern "C" int64_t heed_write(Step* s, int64_t count, int32_t scores, const Choice* how, int64_t* tokens, int64_t* order,
                              int64_t* position, int64_t* chosen, float* logp) {
  if (const Refusal refused = unfit(s, count, scores, how)) return -refused;
  if (!present(count * s->rows, {tokens, order, position, chosen, logp})) return -MISSING;
  s->tokens = tokens, s->order = order, s->position = position;
  const Register made = s->registers[scores];
  const int64_t rows = s->rows, width = made.width;
  for (int64_t n = 0; n < count; ++n) {
    if (const int32_t refused = heed_step(s)) return -refused;
    together(rows > 1 ? s->threads : 1, [&](Team team) {
      const Share mine = team.of(rows);
      for (int64_t b = mine.begin; b < mine.end; ++b)
        choose(*how, made.data + b * width, width, how->seen ? how->seen + b * width : nullptr,
               how->draws ? how->draws + n * rows + b : nullptr, chosen[n * rows + b], logp[n * rows + b]);
    });
    for (int64_t b = 0; b < rows; ++b) tokens[b] = chosen[n * rows + b], ++order[b], ++position[b];
    if (living(*how, chosen + n * rows, rows) < how->enough) return n + 1;
  }
  return count;
}
