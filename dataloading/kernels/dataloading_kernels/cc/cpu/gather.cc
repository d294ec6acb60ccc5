// Copies of samples from a mapped file. A shuffled batch finds few of them in the caches, so the
// bytes of the next samples are requested while those of this one are copied.
//
// The caller guarantees that all ranges are within `content` and `out`.

#include <cstdint>
#include <cstring>

namespace {

constexpr std::int64_t kAhead = 24;  // samples
constexpr std::int64_t kCacheLine = 64;

inline void Prefetch(const std::uint8_t* bytes, std::int64_t size) {
  __builtin_prefetch(bytes);
  if (size > 1) __builtin_prefetch(bytes + (size < kCacheLine ? size - 1 : kCacheLine));
}

template <std::int64_t N>
inline void CopyEnds(std::uint8_t* to, const std::uint8_t* from, std::int64_t size) {
  std::uint8_t first[N], last[N];
  std::memcpy(first, from, N);
  std::memcpy(last, from + size - N, N);
  std::memcpy(to, first, N);
  std::memcpy(to + size - N, last, N);
}

// Few branches, which are unpredictable where sizes differ: the first and the last bytes may overlap.
inline void Copy(std::uint8_t* to, const std::uint8_t* from, std::int64_t size) {
  if (size > 64) {
    std::memcpy(to, from, size);
  } else if (size > 32) {
    CopyEnds<32>(to, from, size);
  } else if (size > 16) {
    CopyEnds<16>(to, from, size);
  } else if (size >= 8) {
    CopyEnds<8>(to, from, size);
  } else if (size >= 4) {
    CopyEnds<4>(to, from, size);
  } else {
    for (; size > 0; --size) *to++ = *from++;
  }
}

}  // namespace

extern "C" {

// out[places[i] * size : ... + size] = content[offsets[i] : ... + size]
void gather(const std::uint8_t* content, const std::int64_t* offsets, const std::int64_t* places,
            std::int64_t num_samples, std::int64_t size, std::uint8_t* out) {
  for (std::int64_t i = 0; i < num_samples; ++i) {
    if (i + kAhead < num_samples) Prefetch(content + offsets[i + kAhead], size);
    Copy(out + places[i] * size, content + offsets[i], size);
  }
}

}  // extern "C"
