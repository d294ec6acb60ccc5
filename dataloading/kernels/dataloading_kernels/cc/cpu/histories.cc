// Histories of samples as columns of Parquet: negative items, and lists as runs of dictionary
// indices. Both rows of a pair share one history; most of its padding is a single run.
//
// The caller guarantees that all histories are within `items`, and `out` large enough.

#include <cstdint>
#include <cstring>

namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

// preproc.amazon_books.negatives folds a part into a hash in the same way.
inline std::uint64_t Folded(std::uint64_t key, std::uint64_t part) {
  std::uint64_t mixed = key + (part + 1) * kGolden;
  mixed ^= mixed >> 30;
  mixed *= 0xBF58476D1CE4E5B9;
  mixed ^= mixed >> 27;
  mixed *= 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

// floor(hash * bound / 2^64)
inline std::int64_t Scaled(std::uint64_t hash, std::uint64_t bound) {
  return static_cast<std::int64_t>((static_cast<unsigned __int128>(hash) * bound) >> 64);
}

inline std::uint8_t* PutVarint(std::uint8_t* out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) *out++ = static_cast<std::uint8_t>(number) | 0x80;
  *out++ = static_cast<std::uint8_t>(number);
  return out;
}

// Numbers of different values in the order in which they come; `numbers` has them plus 1, 0 for none.
class Dictionary {
 public:
  Dictionary(std::int32_t* numbers, std::int64_t* values, std::int64_t size)
      : numbers_(numbers), values_(values), size_(size) {}

  inline std::uint32_t Number(std::int32_t value) {
    std::int32_t number = numbers_[value];
    if (number == 0) {
      values_[size_++] = value;
      number = numbers_[value] = static_cast<std::int32_t>(size_);
    }
    return static_cast<std::uint32_t>(number) - 1;
  }

  std::int64_t size() const { return size_; }

 private:
  std::int32_t* numbers_;
  std::int64_t* values_;
  std::int64_t size_;
};

// One list: zeros as a run, groups of 8 values packed into `bits` each; what fills no group before.
template <typename NumberOf>
std::uint8_t* EncodeList(const std::int32_t* values, std::int64_t length, std::int64_t width,
                         std::int64_t bits, std::uint32_t zero, NumberOf number_of,
                         std::uint8_t* out) {
  std::int64_t groups = (length + 7) / 8;
  if (groups > width / 8) groups = width / 8;
  const std::int64_t value_bytes = (bits + 7) / 8;
  const auto run = [&](std::int64_t count, std::uint32_t number) {
    out = PutVarint(out, static_cast<std::uint64_t>(count) << 1);
    std::memcpy(out, &number, value_bytes);  // little-endian
    out += value_bytes;
  };
  const std::int64_t first_packed = width - 8 * groups;
  std::int64_t zeros = width - length;
  const std::int64_t zeros_before = zeros < first_packed ? zeros : first_packed;
  if (zeros_before > 0) run(zeros_before, zero);
  for (std::int64_t i = zeros_before; i < first_packed; ++i) run(1, number_of(*values++));
  if (groups == 0) return out;
  zeros -= zeros_before;
  out = PutVarint(out, static_cast<std::uint64_t>(groups) << 1 | 1);
  std::uint64_t packed = 0;
  std::int64_t filled = 0;
  const auto put = [&](std::uint32_t number) {
    packed |= static_cast<std::uint64_t>(number) << filled;
    filled += bits;
    if (filled >= 32) {
      const std::uint32_t word = static_cast<std::uint32_t>(packed);
      std::memcpy(out, &word, 4);
      out += 4;
      packed >>= 32;
      filled -= 32;
    }
  };
  for (std::int64_t i = 0; i < zeros; ++i) put(zero);
  for (std::int64_t i = zeros; i < 8 * groups; ++i) put(number_of(*values++));
  std::memcpy(out, &packed, 4);
  return out + filled / 8;
}

}  // namespace

extern "C" {

// The negative items of the histories of `num_rows` rows, two for each pair, one row after the other.
// The history of pair p is items[ends[p] - lengths[p] : ends[p]], steps counted from its end. With
// `num_events`, items of random events (popularity); else of 1 to `num_items` other than the positive.
void draw_negatives(const std::uint64_t* keys, std::int64_t num_rows, const std::int32_t* items,
                    const std::int64_t* ends, const std::int64_t* lengths, std::int64_t num_items,
                    std::int64_t num_events, std::int32_t* out) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t length = lengths[row / 2];
    const std::int32_t* positives = items + ends[row / 2] - length;
    const std::uint64_t key = keys[row];
    if (num_events != 0) {
      for (std::int64_t i = 0; i < length; ++i)
        out[i] = items[Scaled(Folded(key, length - i), num_events)];
    } else {
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int32_t item =
            1 + static_cast<std::int32_t>(Scaled(Folded(key, length - i), num_items - 1));
        out[i] = item + (item >= positives[i]);
      }
    }
    out += length;
  }
}

// Lists of `width` values, zeros before lengths[i] of them, as Parquet's hybrid of runs and of packed
// dictionary indices of `bits`. List i has values[ends[i] - lengths[i] : ends[i]], is written `copies`
// times, and holds feature[value] where `feature` is not null. New values are appended to `dictionary`,
// of which there are `*size`. Returns the number of bytes.
std::int64_t encode_lists(const std::int32_t* values, const std::int64_t* ends,
                          const std::int64_t* lengths, std::int64_t num_lists, std::int64_t width,
                          std::int64_t copies, const std::int32_t* feature, std::int64_t bits,
                          std::int32_t* numbers, std::int64_t* dictionary, std::int64_t* size,
                          std::uint8_t* out) {
  Dictionary found(numbers, dictionary, *size);
  const std::uint32_t zero = found.Number(0);
  const std::uint8_t* start = out;
  for (std::int64_t i = 0; i < num_lists; ++i) {
    const std::int32_t* list = values + ends[i] - lengths[i];
    const std::uint8_t* first = out;
    if (feature == nullptr) {
      const auto number_of = [&](std::int32_t value) { return found.Number(value); };
      out = EncodeList(list, lengths[i], width, bits, zero, number_of, out);
    } else {
      const auto number_of = [&](std::int32_t value) { return found.Number(feature[value]); };
      out = EncodeList(list, lengths[i], width, bits, zero, number_of, out);
    }
    const std::int64_t list_bytes = out - first;
    for (std::int64_t copy = 1; copy < copies; ++copy, out += list_bytes)
      std::memcpy(out, first, list_bytes);
  }
  *size = found.size();
  return out - start;
}

}  // extern "C"
