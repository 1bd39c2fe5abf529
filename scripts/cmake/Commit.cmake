# The commit a program was built from, as a constant of its own source file:
#   ddp_commit(TARGET NAMESPACE::NAME)     extern const char* const NAME; "" if it is not known
# Asked of git at every build, so that it is never an older one's; the file changes only when the answer does.
set(DDP_COMMIT "" CACHE STRING "The commit that --version names; empty: ask git")
function(ddp_commit target name)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${target}_commit.cc)
  add_custom_target(${target}_commit BYPRODUCTS ${generated}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DGENERATED=${generated} -DNAME=${name} -DCOMMIT=${DDP_COMMIT}
            -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    VERBATIM)
  add_dependencies(${target} ${target}_commit)
  set_source_files_properties(${generated} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${generated})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --exclude=*
      OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  string(REGEX MATCH "^(.*)::([^:]+)$" matched ${NAME})
  set(text "namespace ${CMAKE_MATCH_1} {
extern const char* const ${CMAKE_MATCH_2};
const char* const ${CMAKE_MATCH_2} = \"${COMMIT}\";
}
")
  set(present "")
  if(EXISTS ${GENERATED})
    file(READ ${GENERATED} present)
  endif()
  if(NOT present STREQUAL text)
    file(WRITE ${GENERATED} "${text}")
  endif()
endif()
