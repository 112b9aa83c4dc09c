// The kernels' threads under ThreadSanitizer: teams, meetings, steps, scans, and several callers at once.
//
// Neither Python nor torch nor libgomp is compiled with the sanitizer, which would take every one of their locks and
// barriers for none and report races that are not there. So this program is all of it: kernels and callers are compiled
// together, and a team's threads are std::thread, handed over like those of torch. With `race` as an argument it has a
// race on purpose, which must be found. `python -m tools.sanitize` builds and runs it.
#include "sampling.h"
#include "step.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

struct SelectiveScan {
  int64_t rows, tokens, channels, numbers, chunk;
  const float *step, *input, *write, *read, *rates;
  float* states;
};
struct SelectiveScanGradients {
  const float *y, *last;
  float *step, *input, *start, *write, *read, *rates;
};
extern "C" {
int32_t heed_threads(const OpenMp*);
int32_t heed_linear(const Matrix*, const float*, int64_t, const Rounded*, float*, int32_t);
int32_t heed_entropy(float*, const int64_t*, int64_t, int64_t, float, double*, double*, int32_t);
int32_t heed_topk_logprobs(const float*, int64_t, int64_t, int64_t, int64_t*, float*, int32_t);
int64_t heed_write(Step*, int64_t, int32_t, const Choice*, int64_t*, int64_t*, int64_t*, int64_t*, float*);
int32_t heed_selective_scan(const SelectiveScan*, float*, int32_t);
int32_t heed_selective_scan_back(const SelectiveScan*, const SelectiveScanGradients*, int32_t);
}

namespace {

using Floats = std::vector<float>;
thread_local int me = 0, size = 1;

void parallel(void (*work)(void*), void* given, unsigned threads, unsigned) {
  std::vector<std::thread> others;
  const auto run = [=](int who) { me = who, size = (int)threads, work(given), me = 0, size = 1; };
  for (unsigned who = 1; who < threads; ++who) others.emplace_back(run, who);
  run(0);
  for (auto& other : others) other.join();
}

Floats noise(int64_t count, unsigned seed = 1) {
  std::mt19937 draw(seed);
  std::normal_distribution<float> normal;
  Floats made(count);
  for (float& x : made) x = normal(draw);
  return made;
}

void must(bool holds, const char* what, int threads) {
  if (holds) return;
  std::printf("with %d threads: %s\n", threads, what);
  std::exit(1);
}

// What one thread makes, several make.
void same(const char* what, const std::function<Floats(int)>& make) {
  const Floats alone = make(1);
  for (int threads : {2, 3, 4}) must(make(threads) == alone, what, threads);
}

// Every thread writes, all meet, every thread reads what the others wrote, all meet.
void meet(bool race) {
  std::vector<int64_t> written(4);
  together(4, [&](Team team) {
    for (int64_t round = 1; round <= 200; ++round) {
      written[team.me] = round;
      if (!race) team.wait();
      for (int64_t other : written) must(race || other == round, "threads have not met", 4);
      team.wait();
    }
  });
}

Floats multiplied(int32_t kind, int64_t tokens, int threads) {
  constexpr int ROWS = 70, COLUMNS = 160;
  const Floats x = noise(tokens * COLUMNS), weights = noise(ROWS * COLUMNS, 2), scales(ROWS * COLUMNS, 1.0f), bias = noise(ROWS, 3);
  std::vector<int8_t> codes(ROWS * COLUMNS);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = (int8_t)(weights[i] * 30.0f);
  std::vector<int16_t> shorts(tokens * 256);
  Floats steps(tokens), y(tokens * ROWS);
  std::vector<int32_t> sums(tokens);
  const void* held = kind == FLOAT32 ? (const void*)weights.data() : codes.data();
  const Matrix m{kind, ROWS, COLUMNS, 0, held, scales.data(), bias.data()};
  const Rounded r{shorts.data(), (int8_t*)shorts.data(), steps.data(), sums.data(), tokens, 256};
  must(heed_linear(&m, x.data(), tokens, &r, y.data(), threads) == DONE, "refused", threads);
  return y;
}

// Embeddings, two heads of attention and a gated product, in one layer; as `Program` has it.
class Model {
 public:
  static constexpr int WIDTH = 32, HIDDEN = 300, VOCABULARY = 500;
  Model() : table_(noise(VOCABULARY * WIDTH)), square_(noise(WIDTH * WIDTH, 4)), wide_(noise(HIDDEN * WIDTH, 5)), back_(noise(WIDTH * HIDDEN, 6)) {
    const Matrix square = held(square_, WIDTH, WIDTH), wide = held(wide_, HIDDEN, WIDTH);
    add(EMBED, STREAM, -1, {}, {1.0f}, held(table_, VOCABULARY, WIDTH));
    add(NORM, NORMED, STREAM, {1, WIDTH, 0, 0}, {1e-5f});
    for (int to : {QUERY, KEY, VALUE}) add(LINEAR, to, NORMED, {IDENTITY, SET, to != QUERY}, {0.0f}, square);
    add(ATTEND, NORMED, QUERY, {0, 2, 2, 16, 16, -1}, {0.25f, 0.0f});
    program.back().key = KEY, program.back().value = VALUE;
    add(LINEAR, STREAM, NORMED, {IDENTITY, PLUS, 0}, {1.0f}, square);
    add(LINEAR, BROAD, STREAM, {SILU, SET, 0}, {0.0f}, wide);
    add(LINEAR, BROAD, STREAM, {IDENTITY, TIMES, 1}, {0.0f}, wide);
    add(LINEAR, STREAM, BROAD, {IDENTITY, PLUS, 0}, {1.0f}, held(back_, WIDTH, HIDDEN));
    add(LINEAR, SCORES, STREAM, {IDENTITY, SET, 0}, {0.0f}, held(table_, VOCABULARY, WIDTH));
  }
  enum { STREAM, NORMED, QUERY, KEY, VALUE, BROAD, SCORES, REGISTERS };
  static int width(int number) { return number == BROAD ? HIDDEN : number == SCORES ? VOCABULARY : WIDTH; }
  std::vector<Instruction> program;

