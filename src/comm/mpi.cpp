#include "comm/mpi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/mpi/plugin.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lathe::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A wait polls for about the time of a chunk, then sleeps between polls: threads that compute may want the core. It
// does not yield instead: a thread that yields comes behind all others of the core, one that wakes comes first. On
// cores that all had work of others an all-reduce of 1 MiB took 28 to 40 ms with yields and 2 to 11 ms with sleeps
// (medians).
constexpr std::chrono::seconds kStopped(1);  // between two looks at the clock
constexpr std::chrono::microseconds kSpinning{100}, kSleep{10};
constexpr int kPollsPerClock = 16;
constexpr uint32_t kPollsPerNotice = 64;          // polls between two looks for an abort of another rank
constexpr std::chrono::milliseconds kGrace{500};  // for messages that are under way when a rank fails
constexpr double kEndOfFailed = 1;                // seconds for all ranks to come to their end, then

// The tag of a message at MPI: its own tag, its number and a hash of its size, so that it is received by no other
// receive than its own, and by none of another size: Open MPI 4.1 writes a long message past the end of a short
// receive, where the sender's memory can be read directly. The hash has as many values as the library's tags leave, 63
// at least.
constexpr uint32_t kNumbers = 64;
static_assert(Group::kInFlight < kNumbers);

class Tags {
 public:
  explicit Tags(int last) : hashes_((static_cast<uint64_t>(std::min(last, (1 << 24) - 1)) + 1) / kStep - 1) {}

  int of(int tag, uint32_t number, size_t bytes) const {
    return static_cast<int>(kStep * ((bytes * 0x9E3779B97F4A7C15u >> 32) % hashes_)) + first(tag, number);
  }
  int notice() const { return static_cast<int>(kStep * hashes_); }  // of the messages of an abort
  // Both are of the same message, by its tag and number.
  static bool same_message(int a, int b) { return a % kStep == b % kStep; }

 private:
  static constexpr int kStep = Group::kTags * static_cast<int>(kNumbers);
  static int first(int tag, uint32_t number) { return tag + Group::kTags * static_cast<int>(number % kNumbers); }
  uint64_t hashes_;
};

struct Slot {  // One message that is under way.
  LatheMpiHandle request{};
  size_t bytes = 0;
  int tag = 0;
  int mpi_tag = 0;
};

struct Peer {                                    // To or from one rank.
  uint32_t busy = 0;                             // a bit for each slot
  std::array<uint32_t, Group::kTags> numbers{};  // messages so far, by tag
  std::array<Slot, Group::kInFlight> slots;
};
static_assert(Group::kInFlight <= 32);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

class MpiGroup final : public Group {
 public:
  MpiGroup(const LatheMpi& api, const MpiOptions& options)
      : api_(api), timeout_(options.timeout), notify_(options.notify) {
    int last_tag = 0;
    check_mpi(api_, api_.join(&group_, &rank_, &size_, &last_tag), "MPI_Comm_dup");
    tags_ = Tags(last_tag);
    sends_.resize(static_cast<size_t>(size_));
    receives_.resize(static_cast<size_t>(size_));
    notices_.resize(static_cast<size_t>(size_));
  }

