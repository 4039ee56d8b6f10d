#include "comm/tcp/tcp.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/control/member.h"
#include "comm/tcp/tcp_peer.h"

namespace lathe::comm {
namespace {

constexpr int kMostTcpRanks = 512;
constexpr double kLongestPoll = 1;  // seconds

class TcpGroup final : public Group {
 public:
  TcpGroup(int rank, const TcpOptions& options, std::vector<std::unique_ptr<TcpPeer>> peers)
      : rank_(rank), options_(options), peers_(std::move(peers)), fds_(2 * peers_.size() + 1) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  Message send(int to, int tag, std::span<const std::byte> bytes) override {
    const std::unique_lock lock(mutex_);
    TcpPeer& peer = check_peer(to, tag);
    const Message m{peer.start_send(tag, bytes), to};
    note(peer.is_open() ? peer.write() : peer.missing());
    return m;
  }

  Message receive(int from, int tag, std::span<std::byte> bytes) override {
    const std::unique_lock lock(mutex_);
    TcpPeer& peer = check_peer(from, tag);
    const Message m{peer.start_receive(tag, bytes) + kInFlight, from};
    note(peer.deliver());
    if (!peer.is_open()) note(peer.missing());
    return m;
  }

  bool test(Message& m) override {
    if (m.at < 0) return true;
    const std::unique_lock lock(mutex_);
    if (is_done(m)) return true;
    check();
    advance(*peers_[static_cast<size_t>(m.peer)]);
    return is_done(m);
  }

  void wait(Message& m) override {
    if (m.at < 0) return;
    std::unique_lock lock(mutex_);
    if (is_done(m)) return;
    check();
    TcpPeer& peer = *peers_[static_cast<size_t>(m.peer)];
    advance(peer);
    double end = monotonic_seconds() + options_.timeout;
    uint64_t moved = peer.moved();
    while (!is_done(m)) {
      const double left = end - monotonic_seconds();
      if (left <= 0)
        note(fmt::format("rank {} waited {} s to {}; is that rank alive, and does it take part?", rank_,
                         options_.timeout, peer.describe(slot(m), sends(m))));
      const size_t count = list_events();
      const double before = monotonic_seconds();
      lock.unlock();
      poll(fds_.data(), count, static_cast<int>(std::ceil(std::min(left, kLongestPoll) * 1e3)));
      lock.lock();
      check();
      // Time in which this process was stopped does not count: all may have been (a suspended job).
      if (const double took = monotonic_seconds() - before; took > kLongestPoll + 1) end += took;
      advance_ready(count);
      if (peer.moved() != moved) {
        moved = peer.moved();
        end = monotonic_seconds() + options_.timeout;
      }
    }
  }

  void abort(const std::string& why) override {
    const std::unique_lock lock(mutex_);
    abort_all(why);
  }

 private:
  static bool sends(const Message& m) { return m.at < kInFlight; }
  static int slot(const Message& m) { return sends(m) ? m.at : m.at - kInFlight; }

  bool is_done(Message& m) {
    TcpPeer& peer = *peers_[static_cast<size_t>(m.peer)];
    if (!peer.is_done(slot(m), sends(m))) return false;
    peer.finish(slot(m), sends(m));
    m.at = -1;
    return true;
  }

  void check() const {
    if (is_aborted_) throw CommError(why_);
  }

  TcpPeer& check_peer(int peer, int tag) {
    check();
    LATHE_CHECK(peer >= 0 && peer < size(), "rank {} of {}", peer, size());
    LATHE_CHECK(tag >= 0 && tag < kTags, "tag {}", tag);
    return *peers_[static_cast<size_t>(peer)];
  }

  // A problem ends all ranks.
  void note(const std::string& problem) {
    if (problem.empty()) return;
    abort_all(problem);
    check();
  }

  void abort_all(const std::string& why) {
    if (is_aborted_) return;
    is_aborted_ = true;
    why_ = why;
    for (auto& peer : peers_) peer->abort(why);
    waker_.wake();
  }

  void advance(TcpPeer& peer) {
    if (peer.wants_write()) note(peer.write());
    if (peer.wants_read()) note(peer.read());
  }

  // What poll() is asked for: room and bytes where messages wait for them, and that a rank is gone, anywhere. The
  // second end is that of the connection to itself.
  size_t list_events() {
    size_t count = 0;
    fds_[count++] = {waker_.fd(), POLLIN, 0};
    for (const auto& peer : peers_) {
      if (!peer->is_open()) continue;
      const int in_events = POLLRDHUP | (peer->wants_read() ? POLLIN : 0);
      const int out_events = peer->wants_write() ? POLLOUT : 0;
      if (peer->in() == peer->out()) {
        fds_[count++] = {peer->in(), static_cast<short>(in_events | out_events), 0};
      } else {
        fds_[count++] = {peer->in(), static_cast<short>(in_events), 0};
        if (out_events) fds_[count++] = {peer->out(), static_cast<short>(out_events), 0};
      }
    }
    return count;
  }

