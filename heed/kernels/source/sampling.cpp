// The next token of a row: the largest score, or a draw from what truncation leaves.
#include "sampling.h"
#include "team.h"

#include <vector>

struct Peak {
  float top;
  double total;  // Σ e^(score - top)
  bool strange;  // there is no number, or none that is finite
};

static Peak peak_of(const float* scores, int64_t count) {
  Float most = spread(-INFINITY);
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) most = larger(most, load(scores + k));
  float top = largest(most);
  for (; k < count; ++k) top = std::max(top, scores[k]);
  double total = 0.0;
  for (k = 0; k < count;) {  // partial sums: a hundred thousand terms are too many for one float
    const int64_t end = std::min<int64_t>(count, k + 4096);
    Float part = spread(0.0f);
    for (; k + LANES <= end; k += LANES) part = add(part, exponential(sub(load(scores + k), spread(top))));
    total += sum(part);
    for (; k < end; ++k) total += std::exp(scores[k] - top);
  }
  int strange = !std::isfinite(top);
  for (k = 0; k < count; ++k) strange |= scores[k] != scores[k];
  return {top, total, strange != 0};
}

static void bend(float* scores, int64_t count, float cap) {
  for (int64_t k = 0; k < count; ++k) scores[k] = cap * std::tanh(scores[k] / cap);
}

// e^x for x up to 0, off by two units in the last place at most; 0 below -708. A loop over it becomes vectors.
static inline double fading(double x) {
  const double whole = 6755399441055744.0;  // 1.5 · 2^52: what is added to it is rounded to a whole number, its last bits
  const double held = x < -708.0 ? -708.0 : x, shifted = held * 1.4426950408889634 + whole, n = shifted - whole;
  const double r = (held - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0, p = p * r + 1.0 / 39916800.0, p = p * r + 1.0 / 3628800.0, p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0, p = p * r + 1.0 / 5040.0, p = p * r + 1.0 / 720.0, p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0, p = p * r + 1.0 / 6.0, p = p * r + 0.5, p = p * r + 1.0, p = p * r + 1.0;
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 52) + 0x3ff0000000000000u;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -708.0 ? 0.0 : p * power;
}

// Scores that the k largest are among, and their tokens in order: those that reach the k-th largest maximum of a block.
struct Front {
  std::vector<float> maxima, scores;
  std::vector<int64_t> tokens;

  void find(const float* all, int64_t count, int64_t k) {
    constexpr int64_t BLOCK = 128;
    maxima.clear(), scores.clear(), tokens.clear();
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
      const int64_t end = std::min(count, begin + BLOCK);
      Float most = spread(-INFINITY);
      int64_t j = begin;
      for (; j + LANES <= end; j += LANES) most = larger(most, load(all + j));
      float top = largest(most);
      for (; j < end; ++j) top = std::max(top, all[j]);
      maxima.push_back(top);
    }
    float least = -INFINITY;
    if (k <= (int64_t)maxima.size()) {
      scores = maxima;
      std::nth_element(scores.begin(), scores.begin() + (k - 1), scores.end(), std::greater<float>());
      least = scores[k - 1];
      scores.clear();
    }
    for (int64_t begin = 0, block = 0; begin < count; begin += BLOCK, ++block)
      if (maxima[block] >= least)
        for (int64_t j = begin; j < std::min(count, begin + BLOCK); ++j)
          if (all[j] >= least) scores.push_back(all[j]), tokens.push_back(j);
  }

  // Only what reaches the k-th largest: more than k where scores are equal.
  void cut(int64_t k) {
    float least = -INFINITY;
    if (k <= (int64_t)scores.size()) {
      maxima = scores;
      std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<float>());
      least = maxima[k - 1];
    }
    int64_t kept = 0;
    for (size_t j = 0; j < scores.size(); ++j)
      if (scores[j] >= least && scores[j] > -INFINITY) scores[kept] = scores[j], tokens[kept++] = tokens[j];
    scores.resize(kept), tokens.resize(kept);
  }
};