  ~MpiGroup() override {
    if (!aborted_) {
      api_.leave(&group_);
      return;
    }
    withdraw();
    finish_notices();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Message send(int to, int tag, std::span<const std::byte> bytes) override {
    const auto [slot, message] = start(sends_, to, tag, bytes.size());
    check(api_.send(group_, bytes.data(), bytes.size(), to, slot.mpi_tag, &slot.request), "MPI_Isend", "to", to);
    return message;
  }

  Message receive(int from, int tag, std::span<std::byte> bytes) override {
    const auto [slot, message] = start(receives_, from, tag, bytes.size());
    check(api_.receive(group_, bytes.data(), bytes.size(), from, slot.mpi_tag, &slot.request), "MPI_Irecv", "from",
          from);
    return {message.at + kInFlight, from};
  }

  bool test(Message& m) override {
    if (m.at < 0) return true;
    check_aborted();
    return poll(m);
  }

  void wait(Message& m) override {
    if (m.at < 0) return;
    Clock::time_point begin{}, now{}, last{};
    for (int64_t i = 0;; ++i) {
      check_aborted();
      if (poll(m)) return;
      if (i % kPollsPerClock != 0 && now - begin < kSpinning) {
        relax();
        continue;
      }
      now = Clock::now();
      if (i == 0) begin = last = now;
      // Time in which this process was stopped does not count: all may have been (a suspended job).
      if (now - last > kStopped) begin += now - last;
      last = now;
      if (now - begin > timeout_) fail_late(m);
      if (now - begin >= kSpinning) std::this_thread::sleep_for(kSleep);
    }
  }

  void abort(const std::string& why) override {
    const std::lock_guard lock(notice_mutex_);
    if (!set_aborted(why) || !notify_) return;
    std::memcpy(notice_.data(), why.data(), std::min(why.size(), notice_.size() - 1));
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        // A rank that cannot be reached is told by nobody; its own timeout ends it.
        (void)api_.send(group_, notice_.data(), notice_.size(), peer, tags_.notice(),
                        &notices_[static_cast<size_t>(peer)]);
    notices_sent_ = true;
  }

 private:
  using Peers = std::vector<Peer>;
  using Notice = std::array<char, 512>;
  struct Started {
    Slot& slot;
    Message message;
  };

  Started start(Peers& peers, int peer, int tag, size_t bytes) {
    check_aborted();
    LATHE_CHECK(peer >= 0 && peer < size_, "rank {} of {}", peer, size_);
    LATHE_CHECK(tag >= 0 && tag < kTags, "tag {}", tag);
    Peer& c = peers[static_cast<size_t>(peer)];
    const int slot = std::countr_one(c.busy);
    LATHE_CHECK(slot < kInFlight, "more than {} messages between rank {} and rank {}", kInFlight, rank_, peer);
    const uint32_t number = c.numbers[static_cast<size_t>(tag)]++;
    Slot& s = c.slots[static_cast<size_t>(slot)];
    s = {.request = {}, .bytes = bytes, .tag = tag, .mpi_tag = tags_.of(tag, number, bytes)};
    c.busy |= 1u << slot;
    return {s, {slot, peer}};
  }

  static bool sends(const Message& m) { return m.at < kInFlight; }
  Peer& peer_of(const Message& m) { return (sends(m) ? sends_ : receives_)[static_cast<size_t>(m.peer)]; }
  Slot& slot(const Message& m) { return peer_of(m).slots[static_cast<size_t>(m.at % kInFlight)]; }

  bool poll(Message& m) {
    if (++polls_ % kPollsPerNotice == 0) look_around(m);
    Slot& s = slot(m);
    int done = 0;
    size_t count = 0;
    const int code = api_.test(&s.request, &done, &count);
    if (code == 0 && !done) return false;
    peer_of(m).busy &= ~(1u << (m.at % kInFlight));
    if (code != 0 && !(!sends(m) && api_.is_truncated(code))) check(code, "MPI_Test", sends(m) ? "to" : "from", m.peer);
    // Another size with the same hash. Some libraries say how much of a message fit that was too long.
    if (code != 0) fail_size(m, std::max(count, s.bytes + 1));
    if (!sends(m) && count != s.bytes) fail_size(m, count);
    m.at = -1;
    return true;
  }

  void check(int code, const char* call, const char* direction, int peer) {
    if (code == 0) [[likely]]
      return;
    char text[512] = "";
    api_.error_text(code, text, sizeof text);
    fail(fmt::format("rank {}: {} {} rank {} failed: {} ({})", rank_, call, direction, peer, text, code));
  }

  void check_aborted() {
    if (aborted_.load(std::memory_order_acquire)) [[unlikely]]
      fail(reason());
  }

  [[noreturn]] void fail_size(const Message& m, size_t sent) {
    const Slot& s = slot(m);
    fail(fmt::format("rank {} sent {} bytes, rank {} expected {} (tag {}); the ranks do not run the same program",
                     m.peer, sent, rank_, s.bytes, s.tag));
  }

  [[noreturn]] void fail_late(const Message& m) {
    const Slot& s = slot(m);
    fail(fmt::format(
        "rank {} waited {} s to {} {} bytes {} rank {} (tag {}); is that rank alive, and does it take part?", rank_,
        timeout_.count(), sends(m) ? "send" : "receive", s.bytes, sends(m) ? "to" : "from", m.peer, s.tag));
  }

  [[noreturn]] void fail(const std::string& why) {
    abort(why);
    withdraw();
    throw CommError(reason());
  }

  bool set_aborted(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return false;
    why_ = why;
    aborted_ = true;
    limit_mpi_end(kEndOfFailed);
    return true;
  }

  std::string reason() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

  // For the notice of a rank that aborted, and for a message of another size in the place of the one that is waited
  // for. One behind others that nobody asked for yet is not seen; then the timeout ends the wait.
  void look_around(const Message& m) {
    int from = -1, tag = tags_.notice(), found = 0;
    size_t count = 0;
    if (api_.probe(group_, &from, &tag, &found, &count) == 0 && found) return read_notice(from);
    if (sends(m)) return;
    from = m.peer, tag = -1;
    if (api_.probe(group_, &from, &tag, &found, &count) != 0 || !found || tag == tags_.notice()) return;
    const Slot& s = slot(m);
    if (tag != s.mpi_tag && Tags::same_message(tag, s.mpi_tag)) fail_size(m, count);
  }

  void read_notice(int from) {
    Notice text{};
    LatheMpiHandle request{};
    size_t count = 0;
    int done = 0;
    if (api_.receive(group_, text.data(), text.size(), from, tags_.notice(), &request) != 0) return;
    // It has arrived: the loop is short.
    while (!done)
      if (api_.test(&request, &done, &count) != 0) break;
    text.back() = 0;
    set_aborted(text.data());
    check_aborted();
  }

  // The bytes of messages should not be touched after an error: their owner is about to leave. Receives are cancelled;
  // what is half done gets a moment.
  void withdraw() {
    if (std::exchange(withdrawn_, true)) return;
    const auto end = Clock::now() + kGrace;
    for (Peer& c : receives_) each(c, [&](Slot& s) { return (void)api_.cancel(&s.request), false; });
    bool any = true;
    while (any) {
      any = false;
      for (Peers* peers : {&receives_, &sends_})
        for (Peer& c : *peers) {
          each(c, [&](Slot& s) { return is_gone(s.request); });
          any = any || c.busy;
        }
      if (any && Clock::now() > end) return limit_mpi_end(0);
      if (any) std::this_thread::yield();
    }
  }

  template <class F>
  static void each(Peer& c, F&& f) {
    for (uint32_t rest = c.busy; rest; rest &= rest - 1)
      if (f(c.slots[static_cast<size_t>(std::countr_zero(rest))])) c.busy &= ~(rest & -rest);
  }

  bool is_gone(LatheMpiHandle& request) {
    int done = 0;
    size_t count = 0;
    return api_.test(&request, &done, &count) != 0 || done;
  }

  // They may need the process for a moment.
  void finish_notices() {
    const std::lock_guard lock(notice_mutex_);
    if (!notices_sent_) return;
    const auto end = Clock::now() + kGrace;
    for (int peer = 0; peer < size_; ++peer)
      while (peer != rank_ && !is_gone(notices_[static_cast<size_t>(peer)]))
        if (Clock::now() > end) return limit_mpi_end(0);
  }

  const LatheMpi& api_;
  const std::chrono::duration<double> timeout_;
  const bool notify_;
  LatheMpiHandle group_{};
  int rank_ = 0, size_ = 0;
  Tags tags_{0x7fff};
  Peers sends_, receives_;  // by rank
  uint32_t polls_ = 0;
  bool withdrawn_ = false;

  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // of why_
  std::string why_;

  std::mutex notice_mutex_;
  Notice notice_{};
  std::vector<LatheMpiHandle> notices_;  // by rank
  bool notices_sent_ = false;
};

}  // namespace

MpiOptions mpi_options() {
  MpiOptions out;
  if (const char* setting = std::getenv("LATHE_MPI")) out.search.setting = setting;
  out.search.launch = find_launch();
  return out;
}

std::unique_ptr<Group> mpi_group(const MpiOptions& options) {
  const LatheMpi& api = mpi_library(options.search, options.timeout);
  auto group = std::make_unique<MpiGroup>(api, options);
  const Launch& launch = options.search.launch;
  LATHE_USER_CHECK(launch.launcher.empty() || (group->size() == launch.size && group->rank() == launch.rank),
                   "{} started this process as rank {} of {}, but MPI ({}) says rank {} of {}; use the mpirun of that "
                   "library, `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH), or name another library in "
                   "LATHE_MPI",
                   launch.launcher, launch.rank, launch.size, mpi_version(), group->rank(), group->size());
  return group;
}

}  // namespace lathe::comm
