#include "step.h"

#include <vector>

static void embed(const Instruction& in, const Step& s, const Team& team) {
  using At = EmbedOperands;
  const Register to = s.registers[in.to];
  const Matrix& m = in.matrix;
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b) {
    float* y = to.data + b * to.width;
    const int64_t row = s.tokens[b], width = m.columns;
    HEED_ASSERT(row >= 0 && row < m.rows);
    if (m.kind == FLOAT32) {
      const float* w = (const float*)m.weights + row * width;
      for (int64_t k = 0; k < width; ++k) y[k] = w[k] * in.real[At::scale];
    } else if (m.kind == INT8) {
      const int8_t* w = (const int8_t*)m.weights + row * width;
      const float scale = ((const float*)m.scales)[row];
      for (int64_t k = 0; k < width; ++k) y[k] = (float)w[k] * scale * in.real[At::scale];
    } else {
      const uint16_t* scales = (const uint16_t*)m.scales + row * (width / 32);
      for (int64_t k = 0; k < width; ++k) {
        const int64_t g = k / 32, i = k % 32;
        const int w = m.kind == GROUPS8 ? ((const int8_t*)m.weights)[row * width + k]
                                        : ((((const uint8_t*)m.weights)[(row * (width / 32) + g) * 16 + i % 16] >> (i / 16 * 4)) & 15) - 8;
        y[k] = (float)w * half_to_float(scales[g]) * in.real[At::scale];
      }
    }
  }
}

static void place(const Instruction& in, const Step& s, const Team& team) {
  using At = PlaceOperands;
  const Register to = s.registers[in.to];
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b) {
    const int64_t place = s.position[b] + in.number[At::offset];
    HEED_ASSERT(place >= 0 && place < in.number[At::places]);
    const float* code = (const float*)in.table[At::codes] + place * to.width;
    float* y = to.data + b * to.width;
    for (int64_t k = 0; k < to.width; ++k) y[k] += code[k];
  }
}

static void norm_one(const float* x, float* y, int64_t width, bool centred, float eps, const float* gain, float more,
                     const float* shift) {
  float mean = 0.0f;
  int64_t k = 0;
  if (centred) {
    Float total = spread(0.0f);
    for (; k + LANES <= width; k += LANES) total = add(total, load(x + k));
    mean = sum(total);
    for (; k < width; ++k) mean += x[k];
    mean /= (float)width;
  }
  Float squares = spread(0.0f);
  for (k = 0; k + LANES <= width; k += LANES) {
    const Float away = sub(load(x + k), spread(mean));
    squares = fma(away, away, squares);
  }
  float variance = sum(squares);
  for (; k < width; ++k) variance += (x[k] - mean) * (x[k] - mean);
  const float factor = 1.0f / std::sqrt(variance / (float)width + eps);
  for (k = 0; k < width; ++k) {
    const float value = (x[k] - mean) * factor;
    y[k] = (gain ? value * (gain[k] + more) : value) + (shift ? shift[k] : 0.0f);
  }
}

static void norm(const Instruction& in, const Step& s, const Team& team) {
  using At = NormOperands;
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const int64_t groups = in.number[At::groups], width = in.number[At::width];
  const Share mine = team.of(s.rows * groups);
  for (int64_t piece = mine.begin; piece < mine.end; ++piece) {
    const int64_t b = piece / groups, g = piece % groups;
    norm_one(from.data + b * from.width + g * width, to.data + b * to.width + g * width, width, in.number[At::uncentred] == 0,
             in.real[At::eps], (const float*)in.table[At::gain], (float)in.number[At::more], (const float*)in.table[At::shift]);
  }
}

// One token is rounded by every thread for itself: that is quicker than to wait for another.
static Rounded rounded_alone(const Instruction& in, const Step& s) {
  using At = LinearOperands;
  static thread_local std::vector<int16_t> room;
  static thread_local float step;
  static thread_local int32_t total;
  const Matrix& m = in.matrix;
  if ((int64_t)room.size() < stride_of(m)) room.resize(stride_of(m));
  const Rounded mine{room.data(), (int8_t*)room.data(), &step, &total};
  const Register from = s.registers[in.from];
  if (!in.number[At::quantised]) round_tokens(m, from.data, 1, from.width, mine, Team{0, 1, nullptr});
  return mine;
}

