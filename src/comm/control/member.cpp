#include "comm/control/member.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "base/error.h"

namespace lathe::comm {
namespace {

constexpr uint64_t kHelloMagic = 0x31544345'4854414Cull;  // "LATHECT1"
constexpr size_t kLongestHello = 1024;
constexpr size_t kStrangers = 64;       // connections that have not said hello, at a time
constexpr double kStrangerSeconds = 5;  // until they have to

std::string_view head(std::string_view text, size_t bytes) { return text.substr(0, bytes); }

// The time it takes does not tell how much of it was right.
bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

struct Stranger {
  Socket socket;
  FrameReader reader;
  double until = 0;  // when it is sent away
};

struct Refusal {
  bool final = false;  // it would not help to come again
  std::string text;
};

void refuse(const Socket& socket, const Refusal& r) {
  FrameWriter out;
  out.begin(FrameType::refused);
  Put(out.payload()).number<uint8_t>(r.final).text(head(r.text, kLongestText));
  out.end();
  out.flush(socket.fd());
}

class Door {
 public:
  Door(const Membership& own, int first) : own_(own), first_(first), members_(static_cast<size_t>(own.size - first)) {}

  bool is_complete() const {
    return std::all_of(members_.begin(), members_.end(), [](const auto& m) { return m.has_value(); });
  }

  // One round: who arrived, who said something, who went away, who took too long.
  void serve(Listener& listener, double seconds) {
    wait(listener, seconds);
    while (Socket s = listener.accept()) {
      if (strangers_.size() >= kStrangers) strangers_.erase(strangers_.begin());
      Stranger stranger;
      stranger.socket = std::move(s);
      stranger.until = monotonic_seconds() + kStrangerSeconds;
      strangers_.push_back(std::move(stranger));
    }
    std::erase_if(strangers_, [&](Stranger& s) { return !keep(s); });
    for (auto& m : members_)
      if (m && (m->reader.read(m->socket.fd()) != FrameReader::State::open || !m->reader.empty()))
        throw CommError(fmt::format("rank {} (host {}): gone before all ranks had connected", m->rank, m->host));
  }

  std::string missing() const {
    std::string text;
    for (size_t i = 0; i < members_.size(); ++i)
      if (!members_[i]) text += fmt::format("{}{}", text.empty() ? "" : ", ", first_ + static_cast<int>(i));
    return text;
  }
  const std::string& last_refusal() const { return last_refusal_; }

  void tell(const std::string& problem) {
    for (auto& m : members_)
      if (m) refuse(m->socket, {true, problem});
  }

  std::vector<Member> take() {
    std::vector<Member> out;
    for (auto& m : members_) out.push_back(std::move(*m));
    return out;
  }

