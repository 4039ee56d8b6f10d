// Errors: one exception class with kinds, and two checks. Nothing else is thrown by Lathe.
// A message reads `what: expected X, got Y (where); hint`. main() maps kinds to exit codes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lathe {

// Exit codes of the process (sysexits); see docs/reliability.md.
enum class Exit : int {
  ok = 0,              // all went well
  usage = 64,          // a wrong command line
  bad_data = 65,       // data or numbers that cannot be used
  missing_input = 66,  // no such file, recipe or run
  internal = 70,       // a bug, or a self-test that does not hold
  os_error = 71,       // memory or a device
  cannot_create = 73,  // an output that is there already, or may not be made
  io_error = 74,       // reading or writing failed
  preempted = 75,      // a signal ended the run; it can be resumed
  peer_failure = 76,   // another process of the run failed
  bad_recipe = 78,     // a recipe that is refused
};

enum class ErrorKind {  // Who can do something about it.
  user,                 // the caller: a file, an option, a recipe
  internal,             // nobody but the authors: a bug
  device,               // who runs the device: memory, driver, hardware
  comm,                 // who runs the network between processes
};

class Error : public std::runtime_error {  // What Lathe throws.
 public:
  Error(ErrorKind kind, Exit exit, const std::string& message)  // the message is what()
      : std::runtime_error(message), kind_(kind), exit_(exit) {}
  ErrorKind kind() const { return kind_; }  // whose fault it is
  Exit exit_code() const { return exit_; }  // for the process that ends with it

 private:
  ErrorKind kind_;
  Exit exit_;
};

// The caller or the input is wrong. `exit` says which sysexits class it belongs to.
class UserError : public Error {
 public:
  // See the class.
  explicit UserError(const std::string& message, Exit exit = Exit::bad_data) : Error(ErrorKind::user, exit, message) {}
};

// A bug in Lathe: an invariant that no input should be able to break.
class InternalError : public Error {
 public:
  // See the class.
  explicit InternalError(const std::string& message) : Error(ErrorKind::internal, Exit::internal, message) {}
};

// A device, its driver or its memory failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message, Exit exit = Exit::os_error)  // see the class
      : Error(ErrorKind::device, exit, message) {}
};

// A call into a device's driver failed that no input can make fail: in the middle of a run, the device is lost.
class DriverError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Another process of the run, or the way to it, failed.
class CommError : public Error {
 public:
  // See the class.
  explicit CommError(const std::string& message) : Error(ErrorKind::comm, Exit::peer_failure, message) {}
};

namespace detail {
[[noreturn]] void throw_internal(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace lathe

// Message arguments are a fmt format string and its arguments; evaluated only when the condition fails.
#define LATHE_USER_CHECK(cond, ...)                         \
  do {                                                      \
    if (!(cond)) [[unlikely]]                               \
      throw ::lathe::UserError(::fmt::format(__VA_ARGS__)); \
  } while (0)

// The same for what no input can break: InternalError.
#define LATHE_CHECK(cond, ...)                                                                   \
  do {                                                                                           \
    if (!(cond)) [[unlikely]]                                                                    \
      ::lathe::detail::throw_internal(__FILE__, __LINE__, #cond, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
