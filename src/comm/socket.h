// Sockets: TCP connections that never block. What is wrong with an address is a UserError that names it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace lathe::comm {

double monotonic_seconds();  // a clock that never goes back

class Socket {  // A descriptor that is closed at the end.
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}                                    // takes it over; -1: none
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}  // takes it over
  Socket& operator=(Socket&&) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }                       // -1: none
  explicit operator bool() const { return fd_ >= 0; }  // whether there is one
  void close();                                        // from now on there is none
  std::string local_host() const;                      // the number of this end's host: "127.0.0.1"

 private:
  int fd_ = -1;
};

class Listener {  // Connections that arrive.
 public:
  // "HOST:PORT" or "[HOST]:PORT"; port 0: one that is free. UserError where it cannot be had.
  explicit Listener(const std::string& address);

  // HOST:PORT by which others reach it; several with commas between them where it listens on all interfaces.
  const std::string& address() const { return address_; }
  int fd() const { return socket_.fd(); }  // of the system
  Socket accept();                         // none: no connection has arrived
  void close() { socket_.close(); }        // those who come later are refused

 private:
  Socket socket_;
  std::string address_;
};

// A connection, within so many seconds, to the first of a list of addresses (commas between them) that can be had.
// None: `problem` says why.
Socket connect_to(const std::string& address, double seconds, std::string& problem);

// Whether something is there to read (or, to write, room) within so many seconds; true as well when it was closed.
bool wait_readable(int fd, double seconds);

std::string join_address(std::string_view host, int port);  // "127.0.0.1:4000", "[::1]:4000"
bool is_loopback(std::string_view host);                    // of this machine alone
std::string host_name();                                    // of this machine, for people

// A descriptor that wakes a thread which polls it.
class Waker {
 public:
  Waker();
  int fd() const { return event_.fd(); }  // of the system
  void wake() const;                      // from any thread, and from signal handlers
  void clear() const;                     // by the thread that was woken

 private:
  Socket event_;
};

}  // namespace lathe::comm
