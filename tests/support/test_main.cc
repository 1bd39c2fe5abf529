#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int main(int argc, char** argv) {
  Catch::Session session;
  // A name that selects nothing fails instead of passing: CMake splits names at semicolons.
  session.configData().warnings = Catch::WarnAbout::NoTests;
  return session.run(argc, argv);
}
