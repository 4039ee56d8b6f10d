#include "io/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "io/files/fs.h"

namespace lathe::io {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    t[i] = c;
  }
  return t;
}();

// Checksums of a record are rotated and shifted, so that records within records do not confuse.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

// Fields of one message; room for a scalar with a long tag.
class Message {
 public:
  void varint(int field, uint64_t v) {
    put_varint(static_cast<uint64_t>(field) << 3);
    put_varint(v);
  }
  void f64(int field, double v) {
    put_varint(static_cast<uint64_t>(field) << 3 | 1);
    put_fixed(std::bit_cast<uint64_t>(v), 8);
  }
  void f32(int field, float v) {
    put_varint(static_cast<uint64_t>(field) << 3 | 5);
    put_fixed(std::bit_cast<uint32_t>(v), 4);
  }
  void bytes(int field, std::string_view v) {
    put_varint(static_cast<uint64_t>(field) << 3 | 2);
    put_varint(v.size());
    for (const char c : v) put(c);
  }
  std::string_view text() const { return {buffer_.data(), size_}; }

 private:
  void put(char c) {
    LATHE_CHECK(size_ < buffer_.size(), "an event of more than {} bytes", buffer_.size());
    buffer_[size_++] = c;
  }
  void put_varint(uint64_t v) {
    for (; v >= 128; v >>= 7) put(static_cast<char>((v & 127) | 128));
    put(static_cast<char>(v));
  }
  void put_fixed(uint64_t v, int count) {
    for (int i = 0; i < count; ++i) put(static_cast<char>(v >> (8 * i) & 255));
  }

  std::array<char, 512> buffer_;
  size_t size_ = 0;
};

// Fields of Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log. Of Summary: 1 value. Of a value: 1
// tag, 2 simple_value. Of SessionLog: 1 status (1: start).
Message event_at(int64_t step, double time) {
  Message m;
  m.f64(1, time);
  m.varint(2, static_cast<uint64_t>(step));
  return m;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~0u;
  for (const char b : bytes) c = kCrcTable[(c ^ static_cast<uint8_t>(b)) & 255] ^ (c >> 8);
  return ~c;
}

EventFile::EventFile(const std::string& dir, int64_t step, double time) {
  // Readers take the files of a folder in the order of their names.
  for (int part = 0; part < 10000; ++part) {
    path_ = join_path(dir, fmt::format("events.out.tfevents.{:010}.{:04}.lathe", static_cast<int64_t>(time), part));
    file_ = std::fopen(path_.c_str(), "wbxe");
    if (file_ || errno != EEXIST) break;
  }
  if (!file_) throw UserError(fmt::format("{}: cannot be made: {}", path_, std::strerror(errno)), Exit::cannot_create);
  Message version;
  version.f64(1, time);
  version.bytes(3, "brain.Event:2");
  record(version.text());
  if (step > 0) {
    Message start = event_at(step + 1, time), status;
    status.varint(1, 1);
    start.bytes(7, status.text());
    record(start.text());
  }
  flush();
}

EventFile::~EventFile() { std::fclose(file_); }

void EventFile::scalar(std::string_view tag, int64_t step, double value, double time) {
  Message v, summary, event = event_at(step, time);
  v.bytes(1, tag);
  v.f32(2, static_cast<float>(value));
  summary.bytes(1, v.text());
  event.bytes(5, summary.text());
  record(event.text());
}

void EventFile::record(std::string_view event) {
  std::array<char, 12> head;
  const auto put = [](char* at, uint64_t v, int count) {
    for (int i = 0; i < count; ++i) at[i] = static_cast<char>(v >> (8 * i) & 255);
  };
  put(head.data(), event.size(), 8);
  put(head.data() + 8, masked(crc32c({head.data(), 8})), 4);
  std::array<char, 4> tail;
  put(tail.data(), masked(crc32c(event)), 4);
  std::fwrite(head.data(), 1, head.size(), file_);
  std::fwrite(event.data(), 1, event.size(), file_);
  std::fwrite(tail.data(), 1, tail.size(), file_);
}

void EventFile::flush() {
  if (std::fflush(file_) != 0 || std::ferror(file_))
    throw UserError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)), Exit::io_error);
}

}  // namespace lathe::io
