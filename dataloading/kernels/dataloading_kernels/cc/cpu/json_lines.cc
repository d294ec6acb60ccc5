// Wanted fields of JSON objects, one per line. Only what RFC 8259 allows is accepted, so that a line
// which a more tolerant parser has to decide about is reported as such and never misread.

#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

using Byte = std::uint8_t;

constexpr int kMaxDepth = 256;
// Contents of a field.
constexpr std::int32_t kText = 0;     // not empty, without escapes: the span between the quotes
constexpr std::int32_t kInteger = 1;  // of 64 bits: the number itself
constexpr std::int32_t kAny = 2;      // or none: the span of the value

inline bool IsBlank(Byte byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }
inline bool IsDigit(Byte byte) { return byte >= '0' && byte <= '9'; }
inline bool Continues(Byte byte) { return (byte & 0xC0) == 0x80; }

// Bytes of a UTF-8 character that does not start with ASCII; 0 where there is none.
int CharacterBytes(const Byte* at, const Byte* end) {
  const std::int64_t left = end - at;
  const Byte first = at[0];
  if (first >= 0xC2 && first <= 0xDF) return left > 1 && Continues(at[1]) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (left < 3 || !Continues(at[1]) || !Continues(at[2])) return 0;
    if (first == 0xE0 && at[1] < 0xA0) return 0;  // overlong
    if (first == 0xED && at[1] > 0x9F) return 0;  // surrogates
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (left < 4 || !Continues(at[1]) || !Continues(at[2]) || !Continues(at[3])) return 0;
    if (first == 0xF0 && at[1] < 0x90) return 0;  // overlong
    if (first == 0xF4 && at[1] > 0x8F) return 0;  // above U+10FFFF
    return 4;
  }
  return 0;
}

// A cursor within lines; methods that accept something return false where it is not there.
class Cursor {
 public:
  Cursor(const Byte* at, const Byte* end) : at_(at), end_(end) {}

  const Byte* at() const { return at_; }
  bool AtEnd() const { return at_ == end_; }
  bool AtLineEnd() const { return at_ == end_ || *at_ == '\n'; }

  void SkipBlanks() {
    while (at_ < end_ && IsBlank(*at_)) ++at_;
  }

  bool Accept(Byte byte) {
    if (at_ == end_ || *at_ != byte) return false;
    ++at_;
    return true;
  }

  // The rest of a string after its first quote. `escaped`: whether it has a backslash.
  bool String(bool* escaped) {
    *escaped = false;
    while (true) {
      SkipPlain();
      if (at_ == end_) return false;
      const Byte byte = *at_;
      if (byte == '"') {
        ++at_;
        return true;
      }
      if (byte == '\\') {
        *escaped = true;
        if (!Escape()) return false;
      } else if (byte >= 0x80) {
        const int bytes = CharacterBytes(at_, end_);
        if (bytes == 0) return false;
        at_ += bytes;
      } else if (byte < 0x20) {
        return false;
      } else {
        ++at_;
      }
    }
  }

  bool Value(int depth = 0) {
    if (at_ == end_) return false;
    bool escaped;
    switch (*at_) {
      case '"':
        ++at_;
        return String(&escaped);
      case '{':
        ++at_;
        return depth < kMaxDepth && Members(depth + 1);
      case '[':
        ++at_;
        return depth < kMaxDepth && Elements(depth + 1);
      case 't':
        return Word("true", 4);
      case 'f':
        return Word("false", 5);
      case 'n':
        return Word("null", 4);
      default:
        return Number();
    }
  }

  bool Integer(std::int64_t* value) {
    const bool negative = Accept('-');
    if (at_ == end_ || !IsDigit(*at_)) return false;
    const bool zero = *at_ == '0';
    std::uint64_t number = 0;
    const std::uint64_t limit = negative ? 1ull << 63 : (1ull << 63) - 1;
    const Byte* first = at_;
    for (; at_ < end_ && IsDigit(*at_); ++at_) {
      const std::uint64_t digit = *at_ - '0';
      if (number > (limit - digit) / 10) return false;
      number = number * 10 + digit;
    }
    if (zero && at_ - first > 1) return false;
    *value = static_cast<std::int64_t>(negative ? 0 - number : number);
    return true;
  }

