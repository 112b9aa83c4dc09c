// One token per row through a whole model: a program of few instructions, which all threads walk through together.
#pragma once
#include "linear.h"

enum Operation : int32_t { EMBED, PLACE, NORM, LINEAR, WAVES, TURN, ATTEND, CLAMP, ADD, SHIFT, KEEP, WKV, RETAIN };
enum Mode : int32_t { SET, PLUS, TIMES };
enum Activation : int32_t { IDENTITY, RELU, GELU, GELU_TANH, GELU_SIGMOID, SILU, RELU_SQUARED, SIGMOID };

// Numbers of every row, side by side.
struct Register {
  float* data;
  int64_t width;
};

// What one layer remembers: see `Log` in core/state.py. Entries of a row lie one behind the other, heads side by side.
struct Memory {
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
};

struct Instruction {
  int32_t operation;
  int32_t to, from, key, value;  // registers
  int32_t number[6];
  float real[2];
  const void* table[2];
  Matrix matrix;
};

struct Step {
  const Instruction* program;
  int64_t instructions;
  const Register* registers;
  Memory* memories;
  int64_t memory_count;
  float* const* cells;  // memories of a fixed size, each [rows, ...]
  const int64_t* tokens;
  const int64_t* order;
  const int64_t* position;
  int64_t rows;
  Rounded rounded;
  float* scratch;  // [rows, the widest output]
  int32_t threads;
};

// The column that the next entry goes to.
static inline int64_t column_of(const Memory& m) { return m.free >= 0 ? m.free : m.length; }
void attend(const Instruction& in, const Step& s, const Team& team);
extern "C" int32_t heed_step(Step* s);
