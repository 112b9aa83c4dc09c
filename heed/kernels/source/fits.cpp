// Whether a step fits what it works on. What a program names is looked at once; what changes from call to call, each time.
#include "step.h"

namespace {

// Whether an instruction names registers, cells and caches that there are, each as wide as it will be read or written.
class Fit {
 public:
  Fit(const Step& step, const Instruction& given, const Instruction* one_before) : s(step), in(given), before(one_before) {}

  bool holds() const {
    switch (in.operation) {
      case EMBED: return !unfit(in.matrix) && in.matrix.kind <= GROUPS4 && to == in.matrix.columns;
      case PLACE: return to >= 0 && n[PlaceOperands::places] >= 0 && present(n[PlaceOperands::places], {in.table[0]});
      case NORM: return norm();
      case LINEAR: return linear();
      case WAVES: return between(0, n[WavesOperands::count], to / 2) && present(to, {in.table[0]});
      case TURN: return turn();
      case ATTEND: return attend();
      case CLAMP: return to >= 0;
      case ADD: return to >= 0 && from == to;
      case SHIFT: return to >= 0 && from == to && cell(n[ShiftOperands::cell], to) && present(to, {in.table[0]});
      case KEEP: return from >= 0 && cell(n[KeepOperands::cell], from);
      case WKV: return wkv();
      case RETAIN: return retain();
      default: return false;
    }
  }

 private:
  static bool between(int64_t least, int64_t number, int64_t most) { return least <= number && number <= most; }
  // -1: there is no such register.
  int64_t width(int32_t number) const { return between(0, number, s.register_count - 1) ? s.registers[number].width : -1; }
  bool cell(int32_t number, int64_t wide) const { return between(0, number, s.cell_count - 1) && s.cells[number].width == wide; }
  bool norm() const {
    using At = NormOperands;
    return n[At::groups] >= 1 && n[At::width] >= 1 && (int64_t)n[At::groups] * n[At::width] <= std::min(to, from);
  }
  bool linear() const {
    using At = LinearOperands;
    const Matrix& m = in.matrix;
    if (unfit(m) || unfit(m, s.rounded, s.room) || m.columns > from || m.rows > to) return false;
    if (!between(IDENTITY, n[At::activation], SIGMOID) || !between(SET, n[At::mode], TIMES)) return false;
    if (n[At::mode] != SET && (m.rows > s.widest || !present(s.room * m.rows, {s.scratch}))) return false;
    return !n[At::quantised] || (before && before->operation == LINEAR && before->from == in.from && before->to != in.from &&
                                 before->matrix.kind == m.kind && before->matrix.columns == m.columns);
  }
  bool turn() const {
    using At = TurnOperands;
    const int64_t both = 2 * (int64_t)n[At::half];
    return n[At::heads] >= 1 && n[At::size] >= 1 && (int64_t)n[At::heads] * n[At::size] <= to && between(0, both, n[At::size]) && both <= from;
  }
  bool attend() const {
    using At = AttendOperands;
    const int64_t heads = n[At::heads], kv = n[At::kv_heads], size = n[At::size], wide = n[At::value_size];
    if (heads < 1 || kv < 1 || heads % kv || size < 1 || wide < 1 || heads * size > from || heads * wide > to) return false;
    if (!between(BOTH_WAYS, n[At::cache], s.cache_count - 1)) return false;
    const bool own = key == kv * size && value == kv * wide;  // keys and values of this call
    if (n[At::cache] < 0) return own;
    const KvCache& m = s.caches[n[At::cache]];
    return m.key_width == kv * size && m.value_width == kv * wide && (own || (m.source && in.key < 0 && in.value < 0));
  }
  bool wkv() const {
    using At = WkvOperands;
    if (to < 0 || key != to || value != to || !present(to, {in.table[At::decay], in.table[At::bonus]})) return false;
    return cell(n[At::above], to) && cell(n[At::below], to) && cell(n[At::level], to);
  }
  bool retain() const {
    using At = RetainOperands;
    const int64_t heads = n[At::heads], size = n[At::size], wide = n[At::value_size];
    if (heads < 1 || size < 1 || wide < 1 || !in.table[At::gamma]) return false;
    return heads * size <= std::min(from, key) && heads * wide <= std::min(to, value) && countable({heads, size, wide}) &&
           cell(n[At::cell], heads * size * wide);
  }

