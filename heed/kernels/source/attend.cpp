// Softmax attention of one token per row to what its row remembers.
#include "step.h"

#include <vector>

using At = AttendOperands;

constexpr int64_t FEW = 4;  // entries that are read at a time, all heads of each: memory is read in order

// q·k of so many entries.
template <int COUNT>
static inline void products(const float* query, const float* const* key, int64_t size, float* to) {
  Float sums[FEW];
  for (auto& each : sums) each = spread(0.0f);
  int64_t c = 0;
  for (; c + LANES <= size; c += LANES) {
    const Float q = load(query + c);
    for (int j = 0; j < COUNT; ++j) sums[j] = fma(q, load(key[j] + c), sums[j]);
  }
  float found[FEW];
  four_sums(sums, found);
  for (; c < size; ++c)
    for (int j = 0; j < COUNT; ++j) found[j] += query[c] * key[j][c];
  for (int j = 0; j < COUNT; ++j) to[j] = found[j];
}

// y += Σ weight · value over so many entries.
template <int COUNT>
static inline void accumulate(float* y, const float* weight, const float* const* value, int64_t size) {
  Float times[COUNT];
  for (int j = 0; j < COUNT; ++j) times[j] = spread(weight[j]);
  int64_t c = 0;
  for (; c + LANES <= size; c += LANES) {
    Float total = load(y + c);
    for (int j = 0; j < COUNT; ++j) total = fma(times[j], load(value[j] + c), total);
    store(y + c, total);
  }
  for (; c < size; ++c)
    for (int j = 0; j < COUNT; ++j) y[c] += weight[j] * value[j][c];
}

// Weights of so many scores, in place; gives what they sum to before they are divided by it.
static float soften(float* score, int64_t count) {
  float top = -INFINITY;
  for (int64_t j = 0; j < count; ++j) top = std::max(top, score[j]);
  if (top == -INFINITY) {
    std::memset(score, 0, count * sizeof(float));
    return 1.0f;
  }
  Float total = spread(0.0f);
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
    const Float w = exponential(sub(load(score + j), spread(top)));
    store(score + j, w);
    total = add(total, w);
  }
  if (j < count) {
    float rest[LANES];
    std::fill(rest, rest + LANES, -INFINITY);  // whose weight is 10^-38: that is nothing beside the largest, which is 1
    std::memcpy(rest, score + j, (count - j) * sizeof(float));
    const Float w = exponential(sub(load(rest), spread(top)));
    store(rest, w);
    std::memcpy(score + j, rest, (count - j) * sizeof(float));
    total = add(total, w);
  }
  return sum(total);
}

struct Glance {  // one row of a batch, some of its heads
  const KvCache& memory;
  const Instruction& in;
  int64_t row, first, last, seen;
};

// Where the entries begin .. end-1 of a row lie, from the given head on.
struct Places {
  const float* at[FEW];
  Places(const float* held, const int64_t* places, int64_t begin, int64_t end, int64_t entry, int64_t skipped) {
    for (int64_t j = begin; j < end; ++j) at[j - begin] = held + places[j] * entry + skipped;
  }
};

