// Warnings of the library: it prints nothing itself. A program that wants to see them sets a sink; the command line
// prints them to the standard error.
#pragma once

#include <functional>
#include <string>

namespace lathe {

using WarningSink = std::function<void(const std::string& text)>;  // one line, without its end
// From now on, for all threads; called by the thread that warns, one at a time. An empty one: warnings are dropped.
void set_warning_sink(WarningSink);
void warn(const std::string& text);  // to the sink, if there is one

}  // namespace lathe
