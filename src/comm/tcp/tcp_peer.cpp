#include "comm/tcp/tcp_peer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "comm/checksum.h"

namespace lathe::comm {
namespace {

constexpr size_t kLargestParked = size_t{1} << 30;
constexpr size_t kLongestReason = 4096;
constexpr int kTurns = 64;  // reads or writes of one call: others have a turn, too

bool is_would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpPeer::TcpPeer(int own, int rank, bool checksums, Socket in, Socket out)
    : own_(own), rank_(rank), checksums_(checksums), in_(std::move(in)), out_(std::move(out)) {}

int TcpPeer::start_send(int tag, std::span<const std::byte> bytes) {
  size_t slot = 0;
  while (slot < kSlots && sends_[slot].is_used) ++slot;
  LATHE_CHECK(slot < kSlots, "more than {} messages from rank {} to rank {}", kSlots, own_, rank_);
  Sending& s = sends_[slot];
  s.is_used = true;
  s.is_done = false;
  s.data = bytes.data();
  s.header = {.tag = tag,
              .number = started_[static_cast<size_t>(tag)]++,
              .bytes = bytes.size(),
              .checksum = checksums_ ? checksum(bytes) : 0};
  queue_[(first_ + queued_++) % kSlots] = static_cast<uint8_t>(slot);
  return static_cast<int>(slot);
}

int TcpPeer::start_receive(int tag, std::span<std::byte> bytes) {
  size_t slot = 0;
  while (slot < kSlots && receives_[slot].is_used) ++slot;
  LATHE_CHECK(slot < kSlots, "more than {} messages from rank {} to rank {}", kSlots, rank_, own_);
  receives_[slot] = {true, false, tag, asked_[static_cast<size_t>(tag)]++, bytes};
  ++waiting_;
  return static_cast<int>(slot);
}

bool TcpPeer::is_done(int slot, bool sends) const {
  const auto i = static_cast<size_t>(slot);
  return sends ? sends_[i].is_done : receives_[i].is_done;
}

void TcpPeer::finish(int slot, bool sends) {
  const auto i = static_cast<size_t>(slot);
  if (sends)
    sends_[i].is_used = false;
  else
    receives_[i].is_used = false;
}

std::string TcpPeer::describe(int slot, bool sends) const {
  const auto i = static_cast<size_t>(slot);
  return fmt::format("{} {} bytes {} rank {} (tag {})", sends ? "send" : "receive",
                     sends ? sends_[i].header.bytes : receives_[i].bytes.size(), sends ? "to" : "from", rank_,
                     sends ? sends_[i].header.tag : receives_[i].tag);
}

std::string TcpPeer::missing() const {
  if (is_open_) return "";
  for (size_t i = 0; i < kSlots; ++i) {
    if (sends_[i].is_used && !sends_[i].is_done)
      return fmt::format("rank {} is gone; rank {} was about to {}", rank_, own_, describe(static_cast<int>(i), true));
    if (receives_[i].is_used && !receives_[i].is_done)
      return fmt::format("rank {} is gone; rank {} was about to {}", rank_, own_, describe(static_cast<int>(i), false));
  }
  return "";
}

std::string TcpPeer::write() {
  for (int turn = 0; turn < kTurns && queued_ > 0 && is_open_; ++turn) {
    // The rest of the first message and those behind it, in one call.
    iovec parts[8];
    size_t count = 0, skip = sent_;
    for (size_t i = 0; i < queued_ && count + 2 <= std::size(parts); ++i) {
      Sending& s = sends_[queue_[(first_ + i) % kSlots]];
      const size_t in_header = std::min(skip, sizeof s.header), in_data = skip - in_header;
      if (in_header < sizeof s.header)
        parts[count++] = {reinterpret_cast<char*>(&s.header) + in_header, sizeof s.header - in_header};
      if (in_data < s.header.bytes)
        parts[count++] = {const_cast<std::byte*>(s.data) + in_data, s.header.bytes - in_data};
      skip = 0;
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(out(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (is_would_block(errno)) return "";
      // It may have said why before it went.
      const std::string problem = read(true);
      close();
      return !problem.empty() ? problem : missing();
    }
    moved_ += static_cast<uint64_t>(sent);
    sent_ += static_cast<size_t>(sent);
    while (queued_ > 0) {
      Sending& s = sends_[queue_[first_]];
      const size_t whole = sizeof s.header + s.header.bytes;
      if (sent_ < whole) break;
      sent_ -= whole;
      s.is_done = true;
      first_ = (first_ + 1) % kSlots;
      --queued_;
    }
  }
  return "";
}

std::string TcpPeer::read(bool moves_all) {
  for (int turn = 0; (turn < kTurns || moves_all) && is_open_; ++turn) {
    // The rest of the message and, in the same call, the header behind it.
    iovec parts[2];
    size_t count = 0, rest = 0;
    if (is_taken_) {
      rest = target_.size() - got_;
      if (rest > 0) parts[count++] = {target_.data() + got_, rest};
      parts[count++] = {&header_, sizeof header_};
    } else {
      parts[count++] = {reinterpret_cast<char*>(&header_) + header_got_, sizeof header_ - header_got_};
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t got = 0;
    if (is_taken_ && rest == 0) {
      // An empty message is here with its header.
    } else if (header_got_ < sizeof header_ || is_taken_) {
      got = recvmsg(in(), &message, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && is_would_block(errno)) return "";
      if (got <= 0) {
        close();
        return missing();
      }
      moved_ += static_cast<uint64_t>(got);
    }
    auto bytes = static_cast<size_t>(got);
    if (is_taken_) {
      const size_t own = std::min(bytes, rest);
      got_ += own;
      bytes -= own;
      if (got_ < target_.size()) continue;
      const std::string problem = complete();
      if (!problem.empty() || !reason_.empty()) return problem;
      header_got_ = bytes;
    } else {
      header_got_ += bytes;
    }
    if (header_got_ < sizeof header_) continue;
    bool waits = false;
    const std::string problem = take_header(moves_all, waits);
    if (!problem.empty()) return problem;
    if (waits) return "";
  }
  return "";
}

TcpPeer::Receiving* TcpPeer::find_receiving(int tag, uint64_t number) {
  for (Receiving& r : receives_)
    if (r.is_used && !r.is_done && r.tag == tag && r.number == number) return &r;
  return nullptr;
}

std::string TcpPeer::check_size(const TcpHeader& h, size_t expected) const {
  if (h.bytes == expected) return "";
  return fmt::format("rank {} sent {} bytes, rank {} expected {} (tag {}); the ranks do not run the same program",
                     rank_, h.bytes, own_, expected, h.tag);
}

// Where the bytes behind the header go. waits: nobody has asked for them yet.
std::string TcpPeer::take_header(bool moves_all, bool& waits) {
  const TcpHeader& h = header_;
  if (h.magic != TcpHeader::kMagic || h.tag < TcpHeader::kAbort || h.tag >= Group::kTags)
    return fmt::format("rank {} sent what is no message to rank {}", rank_, own_);
  receiving_ = nullptr;
  if (h.tag == TcpHeader::kAbort) {
    if (h.bytes > kLongestReason) return fmt::format("rank {} aborts and does not say why", rank_);
    spare_.resize(h.bytes);
    target_ = spare_;
  } else {
    const uint64_t expected = arrived_[static_cast<size_t>(h.tag)];
    if (h.number != expected)
      return fmt::format("message {} of rank {} to rank {} (tag {}) was lost: message {} came in its place", expected,
                         rank_, own_, h.tag, h.number);
    receiving_ = find_receiving(h.tag, h.number);
    if (receiving_) {
      if (std::string problem = check_size(h, receiving_->bytes.size()); !problem.empty()) return problem;
      target_ = receiving_->bytes;
    } else if (moves_all || waiting_ > 0) {
      if (h.bytes > kLargestParked)
        return fmt::format("rank {} sent {} bytes (tag {}) that rank {} does not ask for", rank_, h.bytes, h.tag, own_);
      spare_.resize(h.bytes);
      target_ = spare_;
    } else {
      waits = true;
      return "";
    }
    ++arrived_[static_cast<size_t>(h.tag)];
  }
  is_taken_ = true;
  got_ = 0;
  taken_ = header_;  // the next header is read over it
  return "";
}

std::string TcpPeer::complete() {
  is_taken_ = false;
  header_got_ = 0;
  const TcpHeader& h = taken_;
  if (h.tag == TcpHeader::kAbort) {
    reason_.assign(reinterpret_cast<const char*>(spare_.data()), spare_.size());
    if (reason_.empty()) reason_ = fmt::format("rank {} aborted", rank_);
    close();
    return reason_;
  }
  if (checksums_ && checksum(target_) != h.checksum)
    return fmt::format("{} bytes from rank {} to rank {} (tag {}) arrived with another checksum", h.bytes, rank_, own_,
                       h.tag);
  if (receiving_) {
    receiving_->is_done = true;
    --waiting_;
    return "";
  }
  // It may have been asked for while it was on its way.
  parked_.push_back({h, std::move(spare_)});
  spare_ = {};
  return deliver();
}

// Messages that are here already to those who have asked for them now.
std::string TcpPeer::deliver() {
  for (size_t i = 0; i < parked_.size();) {
    const TcpHeader& h = parked_[i].header;
    Receiving* const r = find_receiving(h.tag, h.number);
    if (!r) {
      ++i;
      continue;
    }
    if (std::string problem = check_size(h, r->bytes.size()); !problem.empty()) return problem;
    std::copy(parked_[i].bytes.begin(), parked_[i].bytes.end(), r->bytes.begin());
    r->is_done = true;
    --waiting_;
    parked_.erase(parked_.begin() + static_cast<ptrdiff_t>(i));
  }
  return "";
}

void TcpPeer::abort(const std::string& why) {
  if (!is_open_) return;
  // In the middle of a message there is no place for words: who waits for the rest sees the end of the connection.
  if (sent_ == 0) {
    const std::string_view text = std::string_view(why).substr(0, kLongestReason);
    const TcpHeader h{.tag = TcpHeader::kAbort, .bytes = text.size()};
    iovec parts[2] = {{const_cast<TcpHeader*>(&h), sizeof h}, {const_cast<char*>(text.data()), text.size()}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    [[maybe_unused]] const ssize_t sent = sendmsg(out(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  shutdown(out(), SHUT_WR);
  close();
}

}  // namespace lathe::comm
