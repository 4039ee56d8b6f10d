// Frames: what goes over a connection of the control channel. A header with type and length, then the payload.
//
// What arrives is hostile until it is checked: a length is compared with the limit before anything is kept, memory
// grows with the bytes that have arrived and not with those that were promised.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lathe::comm {

enum class FrameType : uint16_t {
  hello = 1,  // who connects
  refused,    // why it is not let in
  welcome,    // it is let in; of the control channel: all ranks are here
  heartbeat,  // a sign of life, with the position
  data,       // of gather() and broadcast()
  fail,       // to rank 0: this rank fails
  verdict,    // from rank 0: the run fails
  bye,        // to rank 0: this rank is done
  done        // from rank 0: all are
};

constexpr size_t kLargestData = size_t{64} << 20;  // bytes of a message of gather() and broadcast()
constexpr size_t kLongestText = 4000;              // bytes of a text for people

// Numbers and texts of a payload, at its end.
class Put {
 public:
  explicit Put(std::string& out) : out_(out) {}
  template <class T>
  Put& number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Put& text(std::string_view text);  // its length, then itself

 private:
  std::string& out_;
};

// The same, from the beginning. What is missing reads as 0 or empty, and ok() is false from then on.
class Take {
 public:
  explicit Take(std::string_view in) : in_(in) {}
  template <class T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    if (in_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof value);
    in_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text();  // of the payload; no copy
  std::string_view rest() { return std::exchange(in_, {}); }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && in_.empty(); }

 private:
  void fail() {
    ok_ = false;
    in_ = {};
  }

  std::string_view in_;
  bool ok_ = true;
};

struct Frame {
  FrameType type{};
  std::string_view payload;  // until the next call of the reader
};

class FrameReader {
 public:
  enum class State { open, closed, bad };

  FrameReader();
  // Reads what has arrived. closed: the other end is gone; what came before is still given. bad: no frame.
  State read(int fd);
  // The same, but not a byte behind the next frame: what follows is not made of frames.
  State read_one(int fd);
  // The next one that is complete. `allowed`: the longest payload, for who is not known yet.
  bool next(Frame&, size_t allowed = kLargestData);
  bool empty() const { return begin_ == buffer_.size(); }
  State state() const { return state_; }
  const std::string& problem() const { return problem_; }  // of what is closed or bad

 private:
  bool read_some(int fd, size_t most);  // whether there may be more

  std::string buffer_;
  size_t begin_ = 0;  // of what was not given yet
  State state_ = State::open;
  std::string problem_;
};

class FrameWriter {
 public:
  FrameWriter();
  // The payload follows by put(), until end().
  void begin(FrameType);
  std::string& payload() { return buffer_; }
  void end();
  void add(FrameType, std::string_view payload);
  // Writes what can be written without waiting. False: the other end is gone.
  bool flush(int fd);
  bool empty() const { return begin_ == buffer_.size(); }

 private:
  std::string buffer_;
  size_t begin_ = 0, header_ = 0;
};

}  // namespace lathe::comm
