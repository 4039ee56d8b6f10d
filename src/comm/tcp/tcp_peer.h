// One connection of a group over TCP (tcp.h): the messages that are under way between two ranks. All calls are made
// under the lock of the group; nothing waits.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/socket.h"

namespace lathe::comm {

struct TcpHeader {  // In front of each message.
  uint32_t magic = kMagic;
  int32_t tag = 0;        // kAbort: the bytes are why the sender leaves
  uint64_t number = 0;    // among those of the tag
  uint64_t bytes = 0;     // that follow
  uint64_t checksum = 0;  // of them; 0: none

  static constexpr uint32_t kMagic = 0x4D48544C;
  static constexpr int32_t kAbort = -1;
};
static_assert(sizeof(TcpHeader) == 32);

class TcpPeer {
 public:
  // The connection to a rank; to itself over two ends of a pair.
  TcpPeer(int own, int rank, bool checksums, Socket in, Socket out = {});

  int start_send(int tag, std::span<const std::byte>);  // a slot
  int start_receive(int tag, std::span<std::byte>);     // a slot
  bool is_done(int slot, bool sends) const;
  void finish(int slot, bool sends);                 // of one that is done
  std::string describe(int slot, bool sends) const;  // "send 4 bytes to rank 2 (tag 0)"

  // Moves what can be moved. What is wrong, for all ranks to know; empty: nothing.
  std::string read(bool moves_all = false);
  std::string write();
  std::string deliver();  // what came before it was asked for
  // Somebody waits for what the other rank, which is gone, does not do any more. Empty: nobody does.
  std::string missing() const;

  bool wants_read() const { return is_open_ && waiting_ > 0; }
  bool wants_write() const { return is_open_ && queued_ > 0; }
  bool is_open() const { return is_open_; }
  int in() const { return in_.fd(); }
  int out() const { return out_ ? out_.fd() : in_.fd(); }
  uint64_t moved() const { return moved_; }  // bytes in both directions
  // What the other rank said when it aborted; empty: nothing.
  const std::string& reason() const { return reason_; }
  void abort(const std::string& why);  // says so, as far as it can be said at once, and ends the connection

 private:
  struct Sending {
    bool is_used = false, is_done = false;
    TcpHeader header;
    const std::byte* data = nullptr;
  };
  struct Receiving {
    bool is_used = false, is_done = false;
    int tag = 0;
    uint64_t number = 0;
    std::span<std::byte> bytes;
  };
  struct Parked {  // A message that nobody has asked for yet.
    TcpHeader header;
    std::vector<std::byte> bytes;
  };
  static constexpr auto kSlots = static_cast<size_t>(Group::kInFlight);

  std::string take_header(bool moves_all, bool& waits);
  std::string complete();
  Receiving* find_receiving(int tag, uint64_t number);
  std::string check_size(const TcpHeader&, size_t expected) const;
  void close() { is_open_ = false; }

  const int own_, rank_;
  const bool checksums_;
  Socket in_, out_;
  bool is_open_ = true;
  uint64_t moved_ = 0;
  std::string reason_;

  std::array<Sending, kSlots> sends_;
  std::array<uint8_t, kSlots> queue_{};  // slots in the order of their start, a ring
  size_t first_ = 0, queued_ = 0;
  size_t sent_ = 0;  // bytes of the first one, with its header
  std::array<uint64_t, Group::kTags> started_{};

  std::array<Receiving, kSlots> receives_;
  int waiting_ = 0;  // receives that are not done
  std::array<uint64_t, Group::kTags> asked_{}, arrived_{};
  TcpHeader header_;  // the next one
  size_t header_got_ = 0;
  TcpHeader taken_;                 // of the message whose bytes go to target_
  bool is_taken_ = false;           // there is one
  Receiving* receiving_ = nullptr;  // whose; null: parked_, or the reason
  std::span<std::byte> target_;
  size_t got_ = 0;
  std::vector<Parked> parked_;
  std::vector<std::byte> spare_;  // of what is being parked, or of a reason
};

}  // namespace lathe::comm
