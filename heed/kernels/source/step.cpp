#include "step.h"

#include <vector>

static void embed(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to];
  const Matrix& m = in.matrix;
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b) {
    float* y = to.data + b * to.width;
    const int64_t row = s.tokens[b], width = m.columns;
    if (m.kind == FLOAT32) {
      const float* w = (const float*)m.weights + row * width;
      for (int64_t k = 0; k < width; ++k) y[k] = w[k] * in.real[0];
    } else if (m.kind == INT8) {
      const int8_t* w = (const int8_t*)m.weights + row * width;
      const float scale = ((const float*)m.scales)[row];
      for (int64_t k = 0; k < width; ++k) y[k] = (float)w[k] * scale * in.real[0];
    } else {
      const uint16_t* scales = (const uint16_t*)m.scales + row * (width / 32);
      for (int64_t k = 0; k < width; ++k) {
        const int64_t g = k / 32, i = k % 32;
        const int w = m.kind == GROUPS8 ? ((const int8_t*)m.weights)[row * width + k]
                                        : ((((const uint8_t*)m.weights)[(row * (width / 32) + g) * 16 + i % 16] >> (i / 16 * 4)) & 15) - 8;
        y[k] = (float)w * half_to_float(scales[g]) * in.real[0];
      }
    }
  }
}

static void place(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to];
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b) {
    const float* code = (const float*)in.table[0] + (s.position[b] + in.number[0]) * to.width;
    float* y = to.data + b * to.width;
    for (int64_t k = 0; k < to.width; ++k) y[k] += code[k];
  }
}

static void norm_one(const float* x, float* y, int64_t width, bool centred, float eps, const float* gain, const float* shift) {
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
    y[k] = (gain ? value * gain[k] : value) + (shift ? shift[k] : 0.0f);
  }
}

static void norm(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const int64_t groups = in.number[0], width = in.number[1];
  const Share mine = team.of(s.rows * groups);
  for (int64_t piece = mine.begin; piece < mine.end; ++piece) {
    const int64_t b = piece / groups, g = piece % groups;
    norm_one(from.data + b * from.width + g * width, to.data + b * to.width + g * width, width, in.number[2] == 0,
             in.real[0], (const float*)in.table[0], (const float*)in.table[1]);
  }
}

// One token is rounded by every thread for itself: that is quicker than to wait for another.
static Rounded rounded_alone(const Instruction& in, const Step& s) {
  static thread_local std::vector<int16_t> room;
  static thread_local float step;
  static thread_local int32_t total;
  const Matrix& m = in.matrix;
  if ((int64_t)room.size() < stride_of(m)) room.resize(stride_of(m));
  const Rounded mine{room.data(), (int8_t*)room.data(), &step, &total};
  const Register from = s.registers[in.from];
  if (!in.number[2]) round_tokens(m, from.data, 1, from.width, mine, Team{0, 1, nullptr});
  return mine;
}

static void linear(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const Matrix& m = in.matrix;
  Rounded rounded = s.rounded;
  if (m.kind != FLOAT32 && s.rows == 1) {
    rounded = rounded_alone(in, s);
  } else if (m.kind != FLOAT32 && !in.number[2]) {
    round_tokens(m, from.data, s.rows, from.width, rounded, team);
    team.wait();
  }
  const Ending ending{in.number[0], in.number[1], in.real[0]};
  multiply(m, from.data, from.width, rounded, s.rows, Target{to.data, to.width, s.scratch}, ending, rows_of(m, s.rows, team));
}

static void waves(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to];
  const double* frequency = (const double*)in.table[0];
  const int64_t half = in.number[0];
  const Share mine = team.of(s.rows);
  for (int64_t b = mine.begin; b < mine.end; ++b)
    for (int64_t c = 0; c < half; ++c) {
      const double angle = (double)s.position[b] * frequency[c];
      to.data[b * to.width + c] = (float)(std::cos(angle) * in.real[0]);
      to.data[b * to.width + half + c] = (float)(std::sin(angle) * in.real[0]);
    }
}

static void turn(const Instruction& in, const Step& s, const Team& team) {
  const Register x = s.registers[in.to], wave = s.registers[in.from];
  const int64_t heads = in.number[0], size = in.number[1], half = in.number[2];
  const bool pairs = in.number[3];
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
  const Register to = s.registers[in.to];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k) to.data[k] = std::min(in.real[0], std::max(-in.real[0], to.data[k]));
}

static void plus(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k) to.data[k] = in.real[0] * to.data[k] + in.real[1] * from.data[k];
}

// The token and the one before it, mixed channel by channel.
static void shift(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], from = s.registers[in.from];
  const float *before = s.cells[in.number[0]], *share = (const float*)in.table[0];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k)
    to.data[k] = before[k] + share[k % to.width] * (from.data[k] - before[k]);
}

