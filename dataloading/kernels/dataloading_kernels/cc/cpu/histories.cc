// Histories of a batch: copies of the last events of users, and negative items that are drawn.
//
// The caller guarantees that all ranges are within the arrays. `lengths` are at most `steps`.
// `dataloading/histories` specifies the functions in NumPy.

#include <cstdint>
#include <cstring>

namespace {

// Of SplitMix64, see `dataloading/keys/split_mix.py`.
inline std::uint64_t Hash(std::uint64_t key, std::int64_t step) {
  std::uint64_t word = key + (static_cast<std::uint64_t>(step) + 1) * 0x9E3779B97F4A7C15u;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

inline std::int64_t Below(std::uint64_t hash, std::int64_t bound) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<std::int64_t>(static_cast<Wide>(hash) * static_cast<Wide>(bound) >> 64);
}

}  // namespace

extern "C" {

// out[i] = zeros, then content[ends[i] - lengths[i] : ends[i]], `steps` values of `size` bytes
void last_events(const std::uint8_t* content, const std::int64_t* ends, const std::int64_t* lengths,
                 std::int64_t num_samples, std::int64_t steps, std::int64_t size,
                 std::uint8_t* out) {
  for (std::int64_t i = 0; i < num_samples; ++i, out += steps * size) {
    const std::int64_t num_zeros = (steps - lengths[i]) * size;
    std::memset(out, 0, num_zeros);
    std::memcpy(out + num_zeros, content + (ends[i] - lengths[i]) * size, lengths[i] * size);
  }
}

// out[i] = zeros, then items for the last lengths[i] of positives[i]: other ones of 1 to num_items,
// or, with num_events > 0, those of random events
void draw_histories(const std::uint64_t* keys, const std::int64_t* lengths,
                    const std::int32_t* positives, std::int64_t num_samples, std::int64_t steps,
                    std::int64_t num_items, const std::int32_t* events, std::int64_t num_events,
                    std::int32_t* out) {
  for (std::int64_t i = 0; i < num_samples; ++i, positives += steps, out += steps) {
    std::int64_t place = 0;
    for (; place < steps - lengths[i]; ++place) out[place] = 0;
    for (; place < steps; ++place) {
      const std::uint64_t hash = Hash(keys[i], steps - place);
      if (num_events > 0) {
        out[place] = events[Below(hash, num_events)];
      } else {
        const std::int64_t item = Below(hash, num_items - 1) + 1;
        out[place] = static_cast<std::int32_t>(item + (item >= positives[place]));
      }
    }
  }
}

// out[i] = table[items[i]]
void features_of_items(const std::int32_t* table, const std::int32_t* items, std::int64_t num_items,
                       std::int32_t* out) {
  for (std::int64_t i = 0; i < num_items; ++i) out[i] = table[items[i]];
}

}  // extern "C"
