// Kernels of a CPU, one for each instruction set; the processor decides which one runs.
#ifndef OP_BUILD_INSTRUCTION_SETS_H_
#define OP_BUILD_INSTRUCTION_SETS_H_

#include <string.h>

#include <atomic>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace instruction_sets {

#if defined(__x86_64__)
// g++ learned __builtin_cpu_supports("f16c") in version 11.
inline bool HasF16c() {
  unsigned int eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

// With the operating system's consent to save the registers, which __builtin_cpu_supports checks.
inline bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

inline bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

inline bool Always() { return true; }

// A kernel, which has a `name`, and whether the processor has its instructions.
template <class Kernel>
struct Choice {
  const Kernel& kernel;
  bool (*supported)();
};

// Of `choices`, the best first, the first one that is supported, and has the name unless it is null.
template <class Kernel, int count>
const Kernel* Find(const Choice<Kernel> (&choices)[count], const char* name) {
  for (const Choice<Kernel>& choice : choices) {
    const bool is_named = name == nullptr || strcmp(choice.kernel.name, name) == 0;
    if (is_named && choice.supported()) return &choice.kernel;
  }
  return nullptr;
}

// The kernel in use; null, before the first use, becomes the best one.
template <class Kernel, int count>
const Kernel& InUse(std::atomic<const Kernel*>* in_use, const Choice<Kernel> (&choices)[count]) {
  const Kernel* kernel = in_use->load(std::memory_order_relaxed);
  if (kernel == nullptr) {
    kernel = Find(choices, nullptr);
    in_use->store(kernel, std::memory_order_relaxed);
  }
  return *kernel;
}

}  // namespace instruction_sets

#endif  // OP_BUILD_INSTRUCTION_SETS_H_