 private:
  // Skips characters of a string that need no look, as far as whole steps go.
  void SkipPlain() {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(0x20);
    for (; end_ - at_ >= 16; at_ += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at_));
      // Signed: bytes from 0x80 on are below 0x20, too.
      const __m128i special =
          _mm_or_si128(_mm_cmplt_epi8(bytes, space), _mm_or_si128(_mm_cmpeq_epi8(bytes, quote),
                                                                  _mm_cmpeq_epi8(bytes, backslash)));
      const int mask = _mm_movemask_epi8(special);
      if (mask != 0) {
        at_ += __builtin_ctz(mask);
        return;
      }
    }
#endif
    while (at_ < end_ && *at_ >= 0x20 && *at_ < 0x80 && *at_ != '"' && *at_ != '\\') ++at_;
  }

  bool Escape() {
    if (end_ - at_ < 2) return false;
    const Byte byte = at_[1];
    if (byte != 'u') {
      at_ += 2;
      return byte != 0 && std::strchr("\"\\/bfnrt", byte) != nullptr;
    }
    std::uint32_t high, low;
    if (!CodeUnit(&high)) return false;
    if (high < 0xD800 || high > 0xDFFF) return true;
    // A pair of surrogates, the high one first.
    return high < 0xDC00 && CodeUnit(&low) && low >= 0xDC00 && low <= 0xDFFF;
  }

  // An escape of four hexadecimal digits.
  bool CodeUnit(std::uint32_t* code) {
    if (end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') return false;
    *code = 0;
    for (int i = 2; i < 6; ++i) {
      const Byte digit = at_[i], lower = digit | 0x20;
      if (!IsDigit(digit) && !(lower >= 'a' && lower <= 'f')) return false;
      *code = *code << 4 | (IsDigit(digit) ? digit - '0' : lower - 'a' + 10);
    }
    at_ += 6;
    return true;
  }

  bool Word(const char* word, int size) {
    if (end_ - at_ < size || std::memcmp(at_, word, size) != 0) return false;
    at_ += size;
    return true;
  }

  bool Digits() {
    if (at_ == end_ || !IsDigit(*at_)) return false;
    while (at_ < end_ && IsDigit(*at_)) ++at_;
    return true;
  }

  bool Number() {
    Accept('-');
    if (!Accept('0') && !Digits()) return false;
    if (Accept('.') && !Digits()) return false;
    if (Accept('e') || Accept('E')) {
      if (!Accept('+')) Accept('-');
      return Digits();
    }
    return true;
  }

  bool Members(int depth) {
    SkipBlanks();
    if (Accept('}')) return true;
    do {
      SkipBlanks();
      bool escaped;
      if (!Accept('"') || !String(&escaped)) return false;
      SkipBlanks();
      if (!Accept(':')) return false;
      SkipBlanks();
      if (!Value(depth)) return false;
      SkipBlanks();
    } while (Accept(','));
    return Accept('}');
  }

  bool Elements(int depth) {
    SkipBlanks();
    if (Accept(']')) return true;
    do {
      SkipBlanks();
      if (!Value(depth)) return false;
      SkipBlanks();
    } while (Accept(','));
    return Accept(']');
  }

  const Byte* at_;
  const Byte* end_;
};

struct Field {
  const char* name;
  std::size_t size;  // of the name
  std::int32_t kind;
};

// A wanted value: its span (offset, length), or (integer, 1).
bool WantedValue(Cursor* cursor, std::int32_t kind, const Byte* content, std::int64_t* span) {
  const Byte* first = cursor->at();
  bool escaped;
  switch (kind) {
    case kInteger:
      span[1] = 1;
      return cursor->Integer(span);
    case kText:
      if (!cursor->Accept('"') || !cursor->String(&escaped) || escaped) return false;
      span[0] = first + 1 - content;
      span[1] = cursor->at() - first - 2;
      return span[1] > 0;
    default:
      span[0] = first - content;
      if (!cursor->Value()) return false;
      span[1] = cursor->at() - first;
      return true;
  }
}

