// The version of Lathe: the only place where it stands. CMakeLists.txt and the package files read it from here.
#pragma once

namespace lathe {

// Semantic version, "major.minor.patch". While the major number is 0, a program written for 0.N compiles with every
// 0.N.x, and not necessarily with another N.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace lathe
