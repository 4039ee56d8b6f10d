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
  ok = 0,
  usage = 64,
  bad_data = 65,
  missing_input = 66,
  internal = 70,
  os_error = 71,
  cannot_create = 73,
  io_error = 74,
  preempted = 75,
  peer_failure = 76,
  bad_recipe = 78,
};

enum class ErrorKind { user, internal, device, comm };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, Exit exit, const std::string& message)
      : std::runtime_error(message), kind_(kind), exit_(exit) {}
  ErrorKind kind() const { return kind_; }
  Exit exit_code() const { return exit_; }

 private:
  ErrorKind kind_;
  Exit exit_;
};

// The caller or the input is wrong. `exit` says which sysexits class it belongs to.
class UserError : public Error {
 public:
  explicit UserError(const std::string& message, Exit exit = Exit::bad_data) : Error(ErrorKind::user, exit, message) {}
};

// A bug in Lathe: an invariant that no input should be able to break.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorKind::internal, Exit::internal, message) {}
};

// A device, its driver or its memory failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message, Exit exit = Exit::os_error)
      : Error(ErrorKind::device, exit, message) {}
};

// A call into a device's driver failed that no input can make fail: in the middle of a run, the device is lost.
class DriverError : public DeviceError {
 public:
  using DeviceError::DeviceError;
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

#define LATHE_CHECK(cond, ...)                                                                   \
  do {                                                                                           \
    if (!(cond)) [[unlikely]]                                                                    \
      ::lathe::detail::throw_internal(__FILE__, __LINE__, #cond, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
