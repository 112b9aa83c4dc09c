// WKV, the recurrence of RWKV, over many tokens and back: sums of exponentials, divided by the largest of them.
#include "scan.h"

struct Wkv {
  int64_t rows, tokens, channels, chunk;
  const int64_t* ends;        // tokens of each row; none: all are tokens
  const float *key, *value;   // [rows, tokens, D]
  const float *fade, *bonus;  // [D]
  float* states;  // above, below and their level, before every chunk and after the last one [rows, chunks + 1, 3, D]
};

struct WkvGradients {
  const float *y, *last;        // given; `last` [rows, 2, D]
  float *key, *value, *start;
  float *fade, *bonus;          // zeros, one of them for each thread: sums over tokens
};

namespace {

Refusal unfit(const Wkv* m, int32_t threads) {
  if (!m) return MISSING;
  if (!a_team(threads)) return THREADS;
  if (m->chunk < 1 || !countable({m->chunk, LANES, 16}) || !countable({m->channels, threads})) return SIZES;
  if (!countable({m->rows, m->tokens + 1, 3, m->channels})) return SIZES;  // at most so many states
  const int64_t each = m->rows * m->channels;
  if (!present(each * m->tokens, {m->key, m->value}) || !present(each, {m->fade, m->bonus, m->states})) return MISSING;
  for (int64_t row = 0; m->ends && row < m->rows; ++row)
    if (m->ends[row] < 0 || m->ends[row] > m->tokens) return SIZES;
  return DONE;
}

struct Sums { Float above, below, level; };

// A token: how much it takes of the sums it finds and of itself, and how much of both the next one will find.
struct Shares { Float old, own, decay, weight, level; };

Shares shares_of(const Sums& found, Float key, Float fade, Float bonus) {
  const Float mine = add(bonus, key), crest = larger(found.level, mine);
  const Float faded = add(found.level, fade), level = larger(faded, key);
  return {exponential(sub(found.level, crest)), exponential(sub(mine, crest)), exponential(sub(faded, level)),
          exponential(sub(key, level)), level};
}

struct Token {
  Sums found;
  Shares shares;
};

// Some channels of a row.
struct Lane {
  const Wkv& m;
  Channels of;
  Float fade, bonus;
  int64_t row, real;
  Lane(const Wkv& means, int64_t r, int64_t vector)
      : m(means), of(channels_of(vector, m.channels)), fade(of.of(m.fade)), bonus(of.of(m.bonus)), row(r),
        real(m.ends ? m.ends[r] : m.tokens) {}

  float* state(int64_t chunk) const { return m.states + (row * (chunks_of(m.tokens, m.chunk) + 1) + chunk) * 3 * m.channels; }
  int64_t token(int64_t t) const { return (row * m.tokens + t) * m.channels; }
  int64_t end(int64_t chunk) const { return std::min((chunk + 1) * m.chunk, m.tokens); }