static void linear(const Instruction& in, const Step& s, const Team& team) {
  using At = LinearOperands;
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const Matrix& m = in.matrix;
  Rounded rounded = s.rounded;
  if (m.kind != FLOAT32 && s.rows == 1) {
    rounded = rounded_alone(in, s);
  } else if (m.kind != FLOAT32 && !in.number[At::quantised]) {
    round_tokens(m, from.data, s.rows, from.width, rounded, team);
    team.wait();
  }
  const Ending ending{in.number[At::activation], in.number[At::mode], in.real[At::old]};
  const Target target{to.data, to.width, s.scratch};
  if (by_panels(m, s.rows)) return multiply(m, from.data, from.width, rounded, s.rows, target, ending, rows_of(m, s.rows, team));
  constexpr int64_t BYTES = 96 << 10;  // some microseconds' work: no thread waits longer for the others; to take less costs more
  const int64_t rows = quartered(m, s.rows) ? (m.rows + 3) / 4 : m.rows, block = std::max<int64_t>(1, BYTES / row_bytes(m) / 4) * 4;
  for (Share mine; team.take(rows, block, mine);) multiply(m, from.data, from.width, rounded, s.rows, target, ending, mine);
}

static void waves(const Instruction& in, const Step& s, const Team& team) {
  using At = WavesOperands;
  const Register to = s.registers[in.to];
  const double* frequency = (const double*)in.table[At::frequency];
  const int64_t half = in.number[At::count];
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b)
    for (int64_t c = 0; c < half; ++c) {
      const double angle = (double)s.position[b] * frequency[c];
      to.data[b * to.width + c] = (float)(std::cos(angle) * in.real[At::amplitude]);
      to.data[b * to.width + half + c] = (float)(std::sin(angle) * in.real[At::amplitude]);
    }
}

static void turn(const Instruction& in, const Step& s, const Team& team) {
  using At = TurnOperands;
  const Register x = s.registers[in.to], wave = s.registers[in.from];
  const int64_t heads = in.number[At::heads], size = in.number[At::size], half = in.number[At::half];
  const bool pairs = in.number[At::pairs];
  const Share mine = team.of(s.rows * heads);
  for (int64_t piece = mine.begin; piece < mine.end; ++piece) {
    const int64_t b = piece / heads;
    float* y = x.data + b * x.width + piece % heads * size;
    const float *cos = wave.data + b * wave.width, *sin = cos + half;
    for (int64_t c = 0; c < half; ++c) {
      float& first = y[pairs ? 2 * c : c];
      float& second = y[pairs ? 2 * c + 1 : c + half];
      const float a = first, b2 = second;
      first = a * cos[c] - b2 * sin[c];
      second = b2 * cos[c] + a * sin[c];
    }
  }
}

static void clamp(const Instruction& in, const Step& s, const Team& team) {
  using At = ClampOperands;
  const Register to = s.registers[in.to];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k) to.data[k] = std::min(in.real[At::bound], std::max(-in.real[At::bound], to.data[k]));
}

static void plus(const Instruction& in, const Step& s, const Team& team) {
  using At = AddOperands;
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k) to.data[k] = in.real[At::old] * to.data[k] + in.real[At::new_] * from.data[k];
}

// The tokens of row q: many, or the one of a step.
static Share tokens_of(const Step& s, int64_t q) {
  return s.begins ? Share{s.begins[q], s.begins[q + 1]} : Share{q, q + 1};
}

// The token and the one before it, mixed channel by channel.
static void shift(const Instruction& in, const Step& s, const Team& team) {
  using At = ShiftOperands;
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const float *cell = s.cells[in.number[At::cell]].data, *share = (const float*)in.table[At::share];
  const int64_t width = to.width;
  for (int64_t q = 0; q < row_count(s); ++q) {
    const Share tokens = tokens_of(s, q), mine = team.of(tokens.end - tokens.begin);
    for (int64_t t = tokens.begin + mine.begin; t < tokens.begin + mine.end; ++t) {
      const float* before = t == tokens.begin && !goes_on(s, q) ? cell + q * width : from.data + (t - 1) * width;
      const float* x = from.data + t * width;
      for (int64_t k = 0; k < width; ++k) to.data[t * width + k] = before[k] + share[k] * (x[k] - before[k]);
    }
  }
}