static void keep(const Instruction& in, const Step& s, const Team& team) {
  const Register from = s.registers[in.from];
  const Share mine = team.of(s.rows * from.width);
  std::memcpy(s.cells[in.number[0]] + mine.begin, from.data + mine.begin, (mine.end - mine.begin) * sizeof(float));
}

// See mixers/rwkv.py. Sums are divided by e^level, the largest exponent in them.
static void wkv(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], key = s.registers[in.key], value = s.registers[in.value];
  float *above = s.cells[in.number[0]], *below = s.cells[in.number[1]], *level = s.cells[in.number[2]];
  const float *fade = (const float*)in.table[0], *bonus = (const float*)in.table[1];
  const Share mine = team.of(s.rows * to.width);
  for (int64_t k = mine.begin; k < mine.end; ++k) {
    const float own = bonus[k % to.width] + key.data[k], crest = std::max(level[k], own);
    const float old = std::exp(level[k] - crest), fresh = std::exp(own - crest);
    to.data[k] = (old * above[k] + fresh * value.data[k]) / (old * below[k] + fresh);
    const float faded = level[k] + fade[k % to.width], next = std::max(faded, key.data[k]);
    const float kept = std::exp(faded - next), added = std::exp(key.data[k] - next);
    above[k] = kept * above[k] + added * value.data[k];
    below[k] = kept * below[k] + added;
    level[k] = next;
  }
}

// See mixers/retention.py: S = γ S + kᵀ v, y = q S, a matrix for every head.
static void retain(const Instruction& in, const Step& s, const Team& team) {
  const Register to = s.registers[in.to], query = s.registers[in.from];
  const Register key = s.registers[in.key], value = s.registers[in.value];
  const int64_t heads = in.number[1], size = in.number[2], wide = in.number[3];
  const float *gamma = (const float*)in.table[0], scale = in.real[0];
  const Share mine = team.of(s.rows * heads);
  for (int64_t piece = mine.begin; piece < mine.end; ++piece) {
    const int64_t b = piece / heads, h = piece % heads;
    float *state = s.cells[in.number[0]] + piece * size * wide, *y = to.data + b * to.width + h * wide;
    const float *q = query.data + b * query.width + h * size, *k = key.data + b * key.width + h * size;
    const float* v = value.data + b * value.width + h * wide;
    std::memset(y, 0, wide * sizeof(float));
    for (int64_t i = 0; i < size; ++i) {
      float* line = state + i * wide;
      const Float times = spread(k[i] * scale), asked = spread(q[i]), fade = spread(gamma[h]);
      int64_t j = 0;
      for (; j + LANES <= wide; j += LANES) {
        const Float next = fma(times, load(v + j), mul(fade, load(line + j)));
        store(line + j, next);
        store(y + j, fma(asked, next, load(y + j)));
      }
      for (; j < wide; ++j) {
        line[j] = k[i] * scale * v[j] + gamma[h] * line[j];
        y[j] += q[i] * line[j];
      }
    }
  }
}

using Perform = void (*)(const Instruction&, const Step&, const Team&);
static const Perform PERFORM[] = {embed, place, norm, linear, waves, turn, attend, clamp, plus, shift, keep, wkv, retain};

// What was written is remembered: stamps, and how far the log is filled.
static void remember(Memory& m, const Step& s) {
  if (m.source) return;
  const int64_t here = column_of(m);
  for (int64_t b = 0; b < s.rows; ++b) {
    m.order[place_of(m, b, here)] = s.order[b];
    m.position[place_of(m, b, here)] = s.position[b];
  }
  if (m.cap >= 0 && m.length == m.cap)
    m.free = (here + 1) % (m.cap + 1);
  else
    ++m.length;
}

// Whether the next one may begin before all have done this one: two products of the same numbers, which go to different
// places, or to the same outputs of the same thread.
static bool independent(const Instruction& one, const Instruction& next) {
  return one.operation == LINEAR && next.operation == LINEAR && next.number[2] && one.number[1] == SET;
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

// Gives 1, having done nothing, if there is no such token; else 0.
extern "C" int32_t heed_step(Step* s) {
  for (int64_t i = 0; i < s->instructions; ++i)
    if (s->program[i].operation == EMBED)
      for (int64_t b = 0; b < s->rows; ++b)
        if (s->tokens[b] < 0 || s->tokens[b] >= s->program[i].matrix.rows) return 1;
  together(s->threads, [&](Team team) {
    for (int64_t i = 0; i < s->instructions; ++i) {
      PERFORM[s->program[i].operation](s->program[i], *s, team);
      if (i + 1 < s->instructions) {
        begin_to_fetch(s->program + i + 1, s->program + s->instructions, s->rows, team);
        if (independent(s->program[i], s->program[i + 1])) continue;
      }
      team.wait();
    }
  });
  for (int64_t i = 0; i < s->memory_count; ++i) remember(s->memories[i], *s);
  return 0;
}

extern "C" const char* heed_instructions() { return INSTRUCTIONS; }
