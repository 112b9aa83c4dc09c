// Softmax attention of many tokens per row to one another, block by block: scores are never held as a whole (Dao et al.
// 2022). Keys of a head are laid side by side like rows of weights, and so are the channels of its values.
#include "panel.h"
#include "step.h"

#include <vector>

namespace {

constexpr int64_t BLOCK = 512;  // keys at a time

struct Sight {  // which keys token i sees
  int64_t count, reach;
  bool ahead;
  int64_t first(int64_t i) const { return reach < 0 ? 0 : std::max<int64_t>(0, i - reach); }
  int64_t last(int64_t i) const { return !ahead ? i : reach < 0 ? count - 1 : std::min(count - 1, i + reach); }
};

// Room for one head of one row, kept from call to call.
struct Room {
  std::vector<int32_t> keys, values;
  std::vector<float> scores, out, tops, totals;
  void fit(int64_t tokens, int64_t size, int64_t wide) {
    const int64_t panels = (BLOCK + PANEL - 1) / PANEL;
    grow(keys, panels * PANEL * size), grow(values, BLOCK * wide), grow(scores, TILE * BLOCK);
    grow(out, tokens * wide), grow(tops, tokens), grow(totals, tokens);
  }
  template <class T> static void grow(std::vector<T>& room, int64_t size) {
    if ((int64_t)room.size() < size) room.resize(size);
  }
};

struct Head {
  const Instruction& in;
  const Step& s;
  int64_t begin, count, head;  // tokens begin .. begin + count - 1
  int64_t size() const { return in.number[3]; }
  int64_t wide() const { return (in.number[4] + PANEL - 1) / PANEL * PANEL; }  // channels of a value, in whole panels
  int64_t shared() const { return head / (in.number[1] / in.number[2]); }
  const float* query(int64_t i) const { return at(in.from, i, head * size()); }
  const float* key(int64_t j) const { return at(in.key, j, shared() * size()); }
  const float* value(int64_t j) const { return at(in.value, j, shared() * in.number[4]); }
  float* mixed(int64_t i) const { return at(in.to, i, head * in.number[4]); }
  float* at(int32_t number, int64_t token, int64_t channel) const {
    const Register r = s.registers[number];
    return r.data + (begin + token) * r.width + channel;
  }
};

void lay_out(const Head& h, Room& room, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; j += PANEL) {
    const int32_t* rows[PANEL];
    for (int64_t r = 0; r < PANEL; ++r) rows[r] = (const int32_t*)h.key(std::min(end - 1, j + r));
    side_by_side(rows, 0, h.size(), &room.keys[(j - begin) * h.size()]);
  }
  const int64_t channels = h.in.number[4];
  for (int64_t c = 0; c < h.wide(); c += PANEL)
    for (int64_t j = begin; j < end; ++j) {
      int32_t* to = &room.values[c * BLOCK + (j - begin) * PANEL];
      const int64_t some = std::min<int64_t>(PANEL, channels - c);
      std::memcpy(to, h.value(j) + c, some * sizeof(float));
      if (some < PANEL) std::memset(to + some, 0, (PANEL - some) * sizeof(float));
    }
}

// Scores of one token become weights e^(score - top), nothing outside first .. last; gives their sum.
float weigh(const Head& h, int64_t i, float* score, int64_t begin, Share span, Share seen, float& top) {
  const float scale = h.in.real[0], cap = h.in.real[1], *slope = (const float*)h.in.table[0];
  for (int64_t j = span.begin; j < std::min(span.end, seen.begin); ++j) score[j - begin] = -INFINITY;
  for (int64_t j = std::max(span.begin, seen.end); j < span.end; ++j) score[j - begin] = -INFINITY;
  Float most = spread(-INFINITY);
  for (int64_t j = span.begin - begin; j < span.end - begin; j += LANES) {
    store(score + j, mul(load(score + j), spread(scale)));
    if (cap <= 0.0f && !slope) most = larger(most, load(score + j));
  }
  float best = largest(most);
  if (cap > 0.0f || slope) {
    const int64_t* position = h.s.position + h.begin;
    for (int64_t j = std::max(span.begin, seen.begin); j < std::min(span.end, seen.end); ++j) {
      float& x = score[j - begin];
      if (cap > 0.0f) x = cap * std::tanh(x / cap);
      if (slope) x -= slope[h.head] * (float)(position[i] - position[j]);
      best = std::max(best, x);
    }
  }
  top = std::max(top, best);
  if (top == -INFINITY) {
    std::memset(score + span.begin - begin, 0, (span.end - span.begin) * sizeof(float));
    return 0.0f;
  }
  Float total = spread(0.0f);
  for (int64_t j = span.begin - begin; j < span.end - begin; j += LANES) {
    const Float weight = exponential(sub(load(score + j), spread(top)));
    store(score + j, weight);
    total = add(total, weight);
  }
  // What is not seen was -inf, and e^-inf is 0 only nearly: `exponential` stops at e^-87.
  for (int64_t j = span.begin; j < std::min(span.end, seen.begin); ++j) score[j - begin] = 0.0f;
  for (int64_t j = std::max(span.begin, seen.end); j < span.end; ++j) score[j - begin] = 0.0f;
  return sum(total);
}

