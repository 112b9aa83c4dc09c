// Cross-entropy of logits and its gradient, in one walk over each row while it is near.
#include "team.h"
#include "vector.h"

// Row by row: nats = -log p(label), spread = -mean log p (0 without smoothing); logits become p - (1-ε) · onehot(label) - ε / V.
extern "C" int32_t heed_entropy(float* logits, const int64_t* labels, int64_t rows, int64_t count, float smoothing,
                                double* nats, double* spreads, int32_t threads) {
  if (!a_team(threads)) return THREADS;
  if (!countable({rows, count})) return SIZES;
  if (!present(rows, {logits, labels, nats, spreads})) return MISSING;
  for (int64_t row = 0; row < rows; ++row)
    if (labels[row] < 0 || labels[row] >= count) return VALUES;
  together(threads, [&](Team team) {
    const Share mine = team.of(rows);
    for (int64_t row = mine.begin; row < mine.end; ++row) {
      float* x = logits + row * count;
      const float wanted = x[labels[row]];
      Float most = spread(-INFINITY), all = spread(0.0f);
      int64_t k = 0;
      for (; k + LANES <= count; k += LANES) {
        most = larger(most, load(x + k));
        if (smoothing != 0.0f) all = add(all, load(x + k));
      }
      float top = largest(most);
      double plain = smoothing != 0.0f ? sum(all) : 0.0;
      for (; k < count; ++k) {
        top = std::max(top, x[k]);
        plain += x[k];
      }
      double total = 0.0;
      for (k = 0; k < count;) {  // partial sums: a hundred thousand terms are too many for one float
        const int64_t end = std::min<int64_t>(count, k + 4096);
        Float part = spread(0.0f);
        for (; k + LANES <= end; k += LANES) {
          const Float p = exponential(sub(load(x + k), spread(top)));
          store(x + k, p);
          part = add(part, p);
        }
        total += sum(part);
        for (; k < end; ++k) total += x[k] = std::exp(x[k] - top);
      }
      const float factor = (float)(1.0 / total), share = smoothing / (float)count;
      for (k = 0; k + LANES <= count; k += LANES)
        store(x + k, sub(mul(load(x + k), spread(factor)), spread(share)));
      for (; k < count; ++k) x[k] = x[k] * factor - share;
      x[labels[row]] -= 1.0f - smoothing;
      const double level = (double)top + std::log(total);
      nats[row] = level - wanted;
      spreads[row] = smoothing != 0.0f ? level - plain / (double)count : 0.0;
    }
  });
  return DONE;
}