  void advance_ready(size_t count) {
    size_t at = 1;
    for (const auto& peer : peers_) {
      if (!peer->is_open()) continue;  // as in list_events(): nothing changed since then
      int events = 0;
      while (at < count && (fds_[at].fd == peer->in() || fds_[at].fd == peer->out())) events |= fds_[at++].revents;
      if (events & (POLLRDHUP | POLLHUP | POLLERR)) {
        note(peer->read(true));
        continue;
      }
      if (events & POLLIN) note(peer->read());
      if (events & POLLOUT) note(peer->write());
    }
  }

  const int rank_;
  const TcpOptions options_;
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // by rank
  std::vector<pollfd> fds_;
  std::mutex mutex_;  // abort() comes from any thread
  Waker waker_;       // is woken once, when the group is aborted
  bool is_aborted_ = false;
  std::string why_;
};

// Many ranks need more descriptors than a process may have by default.
void allow_descriptors(int count) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto needed = static_cast<rlim_t>(count) + 256;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Lower ranks are connected to, higher ones accepted. Everybody listens before anybody connects, so no order can
// block: a connection stands in the queue of the listener until it is accepted.
std::unique_ptr<Group> connect_group(Listener& listener, const std::vector<std::string>& addresses,
                                     const Membership& own, const TcpOptions& options) {
  std::vector<std::unique_ptr<TcpPeer>> peers(addresses.size());
  std::vector<Member> lower;
  for (int r = 0; r < own.rank; ++r) lower.push_back(greet(addresses[static_cast<size_t>(r)], r, own));
  const auto place = [&](Member& m) {
    peers[static_cast<size_t>(m.rank)] =
        std::make_unique<TcpPeer>(own.rank, m.rank, options.checksums, std::move(m.socket));
  };
  if (own.rank + 1 < own.size)
    for (Member& m : accept_members(listener, own, own.rank + 1)) {
      FrameWriter out;
      out.add(FrameType::welcome, "");
      if (!out.flush(m.socket.fd())) throw CommError(fmt::format("rank {} is gone", m.rank));
      place(m);
    }
  for (Member& m : lower) {
    std::string payload, problem;
    if (!await_welcome(m, own.timeout + 1, payload, problem))
      throw CommError(
          fmt::format("rank {}: rank {} at {}: {}", own.rank, m.rank, addresses[static_cast<size_t>(m.rank)], problem));
    place(m);
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
    throw CommError(fmt::format("socketpair: {}", std::strerror(errno)));
  peers[static_cast<size_t>(own.rank)] =
      std::make_unique<TcpPeer>(own.rank, own.rank, options.checksums, Socket(pair[0]), Socket(pair[1]));
  return std::make_unique<TcpGroup>(own.rank, options, std::move(peers));
}

std::string put_list(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& t : texts) Put(out).text(t);
  return out;
}

std::vector<std::string> take_list(std::string_view bytes, int size) {
  Take in(bytes);
  std::vector<std::string> out;
  for (int i = 0; i < size; ++i) out.emplace_back(in.text());
  if (!in.at_end()) throw CommError("rank 0 sent a list of addresses that is none");
  return out;
}

// The hosts of all ranks. One that reached rank 0 over loopback is on its machine: others reach it as they reach rank
// 0.
std::vector<std::string> exchange_hosts(Control& control) {
  std::vector<std::string> hosts = control.gather(control.local_host());
  if (control.rank() == 0)
    for (std::string& host : hosts)
      if (is_loopback(host)) host = hosts[0];
  return take_list(control.broadcast(put_list(hosts)), control.size());
}

}  // namespace

std::unique_ptr<Group> tcp_group(Control& control, const TcpOptions& options) {
  LATHE_USER_CHECK(control.size() <= kMostTcpRanks, "{} ranks over TCP, at most {}; start them with MPI",
                   control.size(), kMostTcpRanks);
  allow_descriptors(control.size());
  std::unique_ptr<Group> group;
  const Membership own{Purpose::messages, control.rank(), control.size(), control.token(), options.start_timeout};
  if (control.size() == 1) {
    Listener none("127.0.0.1:0");
    group = connect_group(none, {""}, own, options);
  } else {
    const std::vector<std::string> hosts = exchange_hosts(control);
    Listener listener(join_address(hosts[static_cast<size_t>(control.rank())], 0));
    const std::vector<std::string> all = control.gather(listener.address());
    group = connect_group(listener, take_list(control.broadcast(put_list(all)), control.size()), own, options);
  }
  group->set_position(&control.position());
  return group;
}

std::vector<std::unique_ptr<Group>> tcp_groups(int ranks, const TcpOptions& options) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (int r = 0; r < ranks; ++r) {
    listeners.emplace_back("127.0.0.1:0");
    addresses.push_back(listeners.back().address());
  }
  std::vector<std::unique_ptr<Group>> groups(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const Membership own{Purpose::messages, r, ranks, "test", options.start_timeout};
      const auto i = static_cast<size_t>(r);
      groups[i] = connect_group(listeners[i], addresses, own, options);
    });
  for (std::thread& t : threads) t.join();
  return groups;
}

}  // namespace lathe::comm
