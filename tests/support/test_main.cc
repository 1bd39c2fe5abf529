#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  Catch::Session session;
  // A name that selects nothing fails instead of passing: CMake splits names at semicolons. Version
  // 3 fails by itself.
#ifdef CATCH_VERSION_MAJOR
#if CATCH_VERSION_MAJOR < 3
  session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
#endif
  return session.run(argc, argv);
}