// The last token of every row is remembered.
static void keep(const Instruction& in, const Step& s, const Team& team) {
  using At = KeepOperands;
  const Register from = s.registers[in.from];
  const Share mine = team.of(row_count(s));
  for (int64_t q = mine.begin; q < mine.end; ++q) {
    const Share tokens = tokens_of(s, q);
    if (tokens.begin < tokens.end)
      std::memcpy(s.cells[in.number[At::cell]].data + q * from.width, from.data + (tokens.end - 1) * from.width, from.width * sizeof(float));
  }
}

// See mixers/rwkv.py. Sums are divided by e^level, the largest exponent in them.
struct WkvSums {
  Float above, below, level;
  Float next(Float key, Float value, Float fade, Float bonus) {
    const Float own = add(bonus, key), crest = larger(level, own);
    const Float old = exponential(sub(level, crest)), fresh = exponential(sub(own, crest));
    const Float y = div(fma(old, above, mul(fresh, value)), fma(old, below, fresh));
    const Float faded = add(level, fade), top = larger(faded, key);
    const Float kept = exponential(sub(faded, top)), added = exponential(sub(key, top));
    above = fma(kept, above, mul(added, value));
    below = fma(kept, below, added);
    level = top;
    return y;
  }
};

static void wkv(const Instruction& in, const Step& s, const Team& team) {
  using At = WkvOperands;
  const Register to = s.registers[in.to], key = s.registers[in.key], value = s.registers[in.value];
  const float *decay = (const float*)in.table[At::decay], *bonus = (const float*)in.table[At::bonus];
  const int64_t width = to.width;
  const Share mine = team.of(width, LANES);
  for (int64_t q = 0; q < row_count(s); ++q) {
    const Share tokens = tokens_of(s, q);
    float *cells[3], *begins[3];
    const int places[3] = {At::above, At::below, At::level};
    for (int i = 0; i < 3; ++i) {
      cells[i] = s.cells[in.number[places[i]]].data + q * width;
      begins[i] = goes_on(s, q) ? cells[i] - width : cells[i];
    }
    for (int64_t c = mine.begin; c < mine.end; c += LANES) {
      const int64_t some = std::min<int64_t>(LANES, mine.end - c);
      const auto part = [&](const float* x) {
        float room[LANES] = {};
        std::memcpy(room, x + c, some * sizeof(float));
        return load(room);
      };
      const auto put = [&](float* y, Float x) {
        float room[LANES];
        store(room, x);
        std::memcpy(y + c, room, some * sizeof(float));
      };
      WkvSums sums{part(begins[0]), part(begins[1]), part(begins[2])};
      const Float fade = sub(spread(0.0f), exponential(part(decay))), own = part(bonus);
      for (int64_t t = tokens.begin; t < tokens.end; ++t)
        put(to.data + t * width, sums.next(part(key.data + t * width), part(value.data + t * width), fade, own));
      put(cells[0], sums.above), put(cells[1], sums.below), put(cells[2], sums.level);
    }
  }
}

// See mixers/retention.py: S = γ S + kᵀ v, y = q S, a matrix for every head.
static void retain_token(float* state, const float* q, const float* k, const float* v, float* y, int64_t size, int64_t wide,
                         float gamma, float scale) {
  std::memset(y, 0, wide * sizeof(float));
  for (int64_t i = 0; i < size; ++i) {
    float* line = state + i * wide;
    const Float times = spread(k[i] * scale), asked = spread(q[i]), fade = spread(gamma);
    int64_t j = 0;
    for (; j + LANES <= wide; j += LANES) {
      const Float next = fma(times, load(v + j), mul(fade, load(line + j)));
      store(line + j, next);
      store(y + j, fma(asked, next, load(y + j)));
    }
    for (; j < wide; ++j) {
      line[j] = k[i] * scale * v[j] + gamma * line[j];
      y[j] += q[i] * line[j];
    }
  }
}

