// What the compiler calls where kernels are built with -fsanitize=thread,alignment and linked
// without the sanitizers' own runtimes.
#if defined(DOT_INTERACT_CHECKED)

#include <stdint.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"

extern "C" {

// Before every access; "range" stands for structures, whose members are aligned one by one.
void __tsan_init(void) {}
#define DOT_INTERACT_ACCESS(bytes)                                                       \
  void __tsan_read##bytes(void* address) {                                               \
    dot_interact::emulator::NoteRead(address, bytes, /*aligned=*/true);                  \
  }                                                                                      \
  void __tsan_write##bytes(void* address) {                                              \
    dot_interact::emulator::NoteWrite(address, bytes, /*aligned=*/true);                 \
  }                                                                                      \
  void __tsan_volatile_read##bytes(void* address) { __tsan_read##bytes(address); }       \
  void __tsan_volatile_write##bytes(void* address) { __tsan_write##bytes(address); }     \
  void __tsan_unaligned_read##bytes(void* address) {                                     \
    dot_interact::emulator::NoteRead(address, bytes, /*aligned=*/false);                 \
  }                                                                                      \
  void __tsan_unaligned_write##bytes(void* address) {                                    \
    dot_interact::emulator::NoteWrite(address, bytes, /*aligned=*/false);                \
  }
DOT_INTERACT_ACCESS(1)
DOT_INTERACT_ACCESS(2)
DOT_INTERACT_ACCESS(4)
DOT_INTERACT_ACCESS(8)
DOT_INTERACT_ACCESS(16)
#undef DOT_INTERACT_ACCESS
void __tsan_read_range(void* address, long bytes) {
  dot_interact::emulator::NoteRead(address, bytes, /*aligned=*/false);
}
void __tsan_write_range(void* address, long bytes) {
  dot_interact::emulator::NoteWrite(address, bytes, /*aligned=*/false);
}

void __tsan_vptr_update(void*, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}

// Before an access, as the source has it, at an address that is not aligned for its type. The
// compiler may have split the access that a GPU makes whole.
struct MisalignedAccess {
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char log_alignment;
};
void __ubsan_handle_type_mismatch_v1(MisalignedAccess* access, uintptr_t address) {
  if (!dot_interact::emulator::InKernel()) return;
  const char* name = strrchr(access->file, '/');
  dot_interact::emulator::Fault("misaligned access: %p is no multiple of %u (%s:%u)",
                                reinterpret_cast<void*>(address), 1u << access->log_alignment,
                                name == nullptr ? access->file : name + 1, access->line);
}

}  // extern "C"

#endif