// The spans of an object's fields, [count, 2]. Keys with escapes and repeated wanted ones are refused.
bool Object(Cursor* cursor, const std::vector<Field>& fields, const Byte* content,
            std::int64_t* spans) {
  for (std::size_t i = 0; i < fields.size(); ++i) spans[2 * i + 1] = -1;
  if (!cursor->Accept('{')) return false;
  cursor->SkipBlanks();
  if (!cursor->Accept('}')) {
    do {
      cursor->SkipBlanks();
      bool escaped;
      if (!cursor->Accept('"')) return false;
      const char* key = reinterpret_cast<const char*>(cursor->at());
      if (!cursor->String(&escaped) || escaped) return false;
      const std::size_t size = reinterpret_cast<const char*>(cursor->at()) - key - 1;
      cursor->SkipBlanks();
      if (!cursor->Accept(':')) return false;
      cursor->SkipBlanks();
      std::size_t i = 0;
      while (i < fields.size() &&
             (fields[i].size != size || std::memcmp(fields[i].name, key, size) != 0))
        ++i;
      if (i == fields.size()) {
        if (!cursor->Value()) return false;
      } else if (spans[2 * i + 1] >= 0 ||
                 !WantedValue(cursor, fields[i].kind, content, spans + 2 * i)) {
        return false;
      }
      cursor->SkipBlanks();
    } while (cursor->Accept(','));
    if (!cursor->Accept('}')) return false;
  }
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].kind != kAny && spans[2 * i + 1] < 0) return false;
  return true;
}

}  // namespace

extern "C" {

// The fields of the lines that begin in content[begin : stop], of `size` bytes which end with a line.
// Blank lines are left out. `spans`, int64 [max_lines, count, 2], are of contents as above; length -1
// where there is none. A line that is not accepted has is_odd 1 and its own span in the first field.
// Returns the number of lines; `*next` is where the first line begins that was not read.
std::int64_t scan_json_lines(const Byte* content, std::int64_t size, std::int64_t begin,
                             std::int64_t stop, const char* const* names,
                             const std::int32_t* kinds, std::int64_t count, std::int64_t max_lines,
                             std::int64_t* spans, Byte* is_odd, std::int64_t* next) {
  std::vector<Field> fields;
  for (std::int64_t i = 0; i < count; ++i)
    fields.push_back({names[i], std::strlen(names[i]), kinds[i]});
  const Byte *end = content + size, *line = content + begin;
  std::int64_t lines = 0;
  while (line < content + stop && lines < max_lines) {
    Cursor cursor(line, end);
    cursor.SkipBlanks();
    if (cursor.AtLineEnd()) {
      line = cursor.at() + !cursor.AtEnd();
      continue;
    }
    bool good = Object(&cursor, fields, content, spans);
    cursor.SkipBlanks();
    good = good && cursor.AtLineEnd();
    const Byte* line_end = cursor.at();
    if (!good) {
      line_end = static_cast<const Byte*>(std::memchr(line, '\n', end - line));
      if (line_end == nullptr) line_end = end;
      spans[0] = line - content;
      spans[1] = line_end - line;
    }
    is_odd[lines++] = !good;
    spans += 2 * count;
    line = line_end + (line_end < end);
  }
  *next = line - content;
  return lines;
}

// Copies spans, int64 [count, stride] with offset and length first, one after the other; `offsets`,
// int32 [count + 1], are where they begin and where the last one ends. Length -1 counts as 0.
void copy_spans(const Byte* content, const std::int64_t* spans, std::int64_t count,
                std::int64_t stride, std::int32_t* offsets, Byte* out) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count; ++i, spans += stride) {
    offsets[i] = static_cast<std::int32_t>(end);
    if (spans[1] <= 0) continue;
    std::memcpy(out + end, content + spans[0], spans[1]);
    end += spans[1];
  }
  offsets[count] = static_cast<std::int32_t>(end);
}

}  // extern "C"
