#include "comm/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"

namespace lathe::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The socket addresses of "HOST:PORT".
AddressList resolve(const std::string& address, bool listens) {
  const size_t colon = address.rfind(':');
  LATHE_USER_CHECK(colon != std::string::npos && colon > 0, "address \"{}\": expected HOST:PORT", address);
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  LATHE_USER_CHECK(error == std::errc() && end == port.data() + port.size() && number >= 0 && number <= 65535,
                   "address \"{}\": expected a port from 0 to 65535, got \"{}\"", address, port);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int problem = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  LATHE_USER_CHECK(problem == 0, "address \"{}\": {}", address, gai_strerror(problem));
  return {list, &freeaddrinfo};
}

struct Numeric {  // A socket address as text.
  std::string host;
  int port = 0;
};

Numeric numeric(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) return {};
  return {host, std::atoi(port)};
}

Numeric local_end(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return numeric(reinterpret_cast<const sockaddr*>(&address), size);
}

Numeric other_end(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return numeric(reinterpret_cast<const sockaddr*>(&address), size);
}

// By which other machines may reach this one: all that are not of its own alone.
std::vector<std::string> outside_hosts() {
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
    for (const ifaddrs* i = list; i; i = i->ifa_next)
      if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK))
        out.push_back(numeric(i->ifa_addr, sizeof(sockaddr_in)).host);
  }
  if (out.empty()) out.emplace_back("127.0.0.1");
  return out;
}

constexpr double kSecondsOfOne = 2;  // for one of several addresses

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool poll_one(int fd, short events, double seconds) {
  const double end = monotonic_seconds() + seconds;
  for (;;) {
    pollfd p{fd, events, 0};
    const double left = std::max(0.0, end - monotonic_seconds());
    const int count = poll(&p, 1, static_cast<int>(std::ceil(std::min(left, 1e6) * 1e3)));
    if (count > 0) return true;
    if (count == 0 && left <= 0) return false;
  }
}

Socket connect_to_one(const std::string& address, double seconds, std::string& problem) {
  const double end = monotonic_seconds() + seconds;
  const AddressList list = resolve(address, false);
  for (const addrinfo* a = list.get(); a; a = a->ai_next) {
    Socket s(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!s) {
      problem = std::strerror(errno);
      continue;
    }
    int error = connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!poll_one(s.fd(), POLLOUT, end - monotonic_seconds()))
        error = ETIMEDOUT;
      else
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
      problem = std::strerror(error);
      continue;
    }
    // A port that nobody listens on can be given to the very socket that looks for it.
    const Numeric here = local_end(s.fd()), there = other_end(s.fd());
    if (here.host == there.host && here.port == there.port) {
      problem = "nobody listens";
      continue;
    }
    set_no_delay(s.fd());
    return s;
  }
  return {};
}

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string Socket::local_host() const { return local_end(fd_).host; }

Listener::Listener(const std::string& address) {
  const AddressList list = resolve(address, true);
  int problem = 0;
  for (const addrinfo* a = list.get(); a && !socket_; a = a->ai_next) {
    Socket s(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (s) setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s && bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), SOMAXCONN) == 0)
      socket_ = std::move(s);
    else
      problem = errno;
  }
  LATHE_USER_CHECK(socket_, "cannot listen on {}: {}", address, std::strerror(problem));
  const Numeric here = local_end(socket_.fd());
  const bool is_any = here.host == "0.0.0.0" || here.host == "::";
  for (const std::string& host : is_any ? outside_hosts() : std::vector{here.host})
    address_ += fmt::format("{}{}", address_.empty() ? "" : ",", join_address(host, here.port));
}

Socket Listener::accept() {
  Socket s(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (s) set_no_delay(s.fd());
  return s;
}

Socket connect_to(const std::string& addresses, double seconds, std::string& problem) {
  const double end = monotonic_seconds() + seconds;
  for (size_t first = 0; first <= addresses.size();) {
    const size_t last = std::min(addresses.find(',', first), addresses.size());
    // One that does not answer must not take the time of the others.
    const double limit = last - first == addresses.size() ? seconds : kSecondsOfOne;
    const double left = std::max(0.0, end - monotonic_seconds());
    if (Socket s = connect_to_one(addresses.substr(first, last - first), std::min(limit, left), problem)) return s;
    first = last + 1;
  }
  return {};
}

bool wait_readable(int fd, double seconds) { return poll_one(fd, POLLIN, seconds); }

std::string join_address(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "::1"; }

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "unknown";
  return name;
}

Waker::Waker() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_) throw CommError(fmt::format("eventfd: {}", std::strerror(errno)));
}

void Waker::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.fd(), &one, sizeof one);
}

void Waker::clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t taken = read(event_.fd(), &count, sizeof count);
}

}  // namespace lathe::comm
