// Included before every source of a wheel's kernels: what a newer system would take from its libraries, older ones have not.
#pragma once
#include <new>

// glibc 2.29 has a second `log`, which differs in errno only.
__asm__(".symver log, log@GLIBC_2.2.5");

// libstdc++ 3.4.29 (GCC 11): what vectors call when asked for more than there can be.
namespace std {
__attribute__((weak, visibility("hidden"))) void __throw_bad_array_new_length() { __builtin_abort(); }
}  // namespace std