  // The tokens of a chunk: each(t, what it finds, its shares, its value), and the sums after them.
  template <class Each> Sums walk(int64_t chunk, const Each& each) const {
    const float* start = state(chunk);
    Sums sums{of.of(start), of.of(start + m.channels), of.of(start + 2 * m.channels)};
    for (int64_t t = chunk * m.chunk, last = std::min(end(chunk), real); t < last; ++t) {
      const Float value = of.of(m.value + token(t));
      const Shares shares = shares_of(sums, of.of(m.key + token(t)), fade, bonus);
      each(t, sums, shares, value);
      const Float above = fma(shares.decay, sums.above, mul(shares.weight, value));
      sums = {above, fma(shares.decay, sums.below, shares.weight), shares.level};
    }
    return sums;
  }
  // Padding gives zeros.
  void blank(int64_t chunk, float* y) const {
    for (int64_t t = std::max(chunk * m.chunk, real); t < end(chunk); ++t) of.into(y + token(t), spread(0.0f));
  }
};

Float mean(const Sums& found, const Shares& s, Float value, Float* below) {
  *below = fma(s.old, found.below, s.own);
  return div(fma(s.old, found.above, mul(s.own, value)), *below);
}

// Gradients of some channels: of the sums after a chunk, then of those before it; and of what is the same for all tokens.
struct Late { Float above, below, fade, bonus; };

// A chunk on the way back, with room for its tokens.
void back(const Lane& lane, int64_t chunk, const WkvGradients& grads, Token* tokens, Late& late) {
  const Wkv& m = lane.m;
  const Channels& of = lane.of;
  const int64_t begin = chunk * m.chunk;
  lane.walk(chunk, [=](int64_t t, const Sums& found, const Shares& shares, Float) {
    tokens[t - begin] = {found, shares};
  });
  Float to_fade = spread(0.0f), to_bonus = spread(0.0f);  // summed up by chunks: fewer roundings than along the whole sequence
  for (int64_t t = std::min(lane.end(chunk), lane.real) - 1; t >= begin; --t) {
    const Sums& found = tokens[t - begin].found;
    const Shares& s = tokens[t - begin].shares;
    const Float value = of.of(m.value + lane.token(t));
    Float below;
    const Float y = mean(found, s, value, &below), grad = div(of.of(grads.y + lane.token(t)), below);
    const Float own = mul(s.own, mul(grad, sub(value, y)));  // of the exponents of its own share, of the weight, of the decay
    const Float weight = mul(s.weight, fma(late.above, value, late.below));
    const Float decay = mul(s.decay, fma(late.above, found.above, mul(late.below, found.below)));
    of.into(grads.key + lane.token(t), add(own, weight));
    of.into(grads.value + lane.token(t), fma(s.own, grad, mul(s.weight, late.above)));
    to_bonus = add(to_bonus, own), to_fade = add(to_fade, decay);
    const Float above = mul(s.old, grad);
    late.above = fma(s.decay, late.above, above), late.below = sub(mul(s.decay, late.below), mul(above, y));
  }
  late.fade = add(late.fade, to_fade), late.bonus = add(late.bonus, to_bonus);
  lane.blank(chunk, grads.key), lane.blank(chunk, grads.value);
}

}  // namespace

extern "C" int32_t heed_wkv(const Wkv* given, float* y, int32_t threads) {
  if (const Refusal refused = unfit(given, threads)) return refused;
  if (!present(given->rows * given->tokens * given->channels, {y})) return MISSING;
  const Wkv& m = *given;
  together(threads, [&](Team team) {
    by_row(team, m.rows, m.channels, [&](int64_t row, int64_t first, int64_t last) {
      for (int64_t chunk = 0; chunk < chunks_of(m.tokens, m.chunk); ++chunk)
        for (int64_t vector = first; vector < last; ++vector) {
          const Lane lane(m, row, vector);
          const Channels of = lane.of;
          const Sums sums = lane.walk(chunk, [&](int64_t t, const Sums& found, const Shares& shares, Float value) {
            Float below;
            of.into(y + lane.token(t), mean(found, shares, value, &below));
          });
          lane.blank(chunk, y);
          float* after = lane.state(chunk + 1);
          of.into(after, sums.above), of.into(after + m.channels, sums.below), of.into(after + 2 * m.channels, sums.level);
        }
    });
  });
  return DONE;
}

extern "C" int32_t heed_wkv_back(const Wkv* given, const WkvGradients* grads, int32_t threads) {
  if (const Refusal refused = unfit(given, threads)) return refused;
  if (!grads || !present(given->rows * given->tokens * given->channels, {grads->y, grads->key, grads->value}) ||
      !present(given->rows * given->channels, {grads->last, grads->start, grads->fade, grads->bonus}))
    return MISSING;
  const Wkv& m = *given;
  const int64_t D = m.channels;
  together(threads, [&](Team team) {
    std::vector<Token> tokens(m.chunk);
    std::vector<Late> late;
    by_row(team, m.rows, D, [&](int64_t row, int64_t first, int64_t last) {
      late.clear();
      for (int64_t vector = first; vector < last; ++vector) {
        const Channels of = channels_of(vector, D);
        const float* after = grads->last + row * 2 * D;
        late.push_back({of.of(after), of.of(after + D), spread(0.0f), spread(0.0f)});
      }
      for (int64_t chunk = chunks_of(m.tokens, m.chunk) - 1; chunk >= 0; --chunk)
        for (int64_t vector = first; vector < last; ++vector)
          back(Lane(m, row, vector), chunk, *grads, tokens.data(), late[vector - first]);
      for (int64_t vector = first; vector < last; ++vector) {
        const Channels of = channels_of(vector, D);
        const Late& found = late[vector - first];
        of.into(grads->start + row * 2 * D, found.above), of.into(grads->start + (row * 2 + 1) * D, found.below);
        of.onto(grads->fade + team.me * D, found.fade), of.onto(grads->bonus + team.me * D, found.bonus);
      }
    });
  });
  return DONE;
}
