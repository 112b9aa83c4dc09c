// Mamba's selective scan over many tokens and back: D channels of S numbers, whose decays depend on the token.
#include "scan.h"

// h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t u_t B_t, y_t = C_t·h_t, in D channels of S numbers.
struct SelectiveScan {
  int64_t rows, tokens, channels, numbers, chunk;
  const float *step, *input;   // Δ, u [rows, tokens, D]
  const float *write, *read;   // B, C [rows, tokens, S]
  const float* rates;          // A [S, D]
  float* states;               // before every chunk, and after the last one [rows, chunks + 1, S, D]
};

struct SelectiveScanGradients {
  const float *y, *last;  // given; `last` [rows, S, D]
  float *step, *input, *start;
  float *write, *read, *rates;  // zeros, one of them for each thread: sums over channels, and over tokens
};

namespace {

Refusal unfit(const SelectiveScan* s, int32_t threads) {
  if (!s) return MISSING;
  if (!a_team(threads)) return THREADS;
  if (s->chunk < 1 || !countable({s->chunk, s->numbers, LANES}) || !countable({s->rows, s->tokens, s->channels})) return SIZES;
  if (!countable({s->rows, s->tokens, s->numbers, threads}) || !countable({s->numbers, s->channels, threads})) return SIZES;
  if (!countable({s->rows, s->tokens + 1, s->numbers, s->channels})) return SIZES;  // at most so many states
  const int64_t tokens = s->rows * s->tokens, states = s->rows * s->numbers * s->channels;
  const bool all = present(tokens * s->channels, {s->step, s->input}) && present(tokens * s->numbers, {s->write, s->read}) &&
                   present(states, {s->rates, s->states});
  return all ? DONE : MISSING;
}

// Room for S numbers of some channels, each.
struct Near {
  std::vector<Float> rates, h;
  explicit Near(int64_t numbers) : rates(numbers), h(numbers) {}
  void take(const SelectiveScan& s, Channels of, const float* state) {
    for (size_t n = 0; n < h.size(); ++n) rates[n] = of.of(s.rates + n * s.channels), h[n] = of.of(state + n * s.channels);
  }
};

// Tokens begin .. end of some channels, from h on: each(t, n, decay, h) is told every state, done(token, y) every sum.
template <class Each, class Done>
void walk(const SelectiveScan& s, int64_t row, int64_t begin, int64_t end, Channels of, Near& near, const Each& each, const Done& done) {
  const Float* rates = near.rates.data();
  Float* h = near.h.data();
  const int64_t numbers = s.numbers;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t token = row * s.tokens + t;
    const Float step = of.of(s.step + token * s.channels), in = mul(step, of.of(s.input + token * s.channels));
    const float *write = s.write + token * numbers, *read = s.read + token * numbers;
    Float y = spread(0.0f);
    for (int64_t n = 0; n < numbers; ++n) {
      const Float decay = exponential(mul(step, rates[n]));
      h[n] = fma(decay, h[n], mul(in, spread(write[n])));
      y = fma(h[n], spread(read[n]), y);
      each(t - begin, n, decay, h[n]);
    }
    done(token, y);
  }
}

void add_lanes(const Float* x, float* to, int64_t count) {
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    float four[4];
    four_sums(x + k, four);
    for (int i = 0; i < 4; ++i) to[k + i] += four[i];
  }
  for (; k < count; ++k) to[k] += sum(x[k]);
}

// The way back through one row's chunks, with this thread's sums.
class SelectiveScanBack {
 public:
  SelectiveScanBack(const SelectiveScan& space, const SelectiveScanGradients& grads, int64_t thread)
      : s(space), given(grads), near_(s.numbers), states_((s.chunk + 1) * s.numbers), decays_(s.chunk * s.numbers),
        write_(s.chunk * s.numbers), read_(s.chunk * s.numbers), rates_(s.numbers) {
    const int64_t tokens = s.rows * s.tokens * s.numbers;
    to_write_ = given.write + thread * tokens, to_read_ = given.read + thread * tokens;
    to_rates_ = given.rates + thread * s.numbers * s.channels;
  }

  // `late` [vectors, S] is the gradient of the state after the chunk, then of that before it.
  void chunk(int64_t row, int64_t number, int64_t first, int64_t last, Float* late) {
    const int64_t begin = number * s.chunk, end = std::min(begin + s.chunk, s.tokens), S = s.numbers;
    const float* start = s.states + (row * (chunks_of(s.tokens, s.chunk) + 1) + number) * S * s.channels;
    fill(write_), fill(read_);
    for (int64_t vector = first; vector < last; ++vector) {
      const Channels of = channels_of(vector, s.channels);
      Float *h = states_.data(), *decays = decays_.data();
      near_.take(s, of, start);
      std::copy(near_.h.begin(), near_.h.end(), h);
      walk(s, row, begin, end, of, near_,
           [=](int64_t t, int64_t n, Float decay, Float state) { decays[t * S + n] = decay, h[(t + 1) * S + n] = state; },
           [](int64_t, Float) {});
      fill(rates_);  // summed up by chunks: fewer roundings than along the whole sequence
      for (int64_t t = end - 1; t >= begin; --t) token(of, row * s.tokens + t, (t - begin) * S, late + (vector - first) * S);
      for (int64_t n = 0; n < S; ++n) of.onto(to_rates_ + n * s.channels, rates_[n]);
    }
    add_lanes(write_.data(), to_write_ + (row * s.tokens + begin) * S, (end - begin) * S);
    add_lanes(read_.data(), to_read_ + (row * s.tokens + begin) * S, (end - begin) * S);
  }

