// Links between ranks as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/target.h"

namespace lathe {

std::string link_text(const Link&);  // for people: "35 us, 4.2 GB/s"

// "50us,1Gbit/s", in either order: a latency in ns, us or ms, and a bandwidth in kbit/s, Mbit/s, Gbit/s, kB/s, MB/s or
// GB/s, each of them a thousand of the last. None: it is something else.
std::optional<Link> parse_link(std::string_view text);

}  // namespace lathe