 private:
  static Matrix held(const Floats& weights, int rows, int columns) { return {FLOAT32, rows, columns, 0, weights.data(), nullptr, nullptr}; }
  void add(int32_t operation, int to, int from, std::initializer_list<int32_t> numbers, std::initializer_list<float> reals, Matrix m = {}) {
    Instruction made{operation, to, from, -1, -1, {}, {}, {}, m};
    std::copy(numbers.begin(), numbers.end(), made.number);
    std::copy(reals.begin(), reals.end(), made.real);
    program.push_back(made);
  }
  Floats table_, square_, wide_, back_;
};

// Many tokens in one step, or one in many: the scores after the last, and what was sampled.
Floats written(const Model& model, int64_t rows, int threads) {
  constexpr int64_t ROOM = 40, COUNT = 12;
  std::vector<Floats> held;
  std::vector<Register> registers;
  for (int i = 0; i < Model::REGISTERS; ++i) held.emplace_back(rows * Model::width(i)), registers.push_back({held[i].data(), Model::width(i)});
  std::vector<int64_t> order(rows * ROOM), position(order), tokens(rows, 7), now(rows), places(rows), ends, chosen(COUNT * rows);
  Floats keys(rows * ROOM * Model::WIDTH), values(keys), scratch(rows * Model::HIDDEN), logp(COUNT * rows);
  KvCache cache{order.data(), position.data(), keys.data(), values.data(), ROOM, 0, -1, -1, 0, 0, nullptr, nullptr, rows, Model::WIDTH, Model::WIDTH};
  Step s{};
  s.program = model.program.data(), s.instructions = (int64_t)model.program.size();
  s.registers = registers.data(), s.register_count = Model::REGISTERS, s.caches = &cache, s.cache_count = 1;
  s.rows = s.room = rows, s.scratch = scratch.data(), s.widest = Model::HIDDEN, s.threads = threads;
  const std::vector<double> draws(COUNT * rows, 0.4);
  std::vector<uint8_t> live(rows, 1), seen(rows * Model::VOCABULARY);
  const Choice how{0.8, 0.9, 0.01, 50, draws.data(), seen.data(), ends.data(), live.data(), 0, 0, 1.2f, 0.0f};
  must(heed_write(&s, COUNT, Model::SCORES, &how, tokens.data(), now.data(), places.data(), chosen.data(), logp.data()) == COUNT, "refused", threads);
  const std::vector<int64_t> begins{0, 3, rows};  // two rows of several tokens, behind what was written
  cache.rows = 2, cache.room = rows * ROOM / 2, tokens.assign(rows, 3);
  s.begins = begins.data(), s.sequences = 2;
  if (rows > 3) must(heed_step(&s) == DONE, "refused", threads);
  Floats made = held[Model::SCORES];
  made.insert(made.end(), chosen.begin(), chosen.end());
  return made;
}

Floats scanned(int threads) {
  constexpr int64_t ROWS = 2, TOKENS = 70, CHANNELS = 40, NUMBERS = 4, ALL = ROWS * TOKENS * CHANNELS, FEW = ROWS * TOKENS * NUMBERS;
  Floats step = noise(ALL), u = noise(ALL, 2), write = noise(FEW, 3), read = noise(FEW, 4), rates(NUMBERS * CHANNELS, -0.5f), states(ROWS * 3 * NUMBERS * CHANNELS), y(ALL);
  for (float& x : step) x = std::fabs(x);
  const SelectiveScan scan{ROWS, TOKENS, CHANNELS, NUMBERS, 64, step.data(), u.data(), write.data(), read.data(), rates.data(), states.data()};
  must(heed_selective_scan(&scan, y.data(), threads) == DONE, "refused", threads);
  Floats last(ROWS * NUMBERS * CHANNELS, 1.0f), start(last), to_step(ALL), to_u(ALL), to_write(threads * FEW), to_read(threads * FEW), to_rates(threads * NUMBERS * CHANNELS);
  const SelectiveScanGradients grads{u.data(), last.data(), to_step.data(), to_u.data(), start.data(), to_write.data(), to_read.data(), to_rates.data()};
  must(heed_selective_scan_back(&scan, &grads, threads) == DONE, "refused", threads);
  y.insert(y.end(), to_u.begin(), to_u.end());
  return y;
}

Floats chosen(int threads) {
  constexpr int64_t ROWS = 9, COUNT = 333, K = 5;
  Floats logits = noise(ROWS * COUNT), logp(ROWS * K);
  std::vector<int64_t> labels(ROWS, 11), tokens(ROWS * K);
  std::vector<double> nats(ROWS), spreads(ROWS);
  must(heed_topk_logprobs(logits.data(), ROWS, COUNT, K, tokens.data(), logp.data(), threads) == DONE, "refused", threads);
  must(heed_entropy(logits.data(), labels.data(), ROWS, COUNT, 0.1f, nats.data(), spreads.data(), threads) == DONE, "refused", threads);
  logits.insert(logits.end(), logp.begin(), logp.end());
  return logits;
}

}  // namespace

int main(int count, char** words) {
  const OpenMp threads{parallel, [] { return me; }, [] { return size; }};
  must(heed_threads(&threads) == DONE, "threads are not taken", 0);
  meet(count > 1 && std::string(words[1]) == "race");
  for (int32_t kind : {FLOAT32, INT8, GROUPS8, W8A8})
    for (int64_t tokens : {1, 5, 33}) same("a product differs", [=](int n) { return multiplied(kind, tokens, n); });
  same("a scan differs", scanned);
  same("a loss differs", chosen);
  const Model model;
  for (int64_t rows : {1, 5}) same("a step differs", [&](int n) { return written(model, rows, n); });
  std::vector<std::thread> callers;  // of one program
  for (int64_t rows : {2, 4, 6}) callers.emplace_back([&model, rows] { same("a caller's step differs", [&](int n) { return written(model, rows, n); }); });
  for (auto& caller : callers) caller.join();
  std::puts("threads: no race");
}
