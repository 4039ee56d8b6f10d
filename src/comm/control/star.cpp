#include "comm/control/star.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lathe::comm {

Star::Star(std::vector<Member> members, double tick) : tick_(tick) {
  for (Member& m : members) {
    Link link;
    link.member = std::move(m);
    links_.push_back(std::move(link));
  }
}

void Star::start(Handler& handler) {
  handler_ = &handler;
  thread_ = std::thread([this] { run(); });
}

void Star::stop(double linger) {
  if (!thread_.joinable()) return;
  linger_until_.store(monotonic_seconds() + linger);
  ending_.store(true);
  waker_.wake();
  thread_.join();
}

void Star::send(int rank, FrameType type, std::string_view payload, bool skipped) {
  for (Link& link : links_)
    if (link.member.rank == rank) send_on(link, type, payload, skipped);
}

void Star::send_all(FrameType type, std::string_view payload, bool skipped) {
  for (Link& link : links_) send_on(link, type, payload, skipped);
}

void Star::send_on(Link& link, FrameType type, std::string_view payload, bool skipped) {
  bool left = false;
  {
    const std::lock_guard lock(mutex_);
    if (!link.is_open || (skipped && !link.writer.empty())) return;
    link.writer.add(type, payload);
    link.writer.flush(link.member.socket.fd());  // that it is closed is seen by who reads
    left = !link.writer.empty();
  }
  if (left) waker_.wake();
}

void Star::break_links() {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_)
    if (link.is_open) shutdown(link.member.socket.fd(), SHUT_RDWR);
}

// What has arrived, then perhaps that nothing comes any more.
void Star::serve(Link& link) {
  FrameReader& reader = link.member.reader;
  FrameReader::State state = reader.read(link.member.socket.fd());
  for (Frame frame; reader.next(frame);) handler_->on_frame(link.member.rank, frame);
  if (state == FrameReader::State::open) state = reader.state();
  if (state == FrameReader::State::open) return;
  {
    const std::lock_guard lock(mutex_);
    link.is_open = false;
    link.member.socket.close();
  }
  handler_->on_closed(link.member.rank, state == FrameReader::State::bad);
}

bool Star::is_finished() {
  const std::lock_guard lock(mutex_);
  if (monotonic_seconds() >= linger_until_.load() + 1) return true;  // somebody does not read
  return std::all_of(links_.begin(), links_.end(), [&](const Link& link) {
    return !link.is_open || (link.writer.empty() && monotonic_seconds() >= linger_until_.load());
  });
}

void Star::run() {
  std::vector<pollfd> fds(links_.size() + 1);
  double next = monotonic_seconds();
  while (!ending_.load() || !is_finished()) {
    fds[0] = {waker_.fd(), POLLIN, 0};
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < links_.size(); ++i) {
        const short events = links_[i].writer.empty() ? POLLIN : POLLIN | POLLOUT;
        fds[i + 1] = {links_[i].is_open ? links_[i].member.socket.fd() : -1, events, 0};
      }
    }
    double left = std::max(0.0, next - monotonic_seconds());
    if (ending_.load()) left = std::min(left, 0.01);
    poll(fds.data(), fds.size(), static_cast<int>(std::ceil(left * 1e3)));
    const bool is_woken = fds[0].revents != 0;
    if (is_woken) waker_.clear();
    const bool is_due = monotonic_seconds() >= next || is_woken;
    // Before a tick everything is read, whatever poll says: nobody is called silent who has spoken.
    for (size_t i = 0; i < links_.size(); ++i)
      if (fds[i + 1].fd >= 0 && (is_due || fds[i + 1].revents != 0)) {
        serve(links_[i]);
        const std::lock_guard lock(mutex_);
        if (links_[i].is_open && !links_[i].writer.empty()) links_[i].writer.flush(links_[i].member.socket.fd());
      }
    if (!is_due) continue;
    handler_->on_tick();
    next = monotonic_seconds() + tick_;
  }
}

}  // namespace lathe::comm
