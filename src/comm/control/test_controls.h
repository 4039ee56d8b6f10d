// For tests: control channels of ranks that are threads of one process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/control.h"

namespace lathe::comm {

// f on a thread for each rank. What they threw, by rank.
inline std::vector<std::string> on_controls(int ranks, ControlOptions options, const std::function<void(Control&)>& f) {
  Listener listener("127.0.0.1:0");
  options.size = ranks;
  options.address = listener.address();
  if (options.token.empty()) options.token = "test";
  options.stack_folder = std::filesystem::temp_directory_path().string();
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r, o = options]() mutable {
      o.rank = r;
      try {
        std::optional<Control> control;
        if (r == 0)
          control.emplace(o, std::move(listener));
        else
          control.emplace(o);
        f(*control);
      } catch (const Error& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace lathe::comm
