# ddp_plain_options: the language and the warnings.
add_library(ddp_plain_options INTERFACE)
target_compile_features(ddp_plain_options INTERFACE cxx_std_20)
target_include_directories(ddp_plain_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ddp_plain_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual)
if(DDP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # To the compiler a file of a group is a header, in which types of anonymous namespaces would be suspect.
  target_compile_options(ddp_plain_options INTERFACE -Wno-subobject-linkage)
endif()
if(DDP_WERROR)
  target_compile_options(ddp_plain_options INTERFACE -Werror)
endif()

# ddp_project_options: what every target of the project is compiled with.
add_library(ddp_project_options INTERFACE)
target_link_libraries(ddp_project_options INTERFACE ddp_plain_options)
if(DDP_SANITIZE)
  target_compile_options(ddp_project_options INTERFACE
    -fsanitize=${DDP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  # The check of vtables opens a pipe to probe memory, so it reports a defect where descriptors have run out.
  target_compile_options(ddp_project_options INTERFACE -fno-sanitize=vptr)
  target_link_options(ddp_project_options INTERFACE -fsanitize=${DDP_SANITIZE})
  target_compile_definitions(ddp_project_options INTERFACE DDP_SANITIZED)  # for tests of what sanitizers need themselves
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 sees uninitialized members in its own <regex> when sanitizers are on.
    target_compile_options(ddp_project_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

# For directories that compute: x86-64 fuses no product and sum unless a file asks for it, aarch64 does by default, and one sum
# written in two places would have two results. What a target asks for itself, such as the CPU kernels, wins.
macro(ddp_unfused_sums)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    add_compile_options(-ffp-contract=off)
  endif()
endmacro()
