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

// The last record from `record` on that begins at `sample` or before it, galloping: most often the
// same one or one of the next.
inline std::int64_t RecordOf(const std::int64_t* first_samples, std::int64_t num_records,
                             std::int64_t record, std::int64_t sample) {
  std::int64_t step = 1;
  while (record + step < num_records && first_samples[record + step] <= sample) {
    record += step;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (record + step < num_records && first_samples[record + step] <= sample) record += step;
  return record;
}

// The number of the first pair of row splits that breaks a rule, -1 where none does: splits go from 0
// to `num_values`, each difference is `hotness`, or 0 to `hotness` where ragged.
template <typename T>
std::int64_t FirstBadSplit(const std::uint8_t* splits, std::int64_t num_samples,
                           std::int64_t num_values, std::int64_t hotness, bool ragged) {
  T last;
  std::memcpy(&last, splits, sizeof(T));
  if (last != 0) return 0;
  const std::int64_t least = ragged ? 0 : hotness;
  for (std::int64_t i = 0; i < num_samples; ++i) {
    T next;
    std::memcpy(&next, splits + (i + 1) * sizeof(T), sizeof(T));
    // Neither is negative, so that the difference does not overflow.
    if (next < last || next - last < least || next - last > hotness) return i;
    last = next;
  }
  return last == num_values ? -1 : num_samples;
}

// Two neighboring row splits, of type T, at each offset.
template <typename T>
void ReadSplits(const std::uint8_t* content, const std::int64_t* offsets,
                const std::int64_t* places, std::int64_t num_samples, std::int64_t size,
                std::int64_t* begins, std::int64_t* lengths) {
  for (std::int64_t i = 0; i < num_samples; ++i) {
    if (i + kAhead < num_samples) Prefetch(content + offsets[i + kAhead], 2 * sizeof(T));
    T pair[2];  // records are not aligned
    std::memcpy(pair, content + offsets[i], sizeof(pair));
    begins[i] += pair[0] * size;
    lengths[places[i]] = pair[1] - pair[0];
  }
}

}  // namespace

extern "C" {

// Where samples are, which ascend. Record r has the samples from first_samples[r] on, up to those of
// the next one; the last one ends at first_samples[num_records]. offsets[i] = origins[r] + samples[i]
// * step for the record r of a sample, and begins_out[i] = begins[r] unless `begins` is null. `runs`
// becomes the records that have samples, `run_starts` the number of the first sample of each. Returns
// the number of runs.
std::int64_t locate(const std::int64_t* samples, std::int64_t num_samples,
                    const std::int64_t* first_samples, std::int64_t num_records,
                    const std::int64_t* origins, std::int64_t step, const std::int64_t* begins,
                    std::int64_t* offsets, std::int64_t* begins_out, std::int64_t* runs,
                    std::int64_t* run_starts) {
  std::int64_t record = 0, count = 0;
  for (std::int64_t i = 0; i < num_samples;) {
    record = RecordOf(first_samples, num_records, record, samples[i]);
    runs[count] = record;
    run_starts[count++] = i;
    const std::int64_t end = first_samples[record + 1], origin = origins[record];
    const std::int64_t begin = begins == nullptr ? 0 : begins[record];
    for (; i < num_samples && samples[i] < end; ++i) {
      offsets[i] = origin + samples[i] * step;
      if (begins != nullptr) begins_out[i] = begin;
    }
  }
  return count;
}

// Running totals of lengths, int32 [num_samples + 1], from 0 on. Returns the last one; where it is
// above the range of int32, they are of no use.
std::int64_t sum_lengths(const std::int64_t* lengths, std::int64_t num_samples,
                         std::int32_t* row_splits) {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < num_samples; ++i) {
    row_splits[i] = static_cast<std::int32_t>(total);
    total += lengths[i];
  }
  row_splits[num_samples] = static_cast<std::int32_t>(total);
  return total;
}

// See FirstBadSplit; row splits have 4 or 8 bytes.
std::int64_t first_bad_split(const std::uint8_t* splits, std::int64_t num_samples,
                             std::int64_t split_size, std::int64_t num_values, std::int64_t hotness,
                             std::int64_t ragged) {
  const auto check = split_size == 4 ? FirstBadSplit<std::int32_t> : FirstBadSplit<std::int64_t>;
  return check(splits, num_samples, num_values, hotness, ragged != 0);
}

// out[places[i] * size : ... + size] = content[offsets[i] : ... + size]
void gather(const std::uint8_t* content, const std::int64_t* offsets, const std::int64_t* places,
            std::int64_t num_samples, std::int64_t size, std::uint8_t* out) {
  for (std::int64_t i = 0; i < num_samples; ++i) {
    if (i + kAhead < num_samples) Prefetch(content + offsets[i + kAhead], size);
    Copy(out + places[i] * size, content + offsets[i], size);
  }
}

// begins[i] += size * the row split at offsets[i]; lengths[places[i]] = the next one minus it. Row
// splits have 4 or 8 bytes.
void read_splits(const std::uint8_t* content, const std::int64_t* offsets,
                 const std::int64_t* places, std::int64_t num_samples, std::int64_t split_size,
                 std::int64_t size, std::int64_t* begins, std::int64_t* lengths) {
  const auto read = split_size == 4 ? ReadSplits<std::int32_t> : ReadSplits<std::int64_t>;
  read(content, offsets, places, num_samples, size, begins, lengths);
}

// With p = places[i]: out[row_splits[p] * size : row_splits[p + 1] * size] = content[offsets[i] : ...]
void gather_ragged(const std::uint8_t* content, const std::int64_t* offsets,
                   const std::int64_t* places, std::int64_t num_samples, std::int64_t size,
                   const std::int32_t* row_splits, std::uint8_t* out) {
  for (std::int64_t i = 0; i < num_samples; ++i) {
    if (i + kAhead < num_samples) Prefetch(content + offsets[i + kAhead], kCacheLine);
    const std::int64_t begin = row_splits[places[i]], end = row_splits[places[i] + 1];
    Copy(out + begin * size, content + offsets[i], (end - begin) * size);
  }
}

}  // extern "C"
