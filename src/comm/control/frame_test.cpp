#include "comm/control/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/philox.h"
#include "comm/socket.h"

namespace lathe::comm {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a = Socket(fds[0]);
    b = Socket(fds[1]);
  }
  void put(const std::string& bytes) const {
    ASSERT_EQ(write(a.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  Socket a, b;
};

TEST(Frames, ArriveInAnyPieces) {
  std::string wire;
  {
    FrameWriter out;
    const Pair p;
    for (int i = 0; i < 20; ++i) out.add(FrameType::data, std::string(static_cast<size_t>(i * 37), 'a'));
    EXPECT_TRUE(out.flush(p.a.fd()));
    wire.resize(20000);
    wire.resize(static_cast<size_t>(read(p.b.fd(), wire.data(), wire.size())));
  }
  for (const size_t piece : {1, 3, 8, 500}) {
    const Pair p;
    FrameReader in;
    int count = 0;
    for (size_t at = 0; at < wire.size(); at += piece) {
      p.put(wire.substr(at, piece));
      EXPECT_EQ(in.read(p.b.fd()), FrameReader::State::open);
      for (Frame f; in.next(f); ++count) EXPECT_EQ(f.payload.size(), static_cast<size_t>(count * 37));
    }
    EXPECT_EQ(count, 20);
    EXPECT_TRUE(in.empty());
  }
}

TEST(Frames, NotAByteBehindTheNextOne) {
  const Pair p;
  FrameWriter out;
  out.add(FrameType::welcome, "hello");
  out.flush(p.a.fd());
  p.put("something else");
  FrameReader in;
  in.read_one(p.b.fd());
  Frame f;
  ASSERT_TRUE(in.next(f));
  EXPECT_EQ(f.payload, "hello");
  char rest[32];
  EXPECT_EQ(read(p.b.fd(), rest, sizeof rest), 14);
}

// Whatever arrives: no crash, and nothing is kept that did not arrive.
TEST(Frames, RandomBytesAreNoFrames) {
  int bad = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const CounterRng random(seed, 1, 0, 0);
    std::string bytes(random.below(0, 300) + 8, 0);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random.bits(i + 1));
    if (seed % 2) {  // a header that is one, with any length
      const uint16_t type = static_cast<uint16_t>(random.below(1000, 10)), check = type ^ 0x4C54;
      std::memcpy(bytes.data() + 4, &type, 2);
      std::memcpy(bytes.data() + 6, &check, 2);
    }
    const Pair p;
    p.put(bytes);
    FrameReader in;
    in.read(p.b.fd());
    for (Frame f; in.next(f);) {
      Take t(f.payload);
      t.text(), t.number<int64_t>(), t.text();
      EXPECT_TRUE(t.ok() || t.rest().empty());
    }
    bad += in.state() == FrameReader::State::bad;
  }
  EXPECT_GT(bad, 300);
}

TEST(Frames, ALengthIsCheckedBeforeItIsKept) {
  const Pair p;
  uint32_t header[2] = {0xFFFFFFF0u, 0};
  const uint16_t type = 5, check = type ^ 0x4C54;
  std::memcpy(&header[1], &type, 2);
  std::memcpy(reinterpret_cast<char*>(&header[1]) + 2, &check, 2);
  p.put(std::string(reinterpret_cast<char*>(header), 8));
  FrameReader in;
  in.read(p.b.fd());
  Frame f;
  EXPECT_FALSE(in.next(f));
  EXPECT_EQ(in.state(), FrameReader::State::bad);
}

TEST(Addresses, WhatIsWrongIsSaid) {
  for (const char* address : {"", ":80", "localhost", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:80x", "127.0.0.1:-1"})
    EXPECT_THROW(Listener l(address), std::exception) << address;
  std::string problem;
  EXPECT_FALSE(connect_to("127.0.0.1:1", 1, problem));
  EXPECT_NE(problem, "");
  EXPECT_EQ(join_address("::1", 5), "[::1]:5");
}

// Hosts have several interfaces, and not all of them lead to the others.
TEST(Addresses, TheFirstOfAListThatAnswers) {
  const Listener listener("127.0.0.1:0");
  std::string problem;
  EXPECT_TRUE(connect_to("127.0.0.1:1,127.0.0.1:2," + listener.address(), 5, problem)) << problem;
  EXPECT_FALSE(connect_to("127.0.0.1:1,127.0.0.1:2", 5, problem));
  EXPECT_NE(problem, "");
  EXPECT_EQ(Listener("0.0.0.0:0").address().find("0.0.0.0"), std::string::npos);
}

}  // namespace
}  // namespace lathe::comm