  const Step& s;
  const Instruction& in;
  const Instruction* before;
  const int32_t* n = in.number;
  const int64_t to = width(in.to), from = width(in.from), key = width(in.key), value = width(in.value);
};

Refusal unfit(const Register* registers, int64_t count, int64_t rows) {
  if (!countable({count}) || !countable({rows})) return SIZES;
  if (!present(count, {registers})) return MISSING;
  for (int64_t i = 0; i < count; ++i) {
    if (!countable({rows, registers[i].width})) return SIZES;
    if (!present(rows * registers[i].width, {registers[i].data})) return MISSING;
  }
  return DONE;
}

Refusal unfit_program(const Step& s) {
  if (!countable({s.instructions, MOST_THREADS}) || !countable({s.cache_count}) || !countable({s.room, s.widest})) return SIZES;
  if (!present(s.instructions, {s.program}) || !present(s.cache_count, {s.caches})) return MISSING;
  if (const Refusal refused = unfit(s.registers, s.register_count, s.room)) return refused;
  if (const Refusal refused = unfit(s.cells, s.cell_count, s.cell_rows)) return refused;
  for (int64_t i = 0; i < s.instructions; ++i)
    if (!Fit(s, s.program[i], i ? s.program + i - 1 : nullptr).holds()) return PROGRAM;
  return DONE;
}

// Rows lie one behind the other, and the first follows none.
bool in_rows(const Step& s) {
  if (s.follows && (s.begins || (s.rows && s.follows[0]))) return false;
  if (!s.begins) return true;
  if (!countable({s.sequences}) || s.begins[0] != 0 || s.begins[s.sequences] != s.rows) return false;
  for (int64_t q = 0; q < s.sequences; ++q)
    if (s.begins[q] > s.begins[q + 1]) return false;
  return true;
}

bool alike(const KvCache& one, const KvCache& other) {
  return one.slot == other.slot && one.rows == other.rows && one.room == other.room && one.length == other.length;
}

// Whether all that is read of a cache is within it, and there is room for what comes. `checked`: one with the same slots.
bool holds(const KvCache& m, const KvCache* checked, int64_t rows, int64_t coming) {
  if (m.length < 0 || m.length > m.room || !countable({m.rows, m.room, m.key_width}) || !countable({m.rows, m.room, m.value_width})) return false;
  const int64_t columns = m.source ? m.length : m.length + coming, places = m.rows * m.room;
  if (columns > m.room || m.free >= m.room) return false;
  if (!present(places, {m.order, m.position}) || !present(places * m.key_width, {m.key}) || !present(places * m.value_width, {m.value}))
    return false;
  if (m.slot) {
    if (m.source) return false;
    uint32_t most = 0;  // a negative one is a large one
    for (int64_t b = 0; b < (checked && alike(m, *checked) ? 0 : rows); ++b)
      for (int64_t j = 0; j < columns; ++j) most = std::max(most, (uint32_t)m.slot[b * m.room + j]);
    return most < (uint64_t)places;
  }
  if (!m.owner) return rows <= m.rows;
  for (int64_t b = 0; b < rows; ++b)
    if (m.owner[b] < 0 || m.owner[b] >= m.rows) return false;
  return true;
}

bool in_vocabulary(const Step& s, const Instruction& in) {
  for (int64_t b = 0; b < s.rows; ++b)
    if (s.tokens[b] < 0 || s.tokens[b] >= in.matrix.rows) return false;
  return true;
}

bool have_codes(const Step& s, const Instruction& in) {
  const int64_t first = -(int64_t)in.number[PlaceOperands::offset], end = first + in.number[PlaceOperands::places];
  for (int64_t b = 0; b < s.rows; ++b)
    if (s.position[b] < first || s.position[b] >= end) return false;
  return true;
}

Refusal unfit(const Step& s, const Instruction& in) {
  const bool stamped = present(s.rows, {s.order, s.position});
  switch (in.operation) {
    case EMBED: return !present(s.rows, {s.tokens}) ? MISSING : in_vocabulary(s, in) ? DONE : VALUES;
    case PLACE: return !stamped ? MISSING : have_codes(s, in) ? DONE : POSITIONS;
    case WAVES: return stamped ? DONE : MISSING;
    case ATTEND: return !stamped ? MISSING : in.number[AttendOperands::cache] < 0 && !s.begins ? PROGRAM : DONE;
    default: return DONE;
  }
}

}  // namespace

Refusal unfit(Step& s) {
  if (!a_team(s.threads)) return THREADS;
  if (!countable({s.rows}) || s.rows > s.room || !in_rows(s)) return SIZES;
  if (!s.checked)
    if (const Refusal refused = unfit_program(s)) return refused;
  s.checked = 1;
  if (s.cell_count && row_count(s) > s.cell_rows) return SIZES;
  const int64_t coming = s.begins ? longest_of(s) : 1;
  for (int64_t i = 0; i < s.cache_count; ++i) {
    if (!holds(s.caches[i], i ? s.caches + i - 1 : nullptr, row_count(s), coming)) return CACHES;
    if (!s.caches[i].source && !present(s.rows, {s.order, s.position})) return MISSING;
  }
  for (int64_t i = 0; i < s.instructions; ++i)
    if (const Refusal refused = unfit(s, s.program[i])) return refused;
  return DONE;
}