 private:
  void token(Channels of, int64_t token, int64_t at, Float* late) {
    const int64_t D = s.channels, S = s.numbers;
    const Float step = of.of(s.step + token * D), u = of.of(s.input + token * D), grad = of.of(given.y + token * D);
    const Float in = mul(step, u);
    const float *write = s.write + token * S, *read = s.read + token * S;
    const Float *before = states_.data() + at, *after = before + S, *decays = decays_.data() + at, *rates = near_.rates.data();
    Float *to_write = write_.data() + at, *to_read = read_.data() + at, *to_rates = rates_.data();
    Float to_in = spread(0.0f), to_step = spread(0.0f);
    for (int64_t n = 0; n < S; ++n) {
      const Float all = fma(spread(read[n]), grad, late[n]);  // the gradient of h
      const Float old = mul(all, decays[n]), exponent = mul(old, before[n]);  // of the state before, and of Δ A
      late[n] = old;
      to_read[n] = fma(after[n], grad, to_read[n]);
      to_write[n] = fma(all, in, to_write[n]);
      to_in = fma(all, spread(write[n]), to_in);
      to_step = fma(exponent, rates[n], to_step);
      to_rates[n] = fma(exponent, step, to_rates[n]);
    }
    of.into(given.step + token * D, fma(to_in, u, to_step));
    of.into(given.input + token * D, mul(to_in, step));
  }

  const SelectiveScan& s;
  const SelectiveScanGradients& given;
  float *to_write_, *to_read_, *to_rates_;
  Near near_;
  std::vector<Float> states_, decays_;         // of a chunk, [chunk + 1, S] and [chunk, S]
  std::vector<Float> write_, read_, rates_;  // sums over vectors of channels, whose lanes are added up at last
};

}  // namespace

extern "C" int32_t heed_selective_scan(const SelectiveScan* given, float* y, int32_t threads) {
  if (const Refusal refused = unfit(given, threads)) return refused;
  if (!present(given->rows * given->tokens * given->channels, {y})) return MISSING;
  const SelectiveScan& s = *given;
  const int64_t chunks = chunks_of(s.tokens, s.chunk), size = s.numbers * s.channels;
  together(threads, [&](Team team) {
    Near near(s.numbers);
    by_row(team, s.rows, s.channels, [&](int64_t row, int64_t first, int64_t last) {
      for (int64_t number = 0; number < chunks; ++number)
        for (int64_t vector = first; vector < last; ++vector) {
          const Channels of = channels_of(vector, s.channels);
          float* found = s.states + (row * (chunks + 1) + number) * size;
          near.take(s, of, found);
          walk(s, row, number * s.chunk, std::min((number + 1) * s.chunk, s.tokens), of, near,
               [](int64_t, int64_t, Float, Float) {},
               [=](int64_t token, Float made) { of.into(y + token * s.channels, made); });
          for (int64_t n = 0; n < s.numbers; ++n) of.into(found + size + n * s.channels, near.h[n]);
        }
    });
  });
  return DONE;
}

extern "C" int32_t heed_selective_scan_back(const SelectiveScan* given, const SelectiveScanGradients* grads, int32_t threads) {
  if (const Refusal refused = unfit(given, threads)) return refused;
  if (!grads || !present(given->rows * given->tokens * given->channels, {grads->y, grads->step, grads->input}) ||
      !present(given->rows * given->tokens * given->numbers, {grads->write, grads->read}) ||
      !present(given->rows * given->numbers * given->channels, {grads->last, grads->start, grads->rates}))
    return MISSING;
  const SelectiveScan& s = *given;
  const int64_t chunks = chunks_of(s.tokens, s.chunk), size = s.numbers * s.channels;
  together(threads, [&](Team team) {
    SelectiveScanBack back(s, *grads, team.me);
    by_row(team, s.rows, s.channels, [&](int64_t row, int64_t first, int64_t last) {
      std::vector<Float> late((last - first) * s.numbers);
      const auto each = [&](const auto& work) {
        for (int64_t vector = first; vector < last; ++vector)
          for (int64_t n = 0; n < s.numbers; ++n)
            work(channels_of(vector, s.channels), row * size + n * s.channels, late[(vector - first) * s.numbers + n]);
      };
      each([&](Channels of, int64_t at, Float& grad) { grad = of.of(grads->last + at); });
      for (int64_t number = chunks - 1; number >= 0; --number) back.chunk(row, number, first, last, late.data());
      each([&](Channels of, int64_t at, Float& grad) { of.into(grads->start + at, grad); });
    });
  });
  return DONE;
}
