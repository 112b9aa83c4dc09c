// Softmax attention of many tokens per row to what their row remembers and to one another, block by block: scores are
// never held as a whole (Dao et al. 2022). Keys of a head are laid side by side like rows of weights, and so are the
// channels of its values.
#include "panel.h"
#include "step.h"

#include <vector>

using At = AttendOperands;

namespace {

constexpr int64_t BLOCK = 512;  // keys at a time

// Which keys token i sees: first those that were remembered before, then those of the call. Where the former have holes,
// or do not end where the call begins, their stamps are asked as well; from token `reach` on none of them is near enough,
// and what is computed stays within the window.
struct Sight {
  int64_t before, keys, reach;
  bool ahead, stamped;
  int64_t first(int64_t i) const {
    return reach < 0 || (stamped && i < reach) ? 0 : std::max<int64_t>(0, before + i - reach);
  }
  int64_t last(int64_t i) const {
    return !ahead ? before + i : reach < 0 ? keys - 1 : std::min(keys - 1, before + i + reach);
  }
};

// Room for one head of one row, kept from call to call.
struct Room {
  std::vector<int32_t> keys, values;
  std::vector<float> scores, out, tops, totals;
  std::vector<int64_t> orders;  // of keys, where they are asked
  void fit(int64_t tokens, int64_t size, int64_t wide) {
    const int64_t panels = (BLOCK + PANEL - 1) / PANEL;
    grow(keys, panels * PANEL * size), grow(values, BLOCK * wide), grow(scores, TILE * BLOCK);
    grow(out, tokens * wide), grow(tops, tokens), grow(totals, tokens), grow(orders, BLOCK);
  }
  template <class T> static void grow(std::vector<T>& room, int64_t size) {
    if ((int64_t)room.size() < size) room.resize(size);
  }
};

struct Head {
  const Instruction& in;
  const Step& s;
  const KvCache* past;               // null: nothing was remembered
  int64_t row, begin, count, head;  // tokens begin .. begin + count - 1
  int64_t before() const { return past ? past->length : 0; }
  int64_t keys() const { return before() + (in.key < 0 ? 0 : count); }
  int64_t size() const { return in.number[At::size]; }
  int64_t wide() const { return (in.number[At::value_size] + PANEL - 1) / PANEL * PANEL; }  // channels of a value, in whole panels
  int64_t shared() const { return head / (in.number[At::heads] / in.number[At::kv_heads]); }
  const float* query(int64_t i) const { return at(in.from, i, head * size()); }
  const float* key(int64_t j) const {
    if (j >= before()) return at(in.key, j - before(), shared() * size());
    return past->key + (place_of(*past, row, j) * in.number[At::kv_heads] + shared()) * size();
  }
  const float* value(int64_t j) const {
    if (j >= before()) return at(in.value, j - before(), shared() * in.number[At::value_size]);
    return past->value + (place_of(*past, row, j) * in.number[At::kv_heads] + shared()) * in.number[At::value_size];
  }
  int64_t order(int64_t j) const { return j < before() ? past->order[place_of(*past, row, j)] : s.order[begin + j - before()]; }
  int64_t position(int64_t j) const {
    return j < before() ? past->position[place_of(*past, row, j)] : s.position[begin + j - before()];
  }
  float* mixed(int64_t i) const { return at(in.to, i, head * in.number[At::value_size]); }
  float* at(int32_t number, int64_t token, int64_t channel) const {
    const Register r = s.registers[number];
    return r.data + (begin + token) * r.width + channel;
  }
};

void lay_out(const Head& h, Room& room, int64_t begin, int64_t end, bool stamped) {
  if (stamped)
    for (int64_t j = begin; j < end; ++j) room.orders[j - begin] = h.order(j);
  for (int64_t j = begin; j < end; j += PANEL) {
    const int32_t* rows[PANEL];
    for (int64_t r = 0; r < PANEL; ++r) rows[r] = (const int32_t*)h.key(std::min(end - 1, j + r));
    side_by_side(rows, 0, h.size(), &room.keys[(j - begin) * h.size()]);
  }
  const int64_t channels = h.in.number[At::value_size];
  for (int64_t c = 0; c < h.wide(); c += PANEL)
    for (int64_t j = begin; j < end; ++j) {
      int32_t* to = &room.values[c * BLOCK + (j - begin) * PANEL];
      const int64_t some = std::min<int64_t>(PANEL, channels - c);
      std::memcpy(to, h.value(j) + c, some * sizeof(float));
      if (some < PANEL) std::memset(to + some, 0, (PANEL - some) * sizeof(float));
    }
}

// Puts a number in the place of all scores that token i does not see.
void cover(const Head& h, const Room& room, const Sight& sight, int64_t i, float* score, int64_t begin, Share span, Share seen,
           float with) {
  for (int64_t j = span.begin; j < std::min(span.end, seen.begin); ++j) score[j - begin] = with;
  for (int64_t j = std::max(span.begin, seen.end); j < span.end; ++j) score[j - begin] = with;
  if (!sight.stamped) return;
  const int64_t oldest = sight.reach < 0 ? 0 : std::max<int64_t>(0, h.s.order[h.begin + i] - sight.reach);
  for (int64_t j = span.begin; j < std::min(span.end, seen.end); ++j)
    if (room.orders[j - begin] < oldest) score[j - begin] = with;  // holes have the order -1
}

// Scores of one token become weights e^(score - top), nothing for keys that it does not see; gives their sum.
float weigh(const Head& h, const Room& room, const Sight& sight, int64_t i, float* score, int64_t begin, int64_t end, Share span,
            float& top) {
  const float scale = h.in.real[At::scale], cap = h.in.real[At::cap], *slope = (const float*)h.in.table[At::slopes];
  const Share seen{sight.first(i), std::min(end, sight.last(i) + 1)};
  cover(h, room, sight, i, score, begin, span, seen, -INFINITY);
  Float most = spread(-INFINITY);
  for (int64_t j = span.begin - begin; j < span.end - begin; j += LANES) {
    store(score + j, mul(load(score + j), spread(scale)));
    if (cap <= 0.0f && !slope) most = larger(most, load(score + j));
  }
  float best = largest(most);
  if (cap > 0.0f || slope) {
    const int64_t here = h.s.position[h.begin + i];
    for (int64_t j = std::max(span.begin, seen.begin); j < std::min(span.end, seen.end); ++j) {
      float& x = score[j - begin];
      if (x == -INFINITY) continue;  // not seen
      if (cap > 0.0f) x = cap * std::tanh(x / cap);
      if (slope) x -= slope[h.head] * (float)(here - h.position(j));
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
  cover(h, room, sight, i, score, begin, span, seen, 0.0f);  // e^-inf is 0 only nearly: `exponential` stops at e^-87
  return sum(total);
}

// Tokens first .. first + some - 1 and the keys begin .. end-1.
void attend_tile(const Head& h, Room& room, const Sight& sight, int64_t first, int64_t some, int64_t begin, int64_t end) {
  const int64_t from = std::max(begin, sight.first(first)), to = std::min(end, sight.last(first + some - 1) + 1);
  if (from >= to) return;
  // In whole panels; beyond `end` keys are the last one again, and no token sees them.
  const Share span{begin + (from - begin) / PANEL * PANEL, begin + (to - begin + PANEL - 1) / PANEL * PANEL};
  const int64_t apart = h.s.registers[h.in.from].width;
  for (int64_t j = span.begin; j < span.end; j += PANEL)
    multiply_tokens<Singles, TILE>(Tile{(const int32_t*)h.query(first), apart, &room.keys[(j - begin) * h.size()], h.size(),
                                        &room.scores[j - begin], BLOCK, true}, some);
  for (int64_t t = 0; t < some; ++t) {
    const int64_t i = first + t;
    float* out = &room.out[i * h.wide()];
    const float before = room.tops[i];
    const float total = weigh(h, room, sight, i, &room.scores[t * BLOCK], begin, end, span, room.tops[i]);
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
  for (int64_t begin = 0; begin < sight.keys; begin += BLOCK) {
    const int64_t end = std::min(sight.keys, begin + BLOCK);
    lay_out(h, room, begin, end, sight.stamped);
    for (int64_t i = 0; i < h.count; i += TILE) attend_tile(h, room, sight, i, std::min<int64_t>(TILE, h.count - i), begin, end);
  }
  for (int64_t i = 0; i < h.count; ++i) {
    const float* out = &room.out[i * h.wide()];
    float* y = h.mixed(i);
    for (int64_t c = 0; c < h.in.number[At::value_size]; ++c) y[c] = room.totals[i] > 0.0f ? out[c] / room.totals[i] : 0.0f;
  }
}

}  // namespace

// The keys and values of this call go behind what is remembered. Holes are zeros: no token sees them, but nothing times
// whatever lay there might be no number.
static void enter(const Instruction& in, const Step& s, const KvCache& m, const Team& team) {
  const int64_t longest = longest_of(s);
  const Share mine = team.of(longest);
  const auto put = [&](float* to, const Register from, int64_t token, bool there) {
    if (there)
      std::memcpy(to, from.data + token * from.width, from.width * sizeof(float));
    else
      std::memset(to, 0, from.width * sizeof(float));
  };
  const Register key = s.registers[in.key], value = s.registers[in.value];
  for (int64_t q = 0; q < s.sequences; ++q)
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const int64_t at = place_of(m, q, m.length + i), token = token_of(s, q, i, longest);
      put(m.key + at * key.width, key, token, token >= s.begins[q]);
      put(m.value + at * value.width, value, token, token >= s.begins[q]);
    }
}

// Heads of rows are shared by what they cost: rows may have very different lengths.
void attend_many(const Instruction& in, const Step& s, const Team& team) {
  static thread_local Room room;
  const int64_t heads = in.number[At::heads];
  const KvCache* past = in.number[At::cache] < 0 ? nullptr : s.caches + in.number[At::cache];
  if (past && !past->source) enter(in, s, *past, team);
  const int64_t held = past ? past->length : 0;
  double all = 0.0, before = 0.0;
  const auto cost = [&](int64_t count) { return (double)count * (double)(held + count + 64); };
  for (int64_t q = 0; q < s.sequences; ++q) all += heads * cost(s.begins[q + 1] - s.begins[q]);
  for (int64_t q = 0; q < s.sequences; ++q) {
    const int64_t count = s.begins[q + 1] - s.begins[q];
    for (int64_t head = 0; head < heads; ++head, before += cost(count))
      if (count && (int)((before + cost(count) / 2) * team.size / all) == team.me) {
        const Head h{in, s, past, q, s.begins[q], count, head};
        attend_head(h, room, Sight{held, h.keys(), in.number[At::back], in.number[At::cache] == BOTH_WAYS || in.key < 0, past && past->holes});
      }
  }
}
