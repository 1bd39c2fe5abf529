include_guard()
find_package(Python3 3.9 COMPONENTS Interpreter QUIET)
# The environment that setup.sh made, whose Python has torch, or else the system's Python.
find_program(DDP_PEER_PYTHON NAMES python3 HINTS ${PROJECT_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
if(NOT DDP_PEER_PYTHON)
  set(DDP_PEER_PYTHON ${Python3_EXECUTABLE})
endif()
mark_as_advanced(DDP_PEER_PYTHON)

# ddp_add_python_tests(LABEL NAME... [VENV] [SERIAL] [LONG | SPLIT] [PROCESSORS N] [LOCK NAME] [TIMEOUT SECONDS]
#   [SKIP REGEX] [ENVIRONMENT VARIABLE=VALUE...])
# One test LABEL.NAME for each test_NAME.py of this folder. VENV: by DDP_PEER_PYTHON. SERIAL: beside no other test. LONG: with
# the label LABEL-long, and among the first to start. SPLIT: the set LONG of the file is a test LABEL.NAME_long of that label, and
# LABEL.NAME has the rest. PROCESSORS: how many of `ctest --parallel` it takes.
# LOCK: beside no other test of that lock. A line that matches SKIP says that all of it is skipped.
function(ddp_add_python_tests label)
  cmake_parse_arguments(PARSE_ARGV 1 arg "VENV;SERIAL;LONG;SPLIT" "TIMEOUT;SKIP;PROCESSORS;LOCK" "ENVIRONMENT")
  if(NOT Python3_FOUND)
    message(STATUS "Tests of tests/${label}/: no (Python 3 was not found)")
    return()
  endif()
  set(python ${Python3_EXECUTABLE})
  if(arg_VENV)
    set(python ${DDP_PEER_PYTHON})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 1200)
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  if(NOT arg_SKIP)
    set(arg_SKIP "\\[skipped\\] all of it")
  endif()
  set(labels ${label})
  set(cost 30)
  if(arg_LONG)
    set(labels ${label}-long)
    set(cost 300)
  endif()
  set(parts "")
  if(arg_SPLIT)
    set(parts --short)
  endif()
  foreach(name IN LISTS arg_UNPARSED_ARGUMENTS)
    add_test(NAME ${label}.${name}
             COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/support/run_unittest.py ${parts} -v test_${name}
             WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(tests ${label}.${name})
    if(arg_SPLIT)
      add_test(NAME ${label}.${name}_long
               COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/support/run_unittest.py --long -v test_${name}
               WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      list(APPEND tests ${label}.${name}_long)
    endif()
    set_tests_properties(${tests} PROPERTIES
      LABELS ${labels} COST ${cost} TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL} PROCESSORS ${arg_PROCESSORS} SKIP_REGULAR_EXPRESSION "${arg_SKIP}"
      ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;${arg_ENVIRONMENT}")
    if(arg_LOCK)
      set_tests_properties(${tests} PROPERTIES RESOURCE_LOCK ${arg_LOCK})
    endif()
    if(arg_SPLIT)
      set_tests_properties(${label}.${name}_long PROPERTIES LABELS ${label}-long)
    endif()
  endforeach()
endfunction()