static void retain(const Instruction& in, const Step& s, const Team& team) {
  using At = RetainOperands;
  const Register to = s.registers[in.to], query = s.registers[in.from];
  const Register key = s.registers[in.key], value = s.registers[in.value];
  const int64_t heads = in.number[At::heads], size = in.number[At::size], wide = in.number[At::value_size];
  const int64_t rows = row_count(s), state = size * wide;
  const auto head = [&](int64_t q, int64_t h) {
    float* cell = s.cells[in.number[At::cell]].data + (q * heads + h) * state;
    if (goes_on(s, q)) std::memcpy(cell, cell - heads * state, state * sizeof(float));
    const Share tokens = tokens_of(s, q);
    for (int64_t t = tokens.begin; t < tokens.end; ++t)
      retain_token(cell, query.data + t * query.width + h * size, key.data + t * key.width + h * size,
                   value.data + t * value.width + h * wide, to.data + t * to.width + h * wide, size, wide,
                   ((const float*)in.table[At::gamma])[h], in.real[At::scale]);
  };
  // A head whose rows follow one another is one thread's: each needs the state of the one before.
  const Share mine = team.of(s.follows ? heads : rows * heads);
  if (s.follows)
    for (int64_t q = 0; q < rows; ++q)
      for (int64_t h = mine.begin; h < mine.end; ++h) head(q, h);
  else
    for (int64_t piece = mine.begin; piece < mine.end; ++piece) head(piece / heads, piece % heads);
}

using Perform = void (*)(const Instruction&, const Step&, const Team&);
static const Perform PERFORM[] = {embed, place, norm, linear, waves, turn, attend, clamp, plus, shift, keep, wkv, retain};

// Many tokens in rows of different lengths: holes have no order.
static void remember_many(KvCache& m, const Step& s) {
  const int64_t longest = longest_of(s);
  for (int64_t q = 0; q < s.sequences; ++q)
    for (int64_t i = 0; i < longest; ++i) {
      const int64_t at = place_of(m, q, m.length + i), token = token_of(s, q, i, longest);
      m.order[at] = token < s.begins[q] ? -1 : s.order[token];
      m.position[at] = token < s.begins[q] ? 0 : s.position[token];
    }
  m.length += longest;
}

// When the entries of a step were written.
static void stamp(const KvCache& m, const Step& s) {
  const int64_t here = column_of(m);
  for (int64_t b = 0; b < s.rows; ++b) {
    m.order[place_of(m, b, here)] = s.order[b];
    m.position[place_of(m, b, here)] = s.position[b];
  }
}

// What was written is remembered: stamps, and how far the log is filled.
static void remember(KvCache& m, const Step& s) {
  if (m.source) return;
  if (s.begins) return remember_many(m, s);
  if (!s.follows) stamp(m, s);
  const int64_t here = column_of(m);
  if (m.cap >= 0 && m.length == m.cap)
    m.free = (here + 1) % (m.cap + 1);
  else
    ++m.length;
}

// Whether the next one may begin before all have done this one: two products of the same numbers, which go to different
// places.
static bool independent(const Instruction& one, const Instruction& next) {
  using At = LinearOperands;
  return one.operation == LINEAR && next.operation == LINEAR && next.number[At::quantised] && one.number[At::mode] == SET && one.to != next.to;
}

// The weights that this thread needs next come while it waits for the others.
static void begin_to_fetch(const Instruction* next, const Instruction* end, int64_t tokens, const Team& team) {
  constexpr int64_t FIRST = 8192;  // bytes
  while (next < end && next->operation != LINEAR) ++next;
  if (next == end) return;
  const Matrix& m = next->matrix;
  const Share mine = rows_of(m, tokens, team);
  const int64_t row = row_bytes(m);
  const char* weights = (const char*)m.weights + mine.begin * row;
  for (int64_t at = 0; at < std::min(FIRST, (mine.end - mine.begin) * row); at += 64) __builtin_prefetch(weights + at, 0, 2);
}

extern "C" int32_t heed_step(Step* s) {
  if (!s) return MISSING;
  if (const Refusal refused = unfit(*s)) return refused;
  for (int64_t i = 0; s->follows && i < s->cache_count; ++i)
    if (!s->caches[i].source) stamp(s->caches[i], *s);  // rows of this call look at them
  std::vector<Begun> begun(s->instructions * s->threads);
  together(s->threads, [&](Team team) {
    for (int64_t i = 0; i < s->instructions; ++i) {
      team.begun = &begun[i * team.size];
      PERFORM[s->program[i].operation](s->program[i], *s, team);
      if (i + 1 < s->instructions) {
        begin_to_fetch(s->program + i + 1, s->program + s->instructions, s->rows, team);
        if (independent(s->program[i], s->program[i + 1])) continue;
      }
      team.wait();
    }
  });
  for (int64_t i = 0; i < s->cache_count; ++i) remember(s->caches[i], *s);
  return DONE;
}

extern "C" const char* heed_instructions() { return INSTRUCTIONS; }
