# Defines ddp_fmt: fmt compiled once into a static library, or, where this fmt does not fit scripts/cmake/compiled_fmt.cc
# (fmt 8, fmt 11 and newer), its header-only target. Never for a file that sees torch, which has an fmt of its own.
get_target_property(_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
if(NOT DEFINED DDP_FMT_COMPILES)
  file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/fmt_probe.cc
    "#include <fmt/format.h>\nint main(int n, char** v) { return fmt::format(\"{} {:.1f} {}\", n, n / 3.0, v[0]).empty(); }\n")
  try_compile(DDP_FMT_COMPILES ${PROJECT_BINARY_DIR}/CMakeFiles/fmt_probe
    SOURCES ${PROJECT_BINARY_DIR}/CMakeFiles/fmt_probe.cc ${PROJECT_SOURCE_DIR}/scripts/cmake/compiled_fmt.cc
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${_include}"
    CXX_STANDARD 20)
endif()
if(DDP_FMT_COMPILES)
  add_library(ddp_fmt STATIC ${PROJECT_SOURCE_DIR}/scripts/cmake/compiled_fmt.cc)
  target_include_directories(ddp_fmt SYSTEM PUBLIC ${_include})
  target_compile_features(ddp_fmt PUBLIC cxx_std_20)
  set_target_properties(ddp_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
else()
  add_library(ddp_fmt INTERFACE)
  target_link_libraries(ddp_fmt INTERFACE fmt::fmt-header-only)
endif()
