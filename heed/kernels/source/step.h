// One token per row through a whole model: a program of few instructions, which all threads walk through together.
#pragma once
#include "linear.h"

enum Operation : int32_t { EMBED, PLACE, NORM, LINEAR, WAVES, TURN, ATTEND, CLAMP, ADD, SHIFT, KEEP, WKV, RETAIN };

// Numbers of every row, side by side.
struct Register {
  float* data;
  int64_t width;
};

// What one layer remembers: see `Log` in core/state.py. Entries of a row lie one behind the other, heads side by side.
struct KvCache {
  int64_t* order;
  int64_t* position;
  float* key;
  float* value;
  int64_t room;    // columns that there are
  int64_t length;  // columns that hold an entry
  int64_t cap;     // -1: none
  int64_t free;    // the column to be written next, once the log has wrapped; else -1
  int32_t holes;   // whether some columns hold nothing (order -1)
  int32_t source;  // whether it is only read
  const int32_t* slot;   // [rows, room]: entry j of row b lies at slot[b][j], columns of all rows counted through; null:
                         // at b·room + j. Rows put into another order, or repeated, are another table, and so are pages.
  const int32_t* owner;  // [rows]: whose entries a row reads, for caches that are only read; null: its own
  int64_t rows;  // that are stored
  int64_t key_width, value_width;  // of an entry, all heads
};

struct Instruction {
  int32_t operation;
  int32_t to, from, key, value;  // registers
  int32_t number[6];
  float real[2];
  const void* table[2];
  Matrix matrix;
};

// Where operands stand in an instruction's `number`, `real` and `table`: engine/operands.py has the same names in the same
// order, which a test compares.
struct EmbedOperands { enum Real { scale }; };
struct PlaceOperands { enum Number { offset, places }; enum Table { codes }; };
struct NormOperands { enum Number { groups, width, uncentred, more }; enum Real { eps }; enum Table { gain, shift }; };
struct LinearOperands { enum Number { activation, mode, quantised }; enum Real { old }; };
struct WavesOperands { enum Number { count }; enum Real { amplitude }; enum Table { frequency }; };
struct TurnOperands { enum Number { heads, size, half, pairs }; };
struct AttendOperands {
  enum Number { cache, heads, kv_heads, size, value_size, back };
  enum Real { scale, cap };
  enum Table { slopes };
};
struct ClampOperands { enum Real { bound }; };
struct AddOperands { enum Real { old, new_ }; };
struct ShiftOperands { enum Number { cell }; enum Table { share }; };
struct KeepOperands { enum Number { cell }; };
struct WkvOperands { enum Number { above, below, level }; enum Table { decay, bonus }; };
struct RetainOperands { enum Number { cell, heads, size, value_size }; enum Real { scale }; enum Table { gamma }; };

struct Step {
  const Instruction* program;
  int64_t instructions;
  const Register* registers;  // each [room, width]
  int64_t register_count;
  KvCache* caches;
  int64_t cache_count;
  const Register* cells;  // states of a fixed size, each [cell_rows, width]
  int64_t cell_count, cell_rows;
  const int64_t* tokens;
  const int64_t* order;
  const int64_t* position;
  int64_t rows, room;  // those of this call, and those that there is room for
  Rounded rounded;
  float* scratch;  // [room, widest]
  int64_t widest;  // outputs of a matrix that are not simply written
  int32_t threads;
  int32_t checked;  // the program fits all that stands above: found once, and again where 0 is written here
  // Many tokens of some rows, one behind the other: those of row q are begins[q] .. begins[q + 1] - 1. Then `rows` counts
  // tokens, which see what their row remembers, and one another.
  int64_t sequences;
  const int64_t* begins;
  // [rows]: whether a row goes on where the one before it ends, in this very call: several tokens of one sequence, each
  // summed as a step by itself would sum it. What a row remembers in cells is what its sequence does after its token, and
  // its slots say where the tokens before it lie, those of this call too. null: no row does.
  const uint8_t* follows;
};
// As kernels/abi.py has them.
static_assert(sizeof(Register) == 16 && sizeof(KvCache) == 112 && sizeof(Matrix) == 40, "abi.py");
static_assert(sizeof(Instruction) == 112 && sizeof(Step) == 208 && sizeof(Rounded) == 48, "abi.py");
static inline int64_t longest_of(const Step& s) {
  int64_t longest = 0;
  for (int64_t q = 0; q < s.sequences; ++q) longest = std::max(longest, s.begins[q + 1] - s.begins[q]);
  return longest;
}
// What comes to stand in the i-th of so many columns: in rows with fewer tokens there are holes before the first.
static inline int64_t token_of(const Step& s, int64_t q, int64_t i, int64_t columns) { return s.begins[q + 1] - columns + i; }
// In the place of a KV cache: tokens see those before them, or those on both sides.
constexpr int32_t BACKWARDS = -1, BOTH_WAYS = -2;

// The column that the next entry goes to.
static inline int64_t column_of(const KvCache& m) { return m.free >= 0 ? m.free : m.length; }
// Where an entry lies.
static inline int64_t place_of(const KvCache& m, int64_t row, int64_t column) {
  HEED_ASSERT(row >= 0 && column >= 0 && column < m.room);
  const int64_t place = m.slot ? m.slot[row * m.room + column] : (m.owner ? m.owner[row] : row) * m.room + column;
  HEED_ASSERT(place >= 0 && place < m.rows * m.room);
  return place;
}
// The rows of a call: each has many tokens, or the one of a step.
static inline int64_t row_count(const Step& s) { return s.begins ? s.sequences : s.rows; }
static inline bool goes_on(const Step& s, int64_t row) { return s.follows && s.follows[row]; }
Refusal unfit(Step& s);  // fits.cpp
void attend(const Instruction& in, const Step& s, const Team& team);
void attend_many(const Instruction& in, const Step& s, const Team& team);
extern "C" int32_t heed_step(Step* s);
