// Softmax attention of one token per row to what its row remembers.
#include "step.h"

#include <vector>

constexpr int64_t FEW = 4;  // entries that are read at a time, all heads of each: memory is read in order

// q·k of so many entries, `apart` from one to the next.
template <int COUNT>
static inline void products(const float* query, const float* key, int64_t apart, int64_t size, float* to) {
  Float sums[FEW];
  for (auto& each : sums) each = spread(0.0f);
  int64_t c = 0;
  for (; c + LANES <= size; c += LANES) {
    const Float q = load(query + c);
    for (int j = 0; j < COUNT; ++j) sums[j] = fma(q, load(key + j * apart + c), sums[j]);
  }
  float found[FEW];
  four_sums(sums, found);
  for (; c < size; ++c)
    for (int j = 0; j < COUNT; ++j) found[j] += query[c] * key[j * apart + c];
  for (int j = 0; j < COUNT; ++j) to[j] = found[j];
}

// y += Σ weight · value over so many entries.
template <int COUNT>
static inline void accumulate(float* y, const float* weight, const float* value, int64_t apart, int64_t size) {
  Float times[COUNT];
  for (int j = 0; j < COUNT; ++j) times[j] = spread(weight[j]);
  int64_t c = 0;
  for (; c + LANES <= size; c += LANES) {
    Float total = load(y + c);
    for (int j = 0; j < COUNT; ++j) total = fma(times[j], load(value + j * apart + c), total);
    store(y + c, total);
  }
  for (; c < size; ++c)
    for (int j = 0; j < COUNT; ++j) y[c] += weight[j] * value[j * apart + c];
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
  float all = sum(total);
  for (; j < count; ++j) all += score[j] = std::exp(score[j] - top);
  return all;
}

struct Glance {  // one row of a batch, some of its heads
  const Memory& memory;
  const Instruction& in;
  int64_t row, first, last, seen;
};

static void attend_row(const Glance& g, const float* query, float* out, int64_t here, int64_t now, int64_t at) {
  static thread_local std::vector<float> scores, totals;
  const Memory& m = g.memory;
  const int64_t heads = g.in.number[1], kv = g.in.number[2], size = g.in.number[3], wide = g.in.number[4];
  const int64_t back = g.in.number[5], group = heads / kv, lines = (g.last - g.first) * group;
  if ((int64_t)scores.size() < lines * g.seen) scores.resize(lines * g.seen);
  if ((int64_t)totals.size() < lines) totals.resize(lines);
  const float *key = m.key + g.row * m.room * kv * size, *value = m.value + g.row * m.room * kv * wide;
  const int64_t *order = m.order + g.row * m.room, *position = m.position + g.row * m.room;
  const float scale = g.in.real[0], cap = g.in.real[1], *slope = (const float*)g.in.table[0];
  const bool plain = !m.holes && cap <= 0.0f && !slope;
  for (int64_t begin = 0; begin < g.seen; begin += FEW) {
    const int64_t end = std::min(g.seen, begin + FEW);
    for (int64_t h = g.first; h < g.last; ++h) {
      const float* k = key + (begin * kv + h) * size;
      for (int64_t q = 0; q < group; ++q) {
        const float* asks = query + (h * group + q) * size;
        float* score = &scores[((h - g.first) * group + q) * g.seen];
        if (end - begin == FEW)
          products<FEW>(asks, k, kv * size, size, score + begin);
        else
          for (int64_t j = begin; j < end; ++j) products<1>(asks, k + (j - begin) * kv * size, 0, size, score + j);
        for (int64_t j = begin; j < end; ++j) score[j] *= scale;
        if (plain) continue;
        for (int64_t j = begin; j < end; ++j) {
          if (cap > 0.0f) score[j] = cap * std::tanh(score[j] / cap);
          if (slope && j != here) score[j] -= slope[h * group + q] * (float)(at - position[j]);
          if (m.holes && j != here && (order[j] < 0 || (back >= 0 && now - order[j] > back))) score[j] = -INFINITY;
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
      const float* v = value + (begin * kv + h) * wide;
      for (int64_t q = 0; q < group; ++q) {
        const int64_t line = (h - g.first) * group + q;
        const float* weight = &scores[line * g.seen];
        if (end - begin == FEW)
          accumulate<FEW>(y + line * wide, weight + begin, v, kv * wide, wide);
        else
          for (int64_t j = begin; j < end; ++j)
            accumulate<1>(y + line * wide, weight + j, v + (j - begin) * kv * wide, 0, wide);
      }
    }
  }
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t c = 0; c < wide; ++c) y[line * wide + c] /= totals[line];
}

static int64_t columns_seen(const Memory& m) {
  if (m.source) return m.length;
  return m.length + 1;  // a full log still has the entry which it will not keep, beside the one that comes
}

void attend(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], query = s.registers[in.from];
  Memory& m = s.memories[in.number[0]];
  const int64_t kv = in.number[2], size = in.number[3], wide = in.number[4];
  const int64_t here = m.source ? -1 : column_of(m), seen = columns_seen(m);
  const Share mine = team.of(s.rows * kv);
  for (int64_t b = mine.begin / kv; b * kv < mine.end; ++b) {
    const int64_t first = std::max(mine.begin, b * kv) - b * kv, last = std::min(mine.end, (b + 1) * kv) - b * kv;
    if (!m.source) {
      const Register key = s.registers[in.key], value = s.registers[in.value];
      const int64_t at = b * m.room + here;
      std::memcpy(m.key + (at * kv + first) * size, key.data + b * key.width + first * size, (last - first) * size * sizeof(float));
      std::memcpy(m.value + (at * kv + first) * wide, value.data + b * value.width + first * wide, (last - first) * wide * sizeof(float));
    }
    attend_row(Glance{m, in, b, first, last, seen}, query.data + b * query.width, to.data + b * to.width, here,
               s.order[b], s.position[b]);
  }
}