static void attend_row(const Glance& g, const float* query, float* out, int64_t here, int64_t now, int64_t at) {
  static thread_local std::vector<float> scores, totals;
  static thread_local std::vector<int64_t> places;
  const KvCache& m = g.memory;
  const int64_t heads = g.in.number[At::heads], kv = g.in.number[At::kv_heads], size = g.in.number[At::size], wide = g.in.number[At::value_size];
  const int64_t back = g.in.number[At::back], group = heads / kv, lines = (g.last - g.first) * group;
  if ((int64_t)scores.size() < lines * g.seen) scores.resize(lines * g.seen);
  if ((int64_t)totals.size() < lines) totals.resize(lines);
  if ((int64_t)places.size() < g.seen) places.resize(g.seen);
  for (int64_t j = 0; j < g.seen; ++j) places[j] = place_of(m, g.row, j);
  const float scale = g.in.real[At::scale], cap = g.in.real[At::cap], *slope = (const float*)g.in.table[At::slopes];
  const bool stamped = m.holes || (back >= 0 && m.cap != back);  // else all that is there is seen
  const bool plain = !stamped && cap <= 0.0f && !slope;
  for (int64_t begin = 0; begin < g.seen; begin += FEW) {
    const int64_t end = std::min(g.seen, begin + FEW);
    for (int64_t h = g.first; h < g.last; ++h) {
      const Places key(m.key, places.data(), begin, end, kv * size, h * size);
      for (int64_t q = 0; q < group; ++q) {
        const float* asks = query + (h * group + q) * size;
        float* score = &scores[((h - g.first) * group + q) * g.seen];
        switch (end - begin) {
          case 1: products<1>(asks, key.at, size, score + begin); break;
          case 2: products<2>(asks, key.at, size, score + begin); break;
          case 3: products<3>(asks, key.at, size, score + begin); break;
          default: products<FEW>(asks, key.at, size, score + begin);
        }
        for (int64_t j = begin; j < end; ++j) score[j] *= scale;
        if (plain) continue;
        for (int64_t j = begin; j < end; ++j) {
          if (cap > 0.0f) score[j] = cap * std::tanh(score[j] / cap);
          if (slope && j != here) score[j] -= slope[h * group + q] * (float)(at - m.position[places[j]]);
          const int64_t order = stamped && j != here ? m.order[places[j]] : now;
          if (order < 0 || (back >= 0 && now - order > back)) score[j] = -INFINITY;
        }
      }
    }
  }
  float* y = out + g.first * group * wide;
  std::memset(y, 0, lines * wide * sizeof(float));
  for (int64_t line = 0; line < lines; ++line) totals[line] = soften(&scores[line * g.seen], g.seen);
  for (int64_t begin = 0; begin < g.seen; begin += FEW) {
    const int64_t end = std::min(g.seen, begin + FEW);
    for (int64_t h = g.first; h < g.last; ++h) {
      const Places value(m.value, places.data(), begin, end, kv * wide, h * wide);
      for (int64_t q = 0; q < group; ++q) {
        const int64_t line = (h - g.first) * group + q;
        const float* weight = &scores[line * g.seen];
        switch (end - begin) {
          case 1: accumulate<1>(y + line * wide, weight + begin, value.at, wide); break;
          case 2: accumulate<2>(y + line * wide, weight + begin, value.at, wide); break;
          case 3: accumulate<3>(y + line * wide, weight + begin, value.at, wide); break;
          default: accumulate<FEW>(y + line * wide, weight + begin, value.at, wide);
        }
      }
    }
  }
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t c = 0; c < wide; ++c) y[line * wide + c] /= totals[line];
}

static int64_t columns_seen(const KvCache& m) {
  if (m.source) return m.length;
  return m.length + 1;  // a full log still has the entry which it will not keep, beside the one that comes
}

// The key and value of a row, of the heads first .. last - 1, go where its slots say.
static void enter(const Instruction& in, const Step& s, const KvCache& m, int64_t row, int64_t first, int64_t last) {
  const Register key = s.registers[in.key], value = s.registers[in.value];
  const int64_t kv = in.number[At::kv_heads], size = in.number[At::size], wide = in.number[At::value_size];
  const int64_t at = place_of(m, row, column_of(m));
  std::memcpy(m.key + (at * kv + first) * size, key.data + row * key.width + first * size, (last - first) * size * sizeof(float));
  std::memcpy(m.value + (at * kv + first) * wide, value.data + row * value.width + first * wide, (last - first) * wide * sizeof(float));
}

void attend(const Instruction& in, const Step& s, const Team& team) {
  if (s.begins) return attend_many(in, s, team);
  const Register to = s.registers[in.to], query = s.registers[in.from];
  KvCache& m = s.caches[in.number[At::cache]];
  const int64_t kv = in.number[At::kv_heads];
  const int64_t here = m.source ? -1 : column_of(m), seen = columns_seen(m);
  const bool first_all = s.follows && !m.source;  // rows look at one another
  if (first_all) {
    const Share rows = team.of(s.rows);
    for (int64_t b = rows.begin; b < rows.end; ++b) enter(in, s, m, b, 0, kv);
    team.wait();
  }
  const Share mine = team.of(s.rows * kv);
  for (int64_t b = mine.begin / kv; b * kv < mine.end; ++b) {
    const int64_t first = std::max(mine.begin, b * kv) - b * kv, last = std::min(mine.end, (b + 1) * kv) - b * kv;
    if (!m.source && !first_all) enter(in, s, m, b, first, last);
    attend_row(Glance{m, in, b, first, last, seen}, query.data + b * query.width, to.data + b * to.width, here,
               s.order[b], s.position[b]);
  }
}