 private:
  void wait(const Listener& listener, double seconds) const {
    std::vector<pollfd> fds{{listener.fd(), POLLIN, 0}};
    for (const Stranger& s : strangers_) fds.push_back({s.socket.fd(), POLLIN, 0});
    for (const auto& m : members_)
      if (m) fds.push_back({m->socket.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(std::ceil(seconds * 1e3)));
  }

  // Whether it stays a stranger.
  bool keep(Stranger& s) {
    const FrameReader::State state = s.reader.read(s.socket.fd());
    Frame frame;
    if (s.reader.next(frame, kLongestHello)) {
      if (const auto refusal = let_in(s, frame)) {
        last_refusal_ = refusal->text;
        refuse(s.socket, *refusal);
      }
      return false;
    }
    return state == FrameReader::State::open && s.reader.state() == FrameReader::State::open &&
           monotonic_seconds() < s.until;
  }

  std::optional<Refusal> let_in(Stranger& s, const Frame& frame) {
    Take in(frame.payload);
    const auto magic = in.number<uint64_t>();
    const auto purpose = in.number<uint8_t>();
    const std::string_view token = in.text();
    const auto rank = in.number<int32_t>(), size = in.number<int32_t>();
    const auto pid = in.number<int64_t>();
    const std::string host(in.text());
    if (frame.type != FrameType::hello || !in.at_end() || magic != kHelloMagic)
      return Refusal{false, "this is not the protocol of Lathe's ranks"};
    if (purpose != static_cast<uint8_t>(own_.purpose) || !is_same_secret(token, own_.token))
      return Refusal{false, "this is another job"};
    if (size != own_.size)
      return Refusal{true, fmt::format("rank {} was started as one of {} ranks, rank {} as one of {}", rank, size,
                                       own_.rank, own_.size)};
    if (rank < first_ || rank >= own_.size) return Refusal{true, fmt::format("no rank {} is expected here", rank)};
    auto& place = members_[static_cast<size_t>(rank - first_)];
    if (place)
      return Refusal{true, fmt::format("rank {} is here already (host {}, process {})", rank, place->host, place->pid)};
    place = Member{rank, host, pid, std::move(s.socket), std::move(s.reader)};
    return std::nullopt;
  }

  const Membership& own_;
  const int first_;
  std::vector<std::optional<Member>> members_;
  std::vector<Stranger> strangers_;
  std::string last_refusal_;
};

}  // namespace

std::vector<Member> accept_members(Listener& listener, const Membership& own, int first) {
  Door door(own, first);
  const double end = monotonic_seconds() + own.timeout;
  try {
    while (!door.is_complete()) {
      const double left = end - monotonic_seconds();
      if (left <= 0)
        throw CommError(fmt::format("ranks of {} that did not connect to {} within {} s: {}{}", own.size,
                                    listener.address(), own.timeout, door.missing(),
                                    door.last_refusal().empty()
                                        ? ""
                                        : fmt::format("; others were refused, the last one: {}", door.last_refusal())));
      door.serve(listener, std::min(left, 0.5));
    }
  } catch (const CommError& e) {
    door.tell(e.what());
    throw;
  }
  return door.take();
}

Member greet(const std::string& address, int rank, const Membership& own) {
  LATHE_USER_CHECK(own.token.size() <= 256, "the token of the job has {} bytes, at most 256", own.token.size());
  const double end = monotonic_seconds() + own.timeout;
  std::string problem;
  for (double pause = 0.01;; pause = std::min(2 * pause, 0.25)) {
    const double left = end - monotonic_seconds();
    if (Socket s = connect_to(address, std::max(left, 0.01), problem)) {
      FrameWriter out;
      out.begin(FrameType::hello);
      Put(out.payload())
          .number(kHelloMagic)
          .number(static_cast<uint8_t>(own.purpose))
          .text(own.token)
          .number<int32_t>(own.rank)
          .number<int32_t>(own.size)
          .number<int64_t>(getpid())
          .text(head(host_name(), 256));
      out.end();
      if (out.flush(s.fd()) && out.empty()) return {rank, "", 0, std::move(s), {}};
      problem = "the connection was closed";
    }
    if (monotonic_seconds() + pause >= end)
      throw CommError(fmt::format("rank {}: cannot reach rank {} at {} within {} s: {}", own.rank, rank, address,
                                  own.timeout, problem));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

bool await_welcome(Member& to, double seconds, std::string& payload, std::string& problem) {
  const double end = monotonic_seconds() + seconds;
  for (;;) {
    const FrameReader::State state = to.reader.read_one(to.socket.fd());
    Frame frame;
    if (to.reader.next(frame)) {
      if (frame.type == FrameType::welcome) {
        payload = frame.payload;
        return true;
      }
      Take in(frame.payload);
      const bool final = in.number<uint8_t>();
      problem = in.text();
      if (frame.type != FrameType::refused || !in.at_end())
        problem = "it answers something else";
      else if (final)
        throw CommError(problem);
      return false;
    }
    if (state != FrameReader::State::open || to.reader.state() != FrameReader::State::open) {
      problem = to.reader.problem();
      return false;
    }
    const double left = end - monotonic_seconds();
    if (left <= 0) {
      problem = "no answer";
      return false;
    }
    wait_readable(to.socket.fd(), left);
  }
}

Member join(const std::string& address, int rank, const Membership& own, std::string& payload) {
  const double end = monotonic_seconds() + own.timeout;
  for (Membership again = own;; again.timeout = std::max(0.1, end - monotonic_seconds())) {
    Member member = greet(address, rank, again);
    std::string problem;
    // The other end waits for all ranks as long as it may, from its own start on.
    if (await_welcome(member, own.timeout + 1, payload, problem)) return member;
    if (monotonic_seconds() >= end)
      throw CommError(fmt::format("rank {}: rank {} at {}: {}", own.rank, rank, address, problem));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace lathe::comm
