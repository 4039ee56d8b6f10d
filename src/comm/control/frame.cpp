#include "comm/control/frame.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"

namespace lathe::comm {
namespace {

struct FrameHeader {
  uint32_t bytes = 0;  // of the payload
  uint16_t type = 0;
  uint16_t check = 0;  // of the type
};
static_assert(sizeof(FrameHeader) == 8);

constexpr uint16_t kFrameCheck = 0x4C54;

// The longest payload of a type; -1: there is no such type.
int64_t longest(uint16_t type) {
  switch (static_cast<FrameType>(type)) {
    case FrameType::hello: return 1024;
    case FrameType::heartbeat: return 1024;
    case FrameType::refused:
    case FrameType::fail:
    case FrameType::verdict: return kLongestText + 64;
    case FrameType::welcome:
    case FrameType::data: return kLargestData + 64;
    case FrameType::bye:
    case FrameType::done: return 64;
  }
  return -1;
}

bool is_valid(const FrameHeader& h, size_t allowed) {
  return h.check == (h.type ^ kFrameCheck) && int64_t{h.bytes} <= longest(h.type) && h.bytes <= allowed;
}

constexpr size_t kReadAhead = 16 * 1024;

}  // namespace

Put& Put::text(std::string_view text) {
  number(static_cast<uint32_t>(text.size()));
  out_.append(text);
  return *this;
}

std::string_view Take::text() {
  const auto size = number<uint32_t>();
  if (size > in_.size()) {
    fail();
    return {};
  }
  const std::string_view text = in_.substr(0, size);
  in_.remove_prefix(size);
  return text;
}

FrameReader::FrameReader() { buffer_.reserve(2 * kReadAhead); }

bool FrameReader::read_some(int fd, size_t most) {
  std::array<char, kReadAhead> chunk;
  const size_t room = std::min(most, chunk.size());
  const ssize_t got = recv(fd, chunk.data(), room, MSG_DONTWAIT);
  if (got > 0) {
    buffer_.append(chunk.data(), static_cast<size_t>(got));
    return static_cast<size_t>(got) == room;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  state_ = State::closed;
  problem_ = got == 0 ? "the connection was closed" : std::strerror(errno);
  return false;
}

FrameReader::State FrameReader::read(int fd) {
  if (state_ != State::open) return state_;
  buffer_.erase(0, begin_);
  begin_ = 0;
  // A bound on what one connection may take of the thread's time.
  for (int turn = 0; turn < 64 && read_some(fd, kReadAhead); ++turn) {
  }
  return state_;
}

FrameReader::State FrameReader::read_one(int fd) {
  if (state_ != State::open) return state_;
  buffer_.erase(0, begin_);
  begin_ = 0;
  for (;;) {
    size_t whole = sizeof(FrameHeader);
    if (buffer_.size() >= whole) {
      FrameHeader h;
      std::memcpy(&h, buffer_.data(), sizeof h);
      if (!is_valid(h, kLargestData)) return state_;  // next() says so
      whole += h.bytes;
    }
    if (buffer_.size() >= whole) return state_;
    if (!read_some(fd, whole - buffer_.size())) return state_;
  }
}

bool FrameReader::next(Frame& frame, size_t allowed) {
  if (state_ == State::bad || buffer_.size() - begin_ < sizeof(FrameHeader)) return false;
  FrameHeader h;
  std::memcpy(&h, buffer_.data() + begin_, sizeof h);
  if (!is_valid(h, allowed)) {
    state_ = State::bad;
    problem_ = "what arrived is no message of this protocol";
    return false;
  }
  if (buffer_.size() - begin_ - sizeof h < h.bytes) return false;
  frame = {static_cast<FrameType>(h.type), std::string_view(buffer_).substr(begin_ + sizeof h, h.bytes)};
  begin_ += sizeof h + h.bytes;
  return true;
}

FrameWriter::FrameWriter() { buffer_.reserve(kReadAhead); }

void FrameWriter::begin(FrameType type) {
  if (empty()) {
    buffer_.clear();
    begin_ = 0;
  }
  header_ = buffer_.size();
  const FrameHeader h{0, static_cast<uint16_t>(type), static_cast<uint16_t>(static_cast<uint16_t>(type) ^ kFrameCheck)};
  buffer_.append(reinterpret_cast<const char*>(&h), sizeof h);
}

void FrameWriter::end() {
  const size_t bytes = buffer_.size() - header_ - sizeof(FrameHeader);
  FrameHeader h;
  std::memcpy(&h, buffer_.data() + header_, sizeof h);
  LATHE_CHECK(static_cast<int64_t>(bytes) <= longest(h.type), "{} bytes in a frame of type {}", bytes, h.type);
  h.bytes = static_cast<uint32_t>(bytes);
  std::memcpy(buffer_.data() + header_, &h, sizeof h);
}

void FrameWriter::add(FrameType type, std::string_view payload) {
  begin(type);
  buffer_.append(payload);
  end();
}

bool FrameWriter::flush(int fd) {
  while (!empty()) {
    const ssize_t sent = send(fd, buffer_.data() + begin_, buffer_.size() - begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      begin_ += static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return true;
}

}  // namespace lathe::comm