// Tokens first .. first + some - 1 and the keys begin .. end-1.
void attend_tile(const Head& h, Room& room, const Sight& sight, int64_t first, int64_t some, int64_t begin, int64_t end) {
  const int64_t from = std::max(begin, sight.first(first)), to = std::min(end, sight.last(first + some - 1) + 1);
  if (from >= to) return;
  // In whole panels; beyond `end` keys are the last one again, and nobody sees them.
  const Share span{begin + (from - begin) / PANEL * PANEL, begin + (to - begin + PANEL - 1) / PANEL * PANEL};
  const int64_t apart = h.s.registers[h.in.from].width;
  for (int64_t j = span.begin; j < span.end; j += PANEL)
    multiply_tokens<Singles, TILE>(Tile{(const int32_t*)h.query(first), apart, &room.keys[(j - begin) * h.size()], h.size(),
                                        &room.scores[j - begin], BLOCK, true}, some);
  for (int64_t t = 0; t < some; ++t) {
    const int64_t i = first + t;
    float* out = &room.out[i * h.wide()];
    const float before = room.tops[i];
    const float total = weigh(h, i, &room.scores[t * BLOCK], begin, span, {sight.first(i), std::min(end, sight.last(i) + 1)}, room.tops[i]);
    const float kept = before == -INFINITY ? 0.0f : std::exp(before - room.tops[i]);
    room.totals[i] = room.totals[i] * kept + total;
    if (before == -INFINITY)
      std::memset(out, 0, h.wide() * sizeof(float));
    else if (kept != 1.0f)
      for (int64_t c = 0; c < h.wide(); c += LANES) store(out + c, mul(load(out + c), spread(kept)));
  }
  const int64_t keys = std::min(end, span.end) - span.begin, skipped = span.begin - begin;
  for (int64_t c = 0; c < h.wide(); c += PANEL)
    multiply_tokens<Singles, TILE>(Tile{(const int32_t*)&room.scores[skipped], BLOCK, &room.values[c * BLOCK + skipped * PANEL],
                                        keys, &room.out[first * h.wide() + c], h.wide(), false}, some);
}

void attend_head(const Head& h, Room& room, const Sight& sight) {
  room.fit(h.count, h.size(), h.wide());
  for (int64_t i = 0; i < h.count; ++i) room.tops[i] = -INFINITY, room.totals[i] = 0.0f;
  for (int64_t begin = 0; begin < h.count; begin += BLOCK) {
    const int64_t end = std::min(h.count, begin + BLOCK);
    lay_out(h, room, begin, end);
    for (int64_t i = 0; i < h.count; i += TILE) attend_tile(h, room, sight, i, std::min<int64_t>(TILE, h.count - i), begin, end);
  }
  for (int64_t i = 0; i < h.count; ++i) {
    const float* out = &room.out[i * h.wide()];
    float* y = h.mixed(i);
    for (int64_t c = 0; c < h.in.number[4]; ++c) y[c] = out[c] / room.totals[i];
  }
}

}  // namespace

// Heads of rows are shared by what they cost: rows may have very different lengths.
void attend_one_another(const Instruction& in, const Step& s, const Team& team) {
  static thread_local Room room;
  const int64_t heads = in.number[1];
  double all = 0.0, before = 0.0;
  const auto cost = [](int64_t count) { return (double)count * (double)(count + 64); };
  for (int64_t q = 0; q < s.sequences; ++q) all += heads * cost(s.begins[q + 1] - s.begins[q]);
  for (int64_t q = 0; q < s.sequences; ++q) {
    const int64_t count = s.begins[q + 1] - s.begins[q];
    for (int64_t head = 0; head < heads; ++head, before += cost(count))
      if (count && (int)((before + cost(count) / 2) * team.size / all) == team.me)
        attend_head(Head{in, s, s.begins[q], count, head}, room, Sight{count, in.number[5], in.number[0] == BOTH_WAYS});
  }
}