// The smallest weight of the smallest set of the largest weights, all up to 1, that has this sum. They are counted in
// classes of nearly the same size; only the class in which the sum is reached must be put in order.
static double least_of(const std::vector<double>& weights, double wanted, std::vector<double>& within) {
  constexpr int64_t CLASSES = 64 * 48, SHIFT = 46;  // 64 for every halving; all below 2^-48 are one
  static thread_local std::vector<double> sums;
  sums.assign(CLASSES, 0.0);
  const auto class_of = [](double weight) {
    uint64_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    const int64_t found = (int64_t)(0x3ff0000000000000u >> SHIFT) - (int64_t)(bits >> SHIFT);
    return std::min(CLASSES - 1, std::max<int64_t>(0, found));  // NaN, or more than 1, has no class of its own
  };
  for (double weight : weights) sums[class_of(weight)] += weight;
  double before = 0.0;
  int64_t at = 0;
  while (at + 1 < CLASSES && before + sums[at] < wanted) before += sums[at++];
  within.clear();
  for (double weight : weights)
    if (class_of(weight) == at) within.push_back(weight);
  std::sort(within.begin(), within.end(), std::greater<double>());
  double least = 0.0;
  for (double weight : within) {
    if (before >= wanted) break;  // those before it have the sum already
    least = weight, before += weight;
  }
  return least;
}

static int64_t drawn(const Choice& how, const float* scores, int64_t count, double draw) {
  static thread_local Front front;
  static thread_local std::vector<double> weights, within;
  const bool some = how.top_k > 0 && how.top_k < count;
  if (some) {
    front.find(scores, count, how.top_k);
    front.cut(how.top_k);
    scores = front.scores.data(), count = front.scores.size();
  }
  float top = -INFINITY;
  for (int64_t j = 0; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  weights.resize(count);
  for (int64_t j = 0; j < count; ++j) weights[j] = fading(((double)scores[j] - (double)top) / how.temperature);
  double least = how.min_p;
  if (how.top_p < 1.0) {
    double total = 0.0;
    for (double weight : weights) total += weight;
    least = std::max(least, least_of(weights, how.top_p * total, within));
  }
  double total = 0.0;
  for (double& weight : weights) weight = total += weight < least ? 0.0 : weight;
  const auto found = std::upper_bound(weights.begin(), weights.end(), draw * total);
  const int64_t place = std::min<int64_t>(count - 1, found - weights.begin());
  HEED_ASSERT(place >= 0);
  return some ? front.tokens[place] : place;
}

void choose(const Choice& how, float* scores, int64_t count, uint8_t* seen, const double* draw, int64_t& token, float& logp) {
  static thread_local std::vector<float> penalised;
  if (how.cap > 0.0f) bend(scores, count, how.cap);
  const Peak peak = peak_of(scores, count);
  token = 0, logp = NAN;
  if (peak.strange) return;
  const float* rated = scores;
  if (seen) {
    penalised.resize(count);
    for (int64_t k = 0; k < count; ++k) {
      const float score = scores[k];
      penalised[k] = !seen[k] ? score : score > 0.0f ? score / how.penalty : score * how.penalty;
    }
    rated = penalised.data();
    int wrong = 0, some = 0;  // a penalty can make of a number what is none, or infinity: then there is nothing to choose from
    for (int64_t k = 0; k < count; ++k) wrong |= !(rated[k] < INFINITY), some |= rated[k] > -INFINITY;
    if (wrong || !some) return;
  }
  if (draw) {
    token = drawn(how, rated, count, *draw);
  } else if (seen) {
    token = std::max_element(rated, rated + count) - rated;
  } else {
    while (rated[token] != peak.top) ++token;
  }
  if (seen) seen[token] = 1;
  logp = (float)((double)(scores[token] - peak.top) - std::log(peak.total));
}

// The k largest scores of every row as log p, the largest first, of equal ones the first token first. NaN throughout a row
// that holds something else than numbers.
extern "C" int32_t heed_topk_logprobs(const float* scores, int64_t rows, int64_t count, int64_t k, int64_t* tokens,
                                      float* logp, int32_t threads) {
  if (!a_team(threads)) return THREADS;
  if (!countable({rows, count}) || k < 1 || k > count) return SIZES;
  if (!present(rows, {scores, tokens, logp})) return MISSING;
  together(threads, [&](Team team) {
    Front front;
    std::vector<int64_t> order;
    const Share mine = team.of(rows);
    for (int64_t b = mine.begin; b < mine.end; ++b) {
      const float* row = scores + b * count;
      const Peak peak = peak_of(row, count);
      const double all = std::log(peak.total);
      if (peak.strange) {
        for (int64_t j = 0; j < k; ++j) tokens[b * k + j] = j, logp[b * k + j] = NAN;
        continue;
      }
      front.find(row, count, k);
      order.resize(front.scores.size());
      for (size_t j = 0; j < order.size(); ++j) order[j] = j;
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t i, int64_t j) {
        return front.scores[i] != front.scores[j] ? front.scores[i] > front.scores[j] : i < j;
      });
      for (int64_t j = 0; j < k; ++j) {
        tokens[b * k + j] = front.tokens[order[j]];
        logp[b * k + j] = (float)((double)(front.scores[order[j]] - peak.top) - all);
      }
    }
  });
  return DONE;
}
